r"""`claimlib advise` for spark-submit: the same arguments and options (--help lists them).

spark-submit --properties-file conf/spark-defaults.conf \
    jobs/advise.py STORE --since 7d
"""

import sys

from claimlib.cli import job

if __name__ == "__main__" and (code := job("advise")):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
