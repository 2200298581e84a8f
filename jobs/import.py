"""Bring a store to what somebody's own tables say; conf/import.example.toml shows a --map.

spark-submit --properties-file conf/spark-defaults.conf jobs/import.py STORE --entries T --pending T
"""

import argparse
import sys
from pathlib import Path

from claimlib import exits
from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.layout import as_text
from claimlib.mapping import load_map
from claimlib.report import of_import
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = argparse.ArgumentParser(description="Bring a store to what somebody's tables say.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    for name in ("entries", "pending"):
        parser.add_argument(f"--{name}", required=True, help="catalog.schema.table, or a path")
    for name in ("groups", "consumers", "streams"):
        parser.add_argument(f"--{name}", help="catalog.schema.table, or a path")
    parser.add_argument(
        "--entries-complete", action="store_true", help="they are all ids of the streams"
    )
    parser.add_argument("--map", type=Path, help="TOML: which column is which")
    parser.add_argument("--allow-empty", action="store_true", help="entries, pending may be empty")
    parser.add_argument("--run-id", help="the same one again changes nothing")
    asked = vars(parser.parse_args())
    where, map_file, run_id = (asked.pop(name) for name in ("store", "map", "run_id"))
    request = ImportRequest(**asked, maps={} if map_file is None else load_map(map_file))
    store = Store.open(open_session(app_name="claimlib import"), where)
    print(as_text(of_import(import_tables(store, request, run_id=run_id))))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
