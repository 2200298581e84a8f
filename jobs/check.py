"""Say what a store lacks; the process ends with 4 where a sweep would refuse groups for it.

spark-submit --properties-file conf/spark-defaults.conf jobs/check.py STORE
"""

import sys

from claimlib import exits, terminal
from claimlib.arguments import JobParser
from claimlib.commands.check import check
from claimlib.layout import as_text
from claimlib.report import of_check
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Say what a store lacks.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    asked = parser.parsed()
    store = Store.open(open_session(app_name="claimlib check"), asked.store)
    found = check(store)
    terminal.out(as_text(of_check(store.where, found)))
    return exits.INPUT_REFUSED if any(one.refuses for one in found) else exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
