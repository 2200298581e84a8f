"""`claimlib maintain` as a user types it."""

from __future__ import annotations

import json

import pytest

from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, keyspace

SWEEP = ("--consumer", "alice", "--min-idle", "1s")


@pytest.fixture
def swept(claimlib, store):
    """A store with one sweep."""
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    assert claimlib("xautoclaim", store.where, *SWEEP, "--run-id", "r").code == 0
    return store.where


def test_a_dry_run_says_what_would_be_lost_and_a_run_what_was(claimlib, swept):
    shown = claimlib("maintain", swept, "--dry-run", "--keep-history", "0ms")
    assert shown.code == 0
    assert shown.out.startswith("Maintenance, dry run: what it would do; nothing was written\n")
    lost = (
        "the journal rows of all runs up to run 1 would be deleted. These runs could no longer be"
        " undone, written back or listed in detail, and the history of entries would begin with"
        " run 2."
    )
    assert lost in shown.out
    said = claimlib("maintain", swept, "--keep-history", "0ms", "--run-id", "m")
    assert said.code == 0
    assert said.out.startswith("Maintenance, run 2 (maintain:m)\n")
    assert "the journal rows of all runs up to run 1 were deleted" in said.out
    assert claimlib("check", swept, "--replay").code == 0

    run = claimlib("runs", swept, "maintain:m").out
    assert "the last run whose journal rows were deleted" in run
    assert "files of this table before the run" in run


def test_what_needs_deleted_rows_is_refused_with_what_is_known(claimlib, swept):
    assert claimlib("maintain", swept, "--keep-history", "0ms", "--run-id", "m").code == 0
    for words in (("undo", swept, "r"), ("runs", swept, "r", "--claimed")):
        refused = claimlib(*words)
        assert refused.code == 2
        assert "run xautoclaim:r cannot be " in refused.err
        assert "run 2 (maintain:m) deleted its journal rows" in refused.err
        assert f"claimlib runs {swept} 1" in refused.err
    assert claimlib("runs", swept, "r").code == 0
    history = claimlib("entry", swept, "s", "1-0")
    assert history.code == 0
    assert "the history is complete from run 2 on: run 2 (maintain:m) deleted" in history.out
    of_consumer = claimlib("entry", swept, "--consumer", "alice", "--output", "json")
    assert json.loads(of_consumer.out)["complete_from_run"] == 2
    again = claimlib("xautoclaim", swept, *SWEEP, "--run-id", "r")
    assert again.code == 0
    assert "only its counts are shown" in again.err
    undone = claimlib("undo", swept, "maintain:m")
    assert undone.code == 2
    assert "rows that it deleted cannot be restored" in undone.err


def test_each_output_has_a_row_per_table(claimlib, swept):
    words = ("maintain", swept, "--run-id", "m", "--no-vacuum")
    document = json.loads(claimlib(*words, "--output", "json").out)
    assert (document["run_seq"], document["is_repeat"], document["dry_run"]) == (2, False, False)
    journal = next(row for row in document["tables"] if row["table"] == "journal")
    assert journal["files_compacted"] == 0, "a file of each of its two buckets"
    lines = claimlib(*words, "--output", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == document["tables"]
    csv = claimlib(*words, "--output", "csv", "--columns", "table,files_after").out.splitlines()
    assert csv[0] == "table,files_after"
    assert len(csv) == 12


def test_a_duration_without_a_unit_is_refused_before_anything_is_done(claimlib, swept):
    refused = claimlib("maintain", swept, "--keep-history", "90")
    assert refused.code == 2
    assert "'90' has no unit" in refused.err


def test_the_job_is_the_command(job, swept):
    said = job("maintain", swept, "--dry-run")
    assert said.code == 0
    assert said.out.startswith("Maintenance, dry run")


def test_a_repeat_of_a_run_that_refused_groups_ends_with_6_also_without_its_history(
    claimlib, store
):
    write_keyspace(store, keyspace(b"s"), NOW_MS, proven=None)
    words = ("xautoclaim", store.where, *SWEEP, "--run-id", "r")
    first = claimlib(*words)
    assert (first.code, "refused: s / g: " in first.err) == (6, True)
    assert claimlib("maintain", store.where, "--keep-history", "0ms").code == 0
    again = claimlib(*words)
    assert (again.code, "refused: 1 (maintain has deleted their names)" in again.err) == (6, True)
