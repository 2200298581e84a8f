"""Checks that claimlib answers recorded commands as the server did."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from claimlib import process, terminal
from claimlib.commands.stores import init
from claimlib.semantics.model import IdleRule
from claimlib.session import SHORT_LIVED, open_session
from claimlib.testing.vector_check import check
from claimlib.testing.vectors import steps


def main() -> int:
    """Run vector files through the reference and through the tables, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m claimlib.testing", description=__doc__)
    commands = parser.add_subparsers(required=True)
    vectors = commands.add_parser("vectors", help="check files of recorded commands")
    vectors.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a file of recorded commands (JSON; tests/vectors/README.md)",
    )
    vectors.add_argument(
        "--idle-rule",
        type=IdleRule,
        choices=list(IdleRule),
        help="use this rule instead of the file's",
    )
    vectors.add_argument("--engine", choices=["embedded", "spark"], default="embedded")
    vectors.add_argument("--keep", type=Path, metavar="DIR", help="keep the store in DIR/store")
    options = parser.parse_args()
    recorded_steps = [step for file in options.files for step in steps(file, options.idle_rule)]
    with tempfile.TemporaryDirectory() as folder:
        spark = _session() if options.engine == "spark" else None
        store = init(str((options.keep or Path(folder)) / "store"), spark=spark)
        verdict = check(store, recorded_steps)
    lines = [*verdict.failed]
    lines += [
        f"not covered: the tables have no {command} yet ({number} steps)"
        for command, number in sorted(verdict.not_covered.items())
    ]
    lines.append("each step counts twice: by the reference, and by the tables")
    skipped = 2 * sum(verdict.not_covered.values())
    lines.append(f"{verdict.passed} passed, {len(verdict.failed)} failed, {skipped} not covered")
    terminal.out("\n".join(lines))
    return process.OUR_FAULT if verdict.failed or not verdict.passed else process.DONE


def _session() -> SparkSession:
    spark = open_session(driver_memory="3g", java_options=SHORT_LIVED)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


if __name__ == "__main__":
    sys.exit(process.ending(main))
