"""Show what is pending, the longest idle first; ends with 3 where work has stalled, if asked to.

spark-submit --properties-file conf/spark-defaults.conf jobs/xpending.py STORE --fail-on-stalled 1h
"""

import sys

from claimlib import exits, report, terminal
from claimlib.arguments import JobParser
from claimlib.commands.xpending import DEFAULT_STALLED_MS, is_stalled, overview, reading
from claimlib.layout import as_text
from claimlib.session import open_session
from claimlib.store import Store
from claimlib.times import parse_duration_ms, parse_instant_ms


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Show what is pending in all groups of a store.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    parser.add_argument("--fail-on-stalled", type=parse_duration_ms, help="idle for so long: 1h")
    parser.add_argument("--now", type=parse_instant_ms, help="ISO 8601 with a zone, or ms")
    parser.add_argument("--as-of", help="a run, or an instant: as that run left the store")
    parser.add_limit("groups")
    asked = parser.parsed()
    store = Store.open(open_session(app_name="claimlib xpending"), asked.store)
    given = asked.fail_on_stalled
    stalled_ms = DEFAULT_STALLED_MS if given is None else given
    groups = overview(reading(store, asked.as_of), stalled_ms=stalled_ms, now_ms=asked.now)
    terminal.out(as_text(report.of_overview(store.where, groups, stalled_ms, asked.limit)))
    return exits.STALLED if given is not None and is_stalled(groups) else exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
