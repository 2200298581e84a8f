"""`make cluster-demo`: a sweep over made-up rows on a standalone cluster, of whose workers one is
killed while the sweep is decided and one while it is applied; then every row is compared with a
formula."""

import sys
import tempfile
from pathlib import Path

from claimlib.session import open_session
from claimlib.store.tables import Store
from tests.bench.check import Result, differ
from tests.bench.result import History
from tests.bench.store import make
from tests.cluster.standalone import bare_python, package_zip, standalone, submit
from tests.cluster.test_cluster import SWEEP, killing_a_worker_at

ROWS = 200_000


def play(folder: Path) -> int:
    """The exit code: 0 where the store is what the formula says."""
    where = folder / "store"
    spark = open_session()
    print(f"A store with {ROWS:,} pending entries, half of them due.")
    make(Store.init(spark, str(where)), ROWS)
    spark.stop()
    package, python = package_zip(folder / "claimlib.zip"), bare_python(folder)
    with standalone(workers=2) as cluster:
        print("A master and two workers run; spark-submit jobs/xautoclaim.py, and kill a worker")
        print("as the run is decided, and one as it is applied.")
        words = ("xautoclaim.py", str(where), *SWEEP)
        with submit(cluster, package, python, *words) as process:
            said = killing_a_worker_at(process, cluster, "decide", "apply")
    print(said)
    if process.returncode:
        return process.returncode
    spark = open_session()
    found = differ({"": Result(Store.open(spark, str(where)), History(ROWS))})
    spark.stop()
    for table, number in found.items():
        print(f"{table:<12} streams that differ from the formula: {number}")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sys.exit(play(Path(name)))
