"""Create an archive of Java classes, so that claimlib's sessions start faster.

Before Spark's first result, a JVM spends much time on loading and verifying the same classes each
time.  Java's class data sharing avoids this.  Run `python -m claimlib.session.class_archive` once.
It starts a session, and writes and reads a Delta table.  Java then writes the classes to a file in
the folder of the Python environment.  A JVM with other packages, or of another version, ignores the
file (docs/decisions/022).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from claimlib import process, terminal
from claimlib.errors import ConfigError
from claimlib.session import CLASS_ARCHIVE, open_session


def main() -> int:
    """Create or replace the archive, and return the exit code.

    Raises:
        ConfigError: Java did not write the archive.
    """
    about = (
        f"Create {CLASS_ARCHIVE}, or replace it: with it Spark starts in two thirds of the time."
    )
    argparse.ArgumentParser(
        prog="python -m claimlib.session.class_archive", description=about
    ).parse_args()
    CLASS_ARCHIVE.unlink(missing_ok=True)
    terminal.say("Starting Spark to record its classes; this takes one to three minutes.")
    # Java writes the file when it ends, so another process starts it.  `run` reads the output of
    # this process to its end, which comes when Java has ended, too.
    completed = subprocess.run(
        [sys.executable, "-c", "from claimlib.session.class_archive import use_spark; use_spark()"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not CLASS_ARCHIVE.is_file():
        raise ConfigError(f"Java did not write {CLASS_ARCHIVE}: {completed.stderr.strip()[-500:]}")
    size_mb = CLASS_ARCHIVE.stat().st_size // 1024**2
    terminal.out(f"{CLASS_ARCHIVE}: {size_mb} MB, used by each session that claimlib starts")
    return process.DONE


def use_spark() -> None:
    """Do the first steps of most commands, in a JVM that archives the classes for these steps."""
    with tempfile.TemporaryDirectory() as folder:
        # Not muted, so that Java shares the output of this process, and `main` waits for Java.
        spark = open_session(
            java_options=f"-XX:ArchiveClassesAtExit={CLASS_ARCHIVE}",
            conf={"spark.sql.warehouse.dir": str(Path(folder) / "warehouse")},
            muted=False,
        )
        table = str(Path(folder) / "table")
        spark.range(1).write.format("delta").save(table)
        spark.read.format("delta").load(table).groupBy("id").count().collect()
        spark.sql(
            f"MERGE INTO delta.`{table}` t USING (SELECT 0L AS id) s ON t.id = s.id"
            " WHEN MATCHED THEN DELETE"
        ).collect()
        spark.stop()


if __name__ == "__main__":
    sys.exit(process.ending(main))
