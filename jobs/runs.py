"""List the runs of a store, or show one.

spark-submit --properties-file conf/spark-defaults.conf jobs/runs.py STORE [RUN]
"""

import sys

from claimlib import exits, report, terminal
from claimlib.arguments import JobParser
from claimlib.commands.runs import find_run, list_runs, remark_on
from claimlib.layout import as_text
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("List the runs of a store, or show one.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    parser.add_argument("run", nargs="?", help="its number, or command:run_id")
    parser.add_limit("runs")
    asked = parser.parsed()
    store = Store.open(open_session(app_name="claimlib runs"), asked.store)
    if asked.run is None:
        shown = report.of_runs(store.where, list_runs(store, asked.limit))
    else:
        finished = find_run(store, asked.run)
        shown = report.of_run(finished, remark_on(store, finished))
    terminal.out(as_text(shown))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
