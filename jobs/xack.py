"""Acknowledge entries of a store by their ids, one request or a table of them.

spark-submit --properties-file conf/spark-defaults.conf jobs/xack.py STORE --requests TABLE …
"""

import sys

from claimlib import exits, terminal
from claimlib.arguments import JobParser
from claimlib.asked_options import ack_of, named_by, requests_of
from claimlib.asked_report import of_asked
from claimlib.commands.xack import ack_table, xack
from claimlib.layout import as_text
from claimlib.model import parse_run_id
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Acknowledge entries of a store by their ids.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    for name in ("stream", "group"):
        parser.add_argument(name, nargs="?", help="of a single request")
    parser.add_argument("ids", nargs="*", metavar="ID", help="ms-seq")
    parser.add_argument("--ids-from", help="a table with a column id, or a file with one per line")
    parser.add_argument("--requests", help="instead of all of these, a table of requests")
    parser.add_argument("--run-id", type=parse_run_id, help="a repeat changes nothing")
    parser.add_argument("--dry-run", action="store_true", help="decide and show, write nothing")
    parser.add_limit("ids")
    asked = parser.parsed()
    named = named_by(asked, "stream", "group")
    ack = ack_of(named)
    store = Store.open(open_session(app_name="claimlib xack"), asked.store)
    requests = requests_of(store.spark, named, ack, ack_table)
    reply = xack(store, requests, run_id=asked.run_id, dry_run=asked.dry_run)
    terminal.out(as_text(of_asked("xack", reply, asked.limit)))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
