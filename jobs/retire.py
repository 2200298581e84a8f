r"""`claimlib retire` for spark-submit: the same arguments and options (--help lists them).

spark-submit --properties-file conf/spark-defaults.conf \
    jobs/retire.py STORE STREAM GROUP CONSUMER --to NAME
"""

import sys

from claimlib.cli import job

if __name__ == "__main__" and (code := job("retire")):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
