"""Hand over all that a consumer of a store has pending, and remove it.

spark-submit --properties-file conf/spark-defaults.conf jobs/retire.py STORE STREAM GROUP CONSUMER \
  --to NAME …
"""

import sys

from claimlib import exits, terminal
from claimlib.arguments import JobParser
from claimlib.asked_report import of_asked
from claimlib.commands.retire import Retirement, retire
from claimlib.layout import as_text
from claimlib.model import parse_run_id
from claimlib.names import unspell
from claimlib.session import open_session
from claimlib.store import Store
from claimlib.times import parse_instant_ms


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Hand over what a consumer has pending.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    for name in ("stream", "group", "consumer"):
        parser.add_argument(name, help="who is retired")
    parser.add_argument("--to", action="append", required=True, help="an heir; give it again")
    parser.add_argument("--run-id", type=parse_run_id, help="a repeat changes nothing")
    parser.add_argument("--now", type=parse_instant_ms, help="ISO 8601 with a zone, or ms")
    parser.add_argument("--dry-run", action="store_true", help="decide and show, write nothing")
    parser.add_limit("ids")
    asked = parser.parsed()
    retirement = Retirement(
        stream=unspell(asked.stream),
        group=unspell(asked.group),
        consumer=unspell(asked.consumer),
        heirs=tuple(map(unspell, asked.to)),
    )
    store = Store.open(open_session(app_name="claimlib retire"), asked.store)
    reply = retire(store, retirement, run_id=asked.run_id, now_ms=asked.now, dry_run=asked.dry_run)
    terminal.out(as_text(of_asked("retire", reply, asked.limit)))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
