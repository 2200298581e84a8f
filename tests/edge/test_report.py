import json
from dataclasses import replace

import pytest

from claimlib.commands.imports import ImportReply
from claimlib.commands.mirror import CLAIMS_REPLACED, NamedStreams
from claimlib.commands.runs import RunList
from claimlib.commands.snapshot import SnapshotReply
from claimlib.report import mirror_report as mirror
from claimlib.report import render
from claimlib.report import report_model as model
from claimlib.report import runs_report as runs
from claimlib.report.text import not_shown
from claimlib.runs import FinishedRun

RUN = FinishedRun(
    run_seq=7,
    run_id="nightly\x1b[2J",
    command="xautoclaim",
    request='{"consumer": "c"}',
    request_hash="h",
    now_ms=None,
    source=None,
    server_run_id=None,
    replication_id=None,
    input_versions={"pending": 1},
    output_versions={"pending": 2},
    counts={"claimed": 12_345, "deleted": 0},
    phase_ms={"decide": 61_001, "apply": 3_600_000, "verify": 1_999, "finish": 7},
    began_ms=1_750_000_000_000,
    ended_ms=1_750_000_061_001,
    software_version="0",
    engine="spark",
)


def test_text_is_aligned_and_numbers_stand_to_the_right():
    text = model.as_text(
        runs.report_of_runs("store", RunList((RUN, replace(RUN, counts={})), 2, ()))
    )
    title, head, rule, *rows = text.splitlines()
    assert title == "Runs of store"
    assert head.startswith("run  key")
    assert set(rule) == {"-", " "}
    assert [row[head.index("claimed") :][:7] for row in rows] == [" 12,345", "      -"]


def test_the_number_of_a_run_is_shown_as_it_can_be_given():
    many = replace(RUN, run_seq=12_345, counts={"claimed": 1_234})
    first = replace(many, run_seq=7)
    report = runs.report_of_runs("store", RunList((many, first), 2, ()))
    _, head, _, *rows = model.as_text(report).splitlines()
    assert [row[:6] for row in rows] == ["12345 ", "    7 "]
    claimed = head.index("claimed")
    assert [row[claimed : claimed + 7] for row in rows] == ["  1,234", "  1,234"]
    on_terminal = {column.heading: column.texts for column in render.columns_of(report)}
    assert on_terminal["run"] == ("12345", "7")


@pytest.mark.parametrize("name", ["request", "request_number"])
def test_the_number_of_a_request_has_no_commas_either(name):
    report = model.Report("x", {name: "request", "claimed": "claimed"}, ((1234, 1234),), (), {}, [])
    assert model.as_text(report).splitlines()[-1].split() == ["1234", "1,234"]


def test_what_would_move_a_terminals_cursor_is_written_out():
    text = model.as_text(runs.report_of_runs("store", RunList((RUN,), 1, ())))
    assert "\x1b" not in text
    assert r"xautoclaim:nightly\u001b[2J" in text


def test_runs_that_are_not_shown_are_counted():
    some = runs.report_of_runs("store", RunList((RUN,), 1001, ()))
    assert some.cut_off == ("1,000 more runs not shown; use --limit to show more",)
    all_but_one = runs.report_of_runs("store", RunList((RUN,), 2, ()))
    assert all_but_one.cut_off == ("1 more run not shown; use --limit to show more",)
    assert some.document["runs_not_shown"] == 1000
    assert runs.report_of_runs("store", RunList((), 0, ())).notes == ("no run yet",)


def test_people_read_two_units_and_programs_milliseconds():
    report = runs.report_of_run(RUN)
    took = {what: value for what, value, _ in report.rows if what.endswith(" took")}
    assert list(took.values()) == ["1m1s", "1h0m", "1s", "7ms"]
    assert ("began", "2025-06-15T15:06:40.000Z", "") in report.rows
    document = json.loads("".join(model.json_chunks(report.document)))
    assert document["phase_ms"]["decide"] == 61_001
    assert document["ended_ms"] - document["began_ms"] == 61_001
    assert document["request"] == {"consumer": "c"}


def test_a_snapshot_shows_what_was_read_first_and_other_counts_only_if_not_0():
    counts = {"vanished": 0, "gone": 2, "streams": 3, "groups": 4, "pending_read": 5}
    rows = mirror.report_of_snapshot(SnapshotReply("r", 1, False, "h:1/0", counts)).rows
    assert rows == (
        ("streams", 3),
        ("groups", 4),
        ("pending entries read", 5),
        ("stream entries read", 0),
        ("pending entries written (new or changed)", 0),
        ("rows removed, by this run or by another writer", 2),
    )


def test_counts_are_called_what_they_are():
    snapshot = mirror.report_of_snapshot(SnapshotReply("r", 1, False, "h:1/0", {"commands": 7}))
    assert ("commands sent to the server", 7) in snapshot.rows
    counts = {"groups_without_instant": 2, "streams_without_proof": 1}
    imported = mirror.report_of_import(ImportReply("r", 1, False, "s", counts))
    assert imported.rows[-2:] == (
        ("groups without a snapshot time", 2),
        ("streams that may be incomplete", 1),
    )


def test_at_the_most_that_a_report_lists_no_higher_limit_is_advised():
    most = model.MOST_ROWS
    (said,) = not_shown(5, "entry", "entries", shown=most)
    assert said == (
        "5 more entries not shown: a table has at most 100,000 rows;"
        " --output json, csv or jsonl has all"
    )
    assert list(not_shown(5, "row", shown=most - 1)) == [
        "5 more rows not shown; use --limit to show more"
    ]
    assert list(not_shown(0, "row", shown=most)) == []
    shown = runs.report_of_runs("store", RunList((RUN,) * most, most + 1, ()))
    assert shown.cut_off[0].startswith("1 more run not shown: a table has at most")


def test_the_advice_about_overwritten_claims_names_the_writeback():
    counts = {CLAIMS_REPLACED: 1}
    (note,) = mirror.report_of_snapshot(SnapshotReply("r", 1, False, "h:1/0", counts)).notes
    assert note.endswith(": claimlib writeback STORE RUN URL")
    (note,) = mirror.report_of_import(ImportReply("r", 1, False, "given", counts)).notes
    assert note.endswith(". Write claims back to your tables before you import again")


def test_a_run_that_is_decided_and_not_finished_is_named():
    assert runs.report_of_runs("store", RunList((), 0, ("xautoclaim:a",))).notes == (
        "no run yet",
        (
            "xautoclaim:a is unfinished: its decision was written, and the next run on this store"
            " finishes it first"
        ),
    )


def test_json_says_how_many_streams_are_not_named():
    streams = NamedStreams(("a", "b"), ("c",), replaced_count=4)
    counts = {"stream_removed": 7}
    document = mirror.report_of_snapshot(
        SnapshotReply("r", 1, False, "h:1/0", counts, streams)
    ).document
    assert document["streams_removed_not_shown"] == 5
    assert document["streams_replaced_not_shown"] == 3
