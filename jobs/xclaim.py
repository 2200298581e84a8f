r"""`claimlib xclaim` for spark-submit: the same arguments and options (--help lists them).

spark-submit --properties-file conf/spark-defaults.conf \
    jobs/xclaim.py STORE --requests TABLE
"""

import sys

from claimlib.cli import job

if __name__ == "__main__" and (code := job("xclaim")):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
