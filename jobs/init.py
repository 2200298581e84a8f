"""Create the tables of a store.

spark-submit --properties-file conf/spark-defaults.conf jobs/init.py STORE [--buckets 8]
"""

import sys

from claimlib import exits, terminal
from claimlib.arguments import JobParser
from claimlib.layout import as_text
from claimlib.report import of_store
from claimlib.session import open_session
from claimlib.store import Store


def main() -> int:
    """Run the job; the exit code."""
    parser = JobParser("Create the tables of a store.")
    parser.add_argument("store", help="a folder, a URL, or catalog.schema")
    parser.add_argument("--buckets", type=int, default=8, help="partitions of the large tables")
    parser.add_argument("--source", help="what the store mirrors, if that is no server")
    asked = parser.parsed()
    spark = open_session(app_name="claimlib init")
    store = Store.init(spark, asked.store, buckets=asked.buckets, source=asked.source)
    terminal.out(as_text(of_store(store.where, store.buckets, store.declared_source)))
    return exits.DONE


if __name__ == "__main__" and (code := exits.ending(main)):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
