"""`claimlib advise` as a user types it."""

from __future__ import annotations

import json
import shutil
from csv import DictReader

import pytest

from claimlib.commands.advise import (
    DEFAULT_GROUPS,
    DEFAULT_MAX_DONE_TWICE,
    DEFAULT_MIN_IDLES_MS,
)
from claimlib.demo.demo_series import write_series
from claimlib.times import format_duration_ms
from tests.edge.processes import run_claimlib
from tests.edge.test_run_report import fields_in, paths_in

NOW_MS = 1_767_268_800_000


@pytest.fixture(scope="module")
def series(empty_store, open_store, tmp_path_factory):
    """The folder of a store with the sample series.  No test changes it."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("series") / "store")
    write_series(open_store(where), NOW_MS)
    return where


def test_the_report_begins_with_the_recommended_value(claimlib, series):
    said = claimlib("advise", series)
    assert said.code == 0
    assert said.out.startswith(
        "min-idle 1h30m is recommended for all groups together (48 snapshots): it would have"
        " claimed 66 entries, and the work of 5 (8%) would have been done twice."
        " The others had waited for 1h37m (median). 27 of these entries were still"
        " pending at the last snapshot\n"
    )
    assert "\norders  billing         2h " in said.out
    assert "\nAll groups together\n" in said.out


def test_without_a_fitting_value_none_is_recommended(claimlib, series):
    said = claimlib("advise", series, "--min-idle", "15m", "--min-idle", "1m")
    assert said.out.startswith("No min-idle is recommended for all groups together")
    assert "\norders  billing         none " in said.out
    fits = claimlib("advise", series, "--min-idle", "15m", "--max-done-twice", "0.6")
    assert "min-idle 15m is recommended" in fits.out
    nothing = claimlib("advise", series, "--min-idle", "99h")
    assert nothing.out.startswith("No entry was idle for longer than 4d3h at 48 snapshots\n")


def test_programs_get_the_same_rows_as_document_and_as_csv(claimlib, series):
    document = json.loads(claimlib("advise", series, "--output", "json", "--limit", "1").out)
    assert document["not_shown"] == 1
    said = claimlib("advise", series, "--output", "csv", "--limit", "1")
    assert "1 more group" in said.err
    rows = list(DictReader(said.out.splitlines()))
    assert [row["claimed"] for row in rows] == [str(row["claimed"]) for row in document["groups"]]
    (best,) = (row for row in rows if row["recommended"] == "true")
    assert (best["stream"], best["min_idle_ms"]) == ("orders", "7200000")


def test_the_columns_of_a_table_are_those_of_groups(claimlib, series):
    said = claimlib("advise", series, "--columns", "stream,recommended")
    assert (said.code, said.out) == (2, "")
    said = claimlib("advise", series, "--columns", "stream,recommended", "--output", "csv")
    assert said.code == 0


def test_the_page_explains_each_field_of_the_document(claimlib, series):
    document = json.loads(claimlib("advise", series, "--output", "json").out)
    assert fields_in("## JSON", 2) == paths_in(document)


def test_the_help_names_the_defaults(claimlib):
    shown = " ".join(claimlib("advise", "--help").out.replace("│", " ").split())
    values = " ".join(map(format_duration_ms, DEFAULT_MIN_IDLES_MS))
    for default in (values, f"{DEFAULT_MAX_DONE_TWICE:g}", str(DEFAULT_GROUPS)):
        assert f"[default: {default}]" in shown


def test_since_counts_from_now_and_a_store_without_snapshots_is_refused(claimlib, series):
    said = claimlib("advise", series, "--since", "1h")  # the sample is older
    assert said.code == 2
    assert "run claimlib snapshot regularly" in said.err


def test_no_java_is_needed(series):
    done = run_claimlib("advise", series, "--output", "json", JAVA_HOME="/nowhere")
    assert json.loads(done.stdout)["snapshots"] == 48
