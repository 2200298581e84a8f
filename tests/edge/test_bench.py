"""What the benchmark's runs leave is what its formulas say, and one changed row is seen."""

import json

import pytest
from processes import run_python

from claimlib.commands.xautoclaim import xautoclaim
from claimlib.store import Store
from claimlib.testing import (
    bench,
    bench_check,
    bench_claims,
    bench_data,
    bench_repeat,
    bench_rivals,
    bench_server,
    bench_store,
)
from claimlib.testing.bench_check import CHECKED, Result
from claimlib.testing.bench_result import History
from claimlib.testing.bench_store import Watch
from claimlib.testing.server import valkey_server

PARTS = ("page", "page of an empty store", "page of 2000 rows")
OF_BOTH = [f"{table} {name}" for name in ("of the sweep", "of xclaim") for table in CHECKED]
# What XCLAIM neither purges nor keeps, and a sweep without a cursor does not keep either.
EMPTY = {"tombstones of xclaim", "cursors of xclaim", "cursors of the sweep"}


def test_a_page_and_a_sweep_leave_what_the_formulas_say_and_a_spoilt_row_is_seen(store):
    bench_store.make(store, 2000)
    for request in (bench.PAGE, bench_store.SWEEP):
        xautoclaim(store, request)
    results = {"": Result(store, History(2000, pages=1))}
    assert bench_check.differ(results) == dict.fromkeys(CHECKED, 0)
    for table in CHECKED:
        bench_check.spoil(store, table)
    assert bench_check.differ(results) == dict.fromkeys(CHECKED, 1)


@pytest.mark.long
def test_xclaim_leaves_what_the_formulas_say_and_so_does_the_sweep_beside_it(spark, tmp_path):
    watch = Watch()
    results = bench_claims.compared(spark, str(tmp_path), 2000, watch)
    assert watch.spans.keys() >= {"sweep", "xclaim", "xpending", "xpending of a group"}
    assert bench_check.differ(results) == dict.fromkeys(OF_BOTH, 0)
    for result in results.values():
        for table in CHECKED:
            bench_check.spoil(result.store, table)
    assert bench_check.differ(results) == {of: int(of not in EMPTY) for of in OF_BOTH}


@pytest.mark.long
@pytest.mark.parametrize("data", bench_data.SHAPES)
def test_plain_sql_and_duckdb_say_what_the_sweep_does_and_a_row_that_differs_is_seen(
    spark, tmp_path, data
):
    measured = bench_rivals.run(spark, str(tmp_path), 2000, Watch(), data=data, times=1)
    assert bench_check.differ(measured.results) == dict.fromkeys(CHECKED, 0)
    of = ("journal of the floor", "journal of duckdb", "pending of duckdb")
    assert measured.differ == dict.fromkeys((*of, "replies of the server"), 0)
    assert measured.document["seconds"].keys() == {
        *(bench_rivals.OURS, bench_rivals.FLOOR, bench_rivals.DUCKDB, bench_rivals.UNIT),
        bench_rivals.SERVER,
    }
    table = bench_rivals.markdown(measured.document)
    assert "| floor |" in table
    assert "| - decide |" in table
    store = measured.results[""].store
    for table in ("journal", "pending"):
        bench_check.spoil(store, table)
    assert bench_rivals._differ(spark, store, str(tmp_path)) == dict.fromkeys(of, 1)


@pytest.mark.long
def test_a_loop_of_the_server_that_says_something_else_is_seen(spark, tmp_path):
    shape = bench_data.Shape(groups=2)
    store = Store.init(spark, str(tmp_path / "store"))
    bench_store.make(store, 200, shape)
    bench_store.sweep(store, lambda *_: None)
    with valkey_server() as server:
        streams = bench_server.fill(spark, server, 200, shape)
        found = bench_server.claim_all(server, streams)
    assert bench_server.differing(store, found) == 0
    found.add("claimed", streams[0], [b"5-0"])
    assert bench_server.differing(store, found) == 1


@pytest.mark.long
@pytest.mark.parametrize("data", ["quiet", "old"])
def test_an_incremental_sweep_leaves_what_a_full_one_leaves(spark, tmp_path, monkeypatch, data):
    monkeypatch.setattr("claimlib.store.FEW_ROWS", 0)
    measured = bench_repeat.run(spark, str(tmp_path), 20_000, Watch(), data=data, times=1)
    assert measured.differ == dict.fromkeys(("journal", "pending", "tombstones"), 0)


@pytest.mark.long
def test_a_spoilt_row_ends_it_with_1_and_its_line_says_what_was_measured():
    document = run_bench("--flip", "tombstones", exit_code=1)
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
    """What `make bench` prints about 2,000 rows."""
    module = ("-m", "claimlib.testing.bench", "--rows", "2000")
    ended = run_python(*module, *options, timeout=500)
    assert ended.returncode == exit_code, ended.stderr
    return json.loads(ended.stdout)
