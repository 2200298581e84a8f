"""Do XCLAIMs on a store: one request by its names and ids, or a table of requests.

spark-submit --properties-file conf/spark-defaults.conf jobs/xclaim.py STORE --requests TABLE …
"""

import sys

from claimlib import exits, terminal
from claimlib.arguments import JobParser
from claimlib.asked_options import ClaimOptions, claim_of, named_by, requests_of
from claimlib.asked_report import of_asked, refused_requests
from claimlib.commands.xclaim import claim_table, xclaim
from claimlib.layout import as_text
from claimlib.model import parse_run_id
from claimlib.session import open_session
from claimlib.store import Store
from claimlib.times import parse_instant_ms


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Claim entries of a store by their ids.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    for name in ("stream", "group", "consumer"):
        parser.add_argument(name, nargs="?", help="of a single request")
    parser.add_argument("ids", nargs="*", metavar="ID", help="ms-seq")
    parser.add_argument("--ids-from", help="a table with a column id, or a file with one per line")
    parser.add_argument("--requests", help="instead of all of these, a table of requests")
    for name in ("min-idle", "idle", "time", "lastid", "idle-rule", "profile"):
        parser.add_argument(f"--{name}", help="as of claimlib xclaim")
    parser.add_argument("--retrycount", type=int, help="set delivery counts to this")
    for name in ("force", "justid", "dry-run"):
        parser.add_argument(f"--{name}", action="store_true", help="as of claimlib xclaim")
    parser.add_argument("--run-id", type=parse_run_id, help="a repeat changes nothing")
    parser.add_argument("--now", type=parse_instant_ms, help="ISO 8601 with a zone, or ms")
    parser.add_limit("ids")
    asked = parser.parsed()
    named = named_by(asked, "stream", "group", "consumer")
    claim = claim_of(named, ClaimOptions.of(asked))
    store = Store.open(open_session(app_name="claimlib xclaim"), asked.store)
    requests = requests_of(store.spark, named, claim, claim_table)
    reply = xclaim(store, requests, run_id=asked.run_id, now_ms=asked.now, dry_run=asked.dry_run)
    terminal.out(as_text(of_asked("xclaim", reply, asked.limit)))
    terminal.say(*refused_requests(reply))
    return exits.SOME_REFUSED if reply.counts["refused"] else exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
