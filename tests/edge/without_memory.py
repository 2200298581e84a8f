"""A session that has a secret among its settings, and then too little memory."""

from __future__ import annotations

import sys
from pathlib import Path

from claimlib import process
from claimlib.session import open_session

_SECRET = "spark.hadoop.fs.s3a.secret.key"
_VALUE = "a b=#secret"


def main() -> int:
    """Says what it has seen of the secret; then a job that needs more memory than there is."""
    spark = open_session(conf={_SECRET: _VALUE, "spark.driver.memory": "600m"})
    places = Path("/proc").glob("[0-9]*/cmdline")
    shown = any(b"secret.key" in _read(one) or b"#secret" in _read(one) for one in places)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    arrived = hadoop.get(_SECRET.removeprefix("spark.hadoop.")) == _VALUE
    print(
        "an argument has it" if shown else "no argument has it;",
        "it has arrived" if arrived else "it has not arrived",
        flush=True,
    )
    spark.range(1).selectExpr("sequence(1, 200000000) AS numbers").toArrow()
    return process.DONE


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


if __name__ == "__main__":
    sys.exit(process.ending(main))
