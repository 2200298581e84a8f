"""Bring a store to what a server says; the password comes from REDIS_PASSWORD or a file.

spark-submit --properties-file conf/spark-defaults.conf jobs/snapshot.py URL STORE [--run-id ID]
"""

import sys
from pathlib import Path

from claimlib import exits, terminal
from claimlib.arguments import JobParser
from claimlib.commands.snapshot import snapshot
from claimlib.config import load
from claimlib.layout import as_text
from claimlib.model import parse_run_id
from claimlib.reading import ServerReading
from claimlib.report import of_snapshot
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Bring a store to what a server says.")
    parser.add_argument("url", help="redis://[USER@]HOST[:PORT][/DB] or rediss://…")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    parser.add_argument("--config", type=Path, help="TOML; its sections [snapshot] and [mirror]")
    parser.add_argument("--run-id", type=parse_run_id, help="a repeat changes nothing")
    parser.add_argument("--password-file", type=Path, help="default: variable REDIS_PASSWORD")
    parser.add_argument(
        "--allow-empty", action="store_const", const=True, help="the server may have nothing"
    )
    parser.add_argument("--max-removed-share", help="as in [mirror] of --config; default: 0.5")
    asked = parser.parsed()
    limits = {"allow_empty": asked.allow_empty, "max_removed_share": asked.max_removed_share}
    settings = load(asked.config, mirror=limits)
    reading = ServerReading(asked.url, settings.snapshot, asked.password_file)
    request = settings.snapshot.request(reading.label, settings.mirror.limits())
    store = Store.open(open_session(app_name="claimlib snapshot"), asked.store)
    terminal.out(as_text(of_snapshot(snapshot(store, request, reading, run_id=asked.run_id))))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
