"""A session that has a secret among its settings; another one, which has too little memory."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import SparkContext

from claimlib import process
from claimlib.session import open_session

_SECRET = "spark.hadoop.fs.s3a.secret.key"
_VALUE = "a b=#secret"


def main() -> int:
    """Says what it has seen of its settings; then a job that needs more memory than there is."""
    first = {_SECRET: _VALUE, "spark.driver.memory": "600m", "spark.app.name": "mine", "a.b": "c"}
    spark = open_session(conf=first)
    java = Path("/proc", str(SparkContext._gateway.proc.pid), "cmdline").read_bytes()
    assert b"SparkSubmit" in java
    assert b"#secret" not in java
    context = spark.sparkContext
    assert context._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == _VALUE
    assert (context.appName, context.getConf().get("a.b")) == ("mine", "c")
    spark.stop()
    # A JVM that runs already reads no file any more.
    spark = open_session(conf={_SECRET: "another", "spark.sql.shuffle.partitions": "9"})
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    assert hadoop.get("fs.s3a.secret.key") == "another"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "9"
    print("the settings are there", flush=True)
    spark.range(1).selectExpr("sequence(1, 200000000) AS numbers").toArrow()
    return process.DONE


if __name__ == "__main__":
    sys.exit(process.ending(main))
