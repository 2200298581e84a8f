"""The benchmark's answer comes from its formula, and one changed row is seen."""

import json

import pytest
from processes import run_python

from claimlib.testing import bench, bench_claims
from claimlib.testing.bench_store import Watch

PARTS = ("page", "page of an empty store", "page of 2000 rows")


@pytest.mark.long
def test_the_result_is_the_formulas(spark, tmp_path):
    document = bench.run(spark, str(tmp_path), 2000, Watch(), flip=False)
    assert document["streams_that_differ"] == 0
    assert document["counts"]["claimed"] > 700
    assert {"init", "make rows", "sweep", *PARTS} == document["seconds"].keys()
    assert {"sweep", *PARTS} == document["seconds_by_phase"].keys()
    assert all(peak > 0 for peak in document["peak_mib"].values())


@pytest.mark.long
def test_xclaim_leaves_what_the_formula_says_and_so_does_the_sweep_beside_it(spark, tmp_path):
    document = bench_claims.run(spark, str(tmp_path), 2000, Watch(), flip=False)
    assert document["streams_that_differ"] == 0
    assert document["seconds"].keys() >= {"sweep", "xclaim", "xpending", "xpending of a group"}
    spoilt = bench_claims.run(spark, str(tmp_path / "spoilt"), 2000, Watch(), flip=True)
    assert spoilt["streams_that_differ"] == 1


@pytest.mark.long
def test_one_changed_row_ends_it_with_1_and_its_line_says_what_was_read():
    ended = run_python("-m", "claimlib.testing.bench", "--rows", "2000", "--flip", timeout=500)
    assert ended.returncode == 1, ended.stderr
    document = json.loads(ended.stdout)
    assert document["streams_that_differ"] == 1
    read = document["read"]
    assert read["page of an empty store"]["files"] < read["page"]["files"] < read["sweep"]["files"]
    assert read["sweep"]["read_mib"] > 0
