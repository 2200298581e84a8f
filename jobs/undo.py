r"""`claimlib undo` for spark-submit: the same arguments and options (--help lists them).

spark-submit --properties-file conf/spark-defaults.conf \
    jobs/undo.py STORE RUN [--run-id ID]
"""

import sys

from claimlib.cli import job

if __name__ == "__main__" and (code := job("undo")):
    sys.exit(code)  # only then: Databricks takes every sys.exit for a failure
