r"""`claimlib xautoclaim` for spark-submit: the same arguments and options (--help lists them).

spark-submit --properties-file conf/spark-defaults.conf \
    jobs/xautoclaim.py STORE --consumer NAME --min-idle 15m
"""

import sys

from claimlib.cli import job

if __name__ == "__main__" and (code := job("xautoclaim")):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
