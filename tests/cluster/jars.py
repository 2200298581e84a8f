"""`make jars`: Spark's jars of Delta in a folder, for hosts without a way to Maven Central."""

import shutil
import sys
from pathlib import Path
from urllib.parse import urlparse

from claimlib.session import open_session


def copy_jars(folder: Path) -> list[Path]:
    """The jars that Ivy has found for a session of our own, copied."""
    spark = open_session()
    found = [
        urlparse(jar).path for jar in spark.sparkContext.getConf().get("spark.jars").split(",")
    ]
    spark.stop()
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(jar, folder)) for jar in found]


if __name__ == "__main__":
    for jar in copy_jars(Path(sys.argv[1])):
        print(jar)
