"""Acknowledge entries of a store by their ids, one request or a table of them.

spark-submit --properties-file conf/spark-defaults.conf jobs/xack.py STORE --requests TABLE …
"""

import argparse
import sys

from claimlib import exits
from claimlib.asked_options import ack_of, named_by, requests_of
from claimlib.asked_report import of_asked
from claimlib.commands.xack import ack_table, xack
from claimlib.layout import DEFAULT_LIMIT, as_text
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = argparse.ArgumentParser(description="Acknowledge entries of a store by their ids.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    for name in ("stream", "group"):
        parser.add_argument(name, nargs="?", help="of a single request")
    parser.add_argument("ids", nargs="*", metavar="ID", help="ms-seq")
    parser.add_argument("--ids-from", help="a table with a column id, or a file with one per line")
    parser.add_argument("--requests", help="instead of all of these, a table of requests")
    parser.add_argument("--run-id", help="the same one again changes nothing")
    parser.add_argument("--dry-run", action="store_true", help="decide and show, write nothing")
    parser.add_argument("--limit", type=int, default=DEFAULT_LIMIT, help="of ids shown")
    asked = parser.parse_intermixed_args()
    named = named_by(asked, "stream", "group")
    ack = ack_of(named)
    store = Store.open(open_session(app_name="claimlib xack"), asked.store)
    requests = requests_of(store.spark, named, ack, ack_table)
    reply = xack(store, requests, run_id=asked.run_id, dry_run=asked.dry_run)
    print(as_text(of_asked("xack", reply, asked.limit)))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
