"""Bring a store to what a server says; the password comes from REDIS_PASSWORD or a file.

spark-submit --properties-file conf/spark-defaults.conf jobs/snapshot.py URL STORE [--run-id ID]
"""

import argparse
import sys
from pathlib import Path

from claimlib import exits
from claimlib.commands.snapshot import snapshot
from claimlib.config import load
from claimlib.layout import as_text
from claimlib.reading import ServerReading
from claimlib.report import of_snapshot
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = argparse.ArgumentParser(description="Bring a store to what a server says.")
    parser.add_argument("url", help="redis://[USER@]HOST[:PORT][/DB] or rediss://…")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    parser.add_argument(
        "--config", type=Path, help="TOML; its section [snapshot] says what to read"
    )
    parser.add_argument("--run-id", help="the same one again changes nothing")
    parser.add_argument("--password-file", type=Path, help="default: variable REDIS_PASSWORD")
    asked = parser.parse_args()
    reading = ServerReading(asked.url, load(asked.config).snapshot, asked.password_file)
    request = reading.what.request(reading.label)
    store = Store.open(open_session(app_name="claimlib snapshot"), asked.store)
    print(as_text(of_snapshot(snapshot(store, request, reading, run_id=asked.run_id))))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
