r"""`claimlib writeback` for spark-submit: the same arguments and options (--help lists them).

spark-submit --properties-file conf/spark-defaults.conf \
    jobs/writeback.py STORE RUN URL [--run-id ID]
"""

import sys

from claimlib.cli import job

if __name__ == "__main__" and (code := job("writeback")):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
