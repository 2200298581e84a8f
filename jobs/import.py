"""Bring a store to what somebody's own tables say; conf/import.example.toml shows a --map.

spark-submit --properties-file conf/spark-defaults.conf jobs/import.py STORE --entries T --pending T
"""

import sys
from pathlib import Path

from claimlib import exits, terminal
from claimlib.arguments import JobParser
from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.config import load
from claimlib.layout import as_text
from claimlib.mapping import load_map
from claimlib.model import parse_run_id
from claimlib.report import of_import
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Bring a store to what somebody's tables say.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    for name in ("entries", "pending", "groups", "consumers", "streams"):
        needed = name in {"entries", "pending"}
        parser.add_argument(f"--{name}", required=needed, help="catalog.schema.table, or a path")
    parser.add_argument(
        "--entries-complete", action="store_true", help="they are all ids of the streams"
    )
    parser.add_argument("--map", type=Path, help="TOML: which column is which")
    parser.add_argument("--config", type=Path, help="TOML; its section [mirror]")
    parser.add_argument(
        "--allow-empty", action="store_const", const=True, help="entries, pending may be empty"
    )
    parser.add_argument("--max-removed-share", help="as in [mirror] of --config; default: 0.5")
    parser.add_argument("--run-id", type=parse_run_id, help="a repeat changes nothing")
    asked = vars(parser.parsed())
    limits = {name: asked.pop(name) for name in ("allow_empty", "max_removed_share")}
    where, given, run_id, config = (asked.pop(one) for one in ("store", "map", "run_id", "config"))
    removal = load(config, mirror=limits).mirror.limits()
    request = ImportRequest(**asked, limits=removal, maps=load_map(given) if given else {})
    store = Store.open(open_session(app_name="claimlib import"), where)
    terminal.out(as_text(of_import(import_tables(store, request, run_id=run_id))))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
