"""`make cluster-demo`: on a standalone cluster of two workers a snapshot of a real server, which is
compared with what the server says, and a sweep over made-up rows, of whose workers one is killed
while the sweep is decided and one while it is applied; then every row is compared with a formula.
"""

import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

from claimlib.session import open_session
from claimlib.store.tables import Store
from claimlib.testing.server_process import Server, valkey_server
from tests.bench import server as filling
from tests.bench.check import Result, differ
from tests.bench.data import GROUP, Shape
from tests.bench.result import History
from tests.bench.store import make
from tests.cluster.standalone import (
    bare_python,
    killing_workers,
    package_zip,
    standalone,
    submit,
)
from tests.cluster.test_cluster import SWEEP
from tests.delta.reading import query

ROWS = 200_000
ON_SERVER = 400


def play(folder: Path) -> int:
    """The exit code: 0 where the stores are what the server and the formula say."""
    swept, mirror = folder / "store", folder / "mirror"
    package, python = package_zip(folder / "claimlib.zip"), bare_python(folder)
    with valkey_server() as server:
        streams = _prepare(server, mirror, swept)
        with standalone(workers=2) as cluster:
            job = partial(submit, cluster, package, python)
            print("A master and two workers run; spark-submit jobs/snapshot.py.")
            with job("snapshot.py", server.url, str(mirror)) as reading:
                print(reading.communicate()[0])
            print("spark-submit jobs/xautoclaim.py, and kill a worker as the run is decided, and")
            print("one as it is applied.")
            with job("xautoclaim.py", str(swept), *SWEEP) as sweeping:
                print(killing_workers(sweeping, cluster, "decide", "apply"))
        if code := reading.returncode or sweeping.returncode:
            return code
        different = _by_server(server, streams, mirror) + _by_formula(swept)
    return 1 if different else 0


def _prepare(server: Server, mirror: Path, swept: Path) -> list[str]:
    """Fill a server and a store, and make an empty store; the server's streams."""
    spark = open_session()
    print(
        f"A server with {ON_SERVER} pending entries, and a store with {ROWS:,}, half of them due."
    )
    streams = filling.fill(spark, server, ON_SERVER, Shape(groups=8))
    Store.init(spark, str(mirror))
    make(Store.init(spark, str(swept)), ROWS)
    spark.stop()
    return streams


def _by_server(server: Server, streams: list[str], mirror: Path) -> int:
    """How many pending entries only the server has, or only the store, with this owner and this
    number of deliveries."""
    with server.client() as client:
        served = Counter(
            (stream, row["message_id"].decode(), row["consumer"].decode(), row["times_delivered"])
            for stream in streams
            for row in client.xpending_range(stream, GROUP, "-", "+", ON_SERVER)
        )
    columns = "stream, id_ms, id_seq, consumer, delivery_count"
    kept = Counter(
        (row["stream"], f"{row['id_ms']}-{row['id_seq']}", row["consumer"], row["delivery_count"])
        for row in query(mirror, "pending", f"SELECT {columns} FROM t")
    )
    different = (served - kept) + (kept - served)
    print(f"XPENDING names {served.total()} entries, the store {kept.total()}:", end=" ")
    print(f"{different.total()} differ")
    # A server that says nothing would agree with a store that has nothing.
    return different.total() + abs(served.total() - ON_SERVER)


def _by_formula(swept: Path) -> int:
    spark = open_session()
    differing = differ({"": Result(Store.open(spark, str(swept)), History(ROWS))})
    spark.stop()
    for table, number in differing.items():
        print(f"{table:<12} streams that differ from the formula: {number}")
    return sum(differing.values())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sys.exit(play(Path(name)))
