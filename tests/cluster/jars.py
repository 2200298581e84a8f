"""`make jars`: Spark's jars of Delta in a folder, for hosts without a way to Maven Central."""

import shutil
import sys
from pathlib import Path
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from claimlib.session import open_session


def copy_jars(spark: SparkSession, folder: Path) -> list[Path]:
    """The jars that Ivy has found for a session, copied."""
    paths = [
        urlparse(jar).path for jar in spark.sparkContext.getConf().get("spark.jars").split(",")
    ]
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(jar, folder)) for jar in paths]


if __name__ == "__main__":
    session = open_session()
    for jar in copy_jars(session, Path(sys.argv[1])):
        print(jar)
    session.stop()
