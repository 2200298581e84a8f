"""What the benchmark's runs leave is what its formulas say, and one changed row is seen."""

import json
import time

import pytest

from claimlib.commands.xautoclaim import xautoclaim
from claimlib.store.tables import Store
from claimlib.testing.server_process import valkey_server
from tests.bench import __main__ as bench
from tests.bench import check, claims, cold, data, flat, load, rivals, server
from tests.bench.check import CHECKED, Result
from tests.bench.result import History
from tests.bench.store import SWEEP, Watch, make, sweep
from tests.bench.writeback import measure
from tests.edge.processes import run_python

PARTS = ("page", "page of an empty store", "page of 2000 rows")
OF_BOTH = [f"{table} {name}" for name in ("of the sweep", "of xclaim") for table in CHECKED]
# What XCLAIM neither purges nor keeps, and a sweep without a cursor does not keep either.
EMPTY = {"tombstones of xclaim", "cursors of xclaim", "cursors of the sweep"}


def test_a_phase_that_is_told_with_several_details_is_measured_as_one():
    def work(tell):
        for phase in ("begin", "decide", "decide", "apply", "decide"):
            tell(phase, "")
            time.sleep(0.05)

    watch = Watch()
    watch.run("sweep", work)
    took = watch.phases["sweep"]
    assert [*took] == ["begin", "decide", "apply"]
    assert took["decide"] >= 0.15


@pytest.mark.long
def test_a_page_and_a_sweep_leave_what_the_formulas_say_and_a_spoilt_row_is_seen(store):
    make(store, 2000)
    for request in (bench.PAGE, SWEEP):
        xautoclaim(store, request)
    results = {"": Result(store, History(2000, pages=1))}
    assert check.differ(results) == dict.fromkeys(CHECKED, 0)
    for table in CHECKED:
        check.spoil(store, table)
    assert check.differ(results) == dict.fromkeys(CHECKED, 1)


@pytest.mark.long
def test_xclaim_leaves_what_the_formulas_say_and_so_does_the_sweep_beside_it(spark, tmp_path):
    watch = Watch()
    results = claims.compared(spark, str(tmp_path), 2000, watch)
    assert watch.spans.keys() >= {"sweep", "xclaim", "xpending", "xpending of a group"}
    assert check.differ(results) == dict.fromkeys(OF_BOTH, 0)
    for result in results.values():
        for table in CHECKED:
            check.spoil(result.store, table)
    assert check.differ(results) == {of: int(of not in EMPTY) for of in OF_BOTH}


@pytest.mark.long
def test_an_import_leaves_what_plain_sql_does_and_a_snapshot_as_many_rows(spark, tmp_path):
    measured = load.run(spark, str(tmp_path), 2000, Watch(), data="half", times=1)
    assert measured.differ == {"pending": 0, "entries": 0}
    assert measured.document["times the floor"].keys() == {"import", "snapshot"}
    stores = {name: Store.open(spark, f"{tmp_path}/{name}") for name in ("import", "floor")}
    check.spoil(stores["floor"], "pending")
    assert load._differ(stores, "pending") == 1
    mirror = Store.open(spark, f"{tmp_path}/snapshot")
    assert [mirror.read(name).count() for name in ("pending", "entries")] == [2000, 2000]


@pytest.mark.long
def test_a_job_by_spark_submit_is_compared_with_one_that_does_next_to_nothing(spark, tmp_path):
    measured = cold.run(spark, str(tmp_path), 2000, Watch(), data="half", times=1)
    assert measured.document["ratio"] > 1
    written = spark.read.format("delta").load(f"{tmp_path}/written")
    assert written.count() == 2


@pytest.mark.long
def test_run_after_run_is_compared_from_its_beginning_to_its_end(spark, tmp_path):
    watch = Watch()
    measured = flat.run(spark, str(tmp_path), 2000, watch, data="half", times=2)
    seconds = measured.document["seconds"]
    first, last = (watch.spans[f"sweep {n}"] for n in (flat._WARM_UP, flat._WARM_UP + 1))
    assert seconds["first 1 of sweep"] == round((first[1] - first[0]) / 1000, 2)
    assert seconds["last 1 of sweep"] == round((last[1] - last[0]) / 1000, 2)
    assert Store.open(spark, f"{tmp_path}/store").read("runs").count() == flat._WARM_UP + 2


@pytest.mark.long
@pytest.mark.parametrize("data", data.SHAPES)
def test_plain_sql_and_duckdb_say_what_the_sweep_does_and_a_row_that_differs_is_seen(
    spark, tmp_path, data
):
    measured = rivals.run(spark, str(tmp_path), 2000, Watch(), data=data, times=1)
    assert check.differ(measured.results) == dict.fromkeys(CHECKED, 0)
    of = ("journal of the floor", "journal of duckdb", "pending of duckdb")
    assert measured.differ == dict.fromkeys((*of, "replies of the server"), 0)
    assert measured.document["seconds"].keys() == {
        *(rivals.OURS, rivals.FLOOR, rivals.DUCKDB, rivals.UNIT),
        rivals.SERVER,
    }
    table = rivals.markdown(measured.document)
    assert "| floor |" in table
    assert "| - decide |" in table
    store = measured.results[""].store
    for table in ("journal", "pending"):
        check.spoil(store, table)
    assert rivals._differ(spark, store, str(tmp_path)) == dict.fromkeys(of, 1)


@pytest.mark.long
def test_a_loop_of_the_server_that_says_something_else_is_seen(spark, tmp_path):
    shape = data.Shape(groups=2)
    store = Store.init(spark, str(tmp_path / "store"))
    make(store, 200, shape)
    sweep(store, lambda *_: None)
    with valkey_server() as valkey:
        streams = server.fill(spark, valkey, 200, shape)
        claimed = server.claim_all(valkey, streams)
    assert server.differing(store, claimed) == 0
    claimed.add("claimed", streams[0], [b"5-0"])
    assert server.differing(store, claimed) == 1


@pytest.mark.long
def test_a_spoilt_row_ends_it_with_1_and_its_line_says_what_was_measured():
    # Of 2,000 rows Spark would read none.
    document = run_bench("--rows", "60000", "--flip", "tombstones", exit_code=1)
    assert document["differ"] == dict.fromkeys(CHECKED, 0) | {"tombstones": 1}
    assert document["counts"]["claimed"] > 700
    assert {"init", "make rows", "sweep", *PARTS} == document["seconds"].keys()
    assert {"sweep", *PARTS} == document["seconds_by_phase"].keys()
    assert all(peak > 0 for peak in document["peak_mib"].values())
    read = document["read"]
    assert read["page of an empty store"]["files"] < read["page"]["files"] < read["sweep"]["files"]
    assert read["sweep"]["read_mib"] > 0


@pytest.mark.long
def test_where_nothing_differs_it_ends_with_0():
    document = run_bench("--shape", "claims", exit_code=0)
    assert document["differ"] == dict.fromkeys(OF_BOTH, 0)
    assert document["xclaim_of_sweep"] > 0


def run_bench(*options, exit_code):
    """What `make bench` prints, by default about 2,000 rows."""
    module = ("-m", "tests.bench", "--rows", "2000")
    ended = run_python(*module, *options, timeout=500)
    assert ended.returncode == exit_code, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.long
def test_a_million_entries_are_written_back_and_other_clients_get_their_turn(tmp_path):
    document = measure(1_000_000, 1, tmp_path)  # it checks that all of them are moved
    seconds = document["seconds"]
    parts = sum(seconds[name] for name in ("snapshot", "sweep", "writeback"))
    assert seconds["rescue"] <= 2 * parts
    assert document["script_ms"]["writeback"] < 20
