"""The same tests over Spark Connect, as on Databricks serverless: a selection here, the tests of
most commands by `make test-connect`.

They run in a process of their own, whose SPARK_REMOTE has `open_session` start a Connect server: a
classic session and a remote one do not share a process.
"""

import re

import pytest

from tests.edge.processes import run_claimlib, run_python

pytestmark = pytest.mark.environment

_D = "tests/delta"
_NOTEBOOKS = "tests/edge/test_notebooks.py::test_a_notebook_runs_with_widgets_and_shows_what_it_did"
SELECTION = (
    "tests/spark/test_session.py",
    f"{_D}/test_xautoclaim.py::test_the_journal_says_who_got_what_when_and_why",
    f"{_D}/test_pages.py::test_an_explicit_start_wins_over_the_stored_cursor_and_replaces_it",
    f"{_D}/test_by_id.py",
    f"{_NOTEBOOKS}[04_recovery]",
    f"{_D}/test_xclaim.py::test_of_a_thousand_requests_one_of_which_is_bad_none_is_done",
    (
        f"{_D}/test_import.py::"
        "test_an_imported_store_is_swept_as_the_reference_does_at_the_given_instant"
    ),
    (
        f"{_D}/test_kills.py::"
        "test_killed_behind_its_decision_a_run_has_not_changed_pending_and_the_next_finishes_it"
    ),
    f"{_D}/test_snapshot.py::test_a_snapshot_of_some_groups_leaves_the_others_as_they_are",
    (
        f"{_D}/test_races.py::"
        "test_of_two_decisions_that_are_appended_at_the_same_time_one_wins_and_both_runs_finish"
    ),
)
LEAST = 11


def test_a_sweep_a_page_claims_by_id_a_snapshot_a_race_and_a_kill_pass_over_connect():
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not classic")
    done = run_python("-m", "pytest", *options, *SELECTION, timeout=1150, SPARK_REMOTE="local[2]")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert int(passed) >= LEAST
    assert "skipped" not in done.stdout


def test_a_command_over_connect_says_only_what_it_does(tmp_path):
    there = ("env", "-C", tmp_path)
    said = run_claimlib("init", "./store", before=there, SPARK_REMOTE="local[2]")
    assert said.returncode == 0, said.stderr
    lines = said.stderr.splitlines()
    assert lines[0] == "claimlib: starting Spark"
    assert all(line.startswith("claimlib: ") for line in lines), said.stderr
    assert (tmp_path / "store" / "pending" / "_delta_log").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]  # Spark has left nothing
