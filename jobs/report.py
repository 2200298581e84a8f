r"""`claimlib report` for spark-submit: the same arguments and options (--help lists them).

spark-submit --properties-file conf/spark-defaults.conf \
    jobs/report.py STORE RUN --html report.html
"""

import sys

from claimlib.cli import job

if __name__ == "__main__" and (code := job("report")):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
