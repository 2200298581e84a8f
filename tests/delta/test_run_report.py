"""The numbers of a report, against counts in Python of the rows of the tables."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from pathlib import Path

import pytest

from claimlib.commands import report_run as module
from claimlib.commands.maintain import maintain
from claimlib.commands.report_period import period_report
from claimlib.commands.report_run import MOST_GROUPS, run_report
from claimlib.commands.run_commands import RUN_COMMANDS
from claimlib.commands.undo import undo
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import RequestError
from claimlib.plans.run_report_plan import CHANGES, DELIVERIES, IDLE_MS
from claimlib.report.report_model import json_chunks
from claimlib.report.run_report import document, sections, verdict
from claimlib.report.run_report_html import as_html
from claimlib.report.run_report_prometheus import write_metrics
from claimlib.runs import Phase
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import append, delete, pending_row, update
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.server_groups import HOUR_MS, mirror, stall, sweep, write

STALLED_MS = 30_000
HTML_BYTES, JSON_BYTES = 64_000, 48_000
"""The most bytes of a report; docs/reports.md states the larger one."""


def pending_at(store, version):
    """The rows of `pending` at a version."""
    return store.relation("pending", version).collect()


def idle_of(store, rows, versions):
    """The idle time of each row at its group's snapshot."""
    groups = store.relation("groups", versions["groups"]).collect()
    at = {(row["stream"], row["consumer_group"]): row["snapshot_ms"] for row in groups}
    return [at[row["stream"], row["consumer_group"]] - row["delivery_time_ms"] for row in rows]


def expected(store, run):
    """Totals, balance and intervals of a run that no other writer has disturbed."""
    journal = store.relation("journal").where(f"run_seq = {run.run_seq}").collect()
    kinds = Counter(row["kind"] for row in journal)
    totals = {str(kind): kinds[kind] for kind in (*CHANGES, "lost")}
    intervals = {}
    for time, versions in (("before", run.input_versions), ("after", run.output_versions)):
        rows = pending_at(store, versions["pending"])
        idle = idle_of(store, rows, versions)
        counts = [row["delivery_count"] for row in rows]
        totals[f"pending_{time}"] = len(rows)
        totals[f"stalled_{time}"] = sum(ms >= STALLED_MS for ms in idle)
        totals[f"oldest_idle_ms_{time}"] = max((ms for ms in idle if ms >= 0), default=None)
        totals[f"highest_delivery_count_{time}"] = max(counts, default=None)
        totals[f"delivered_5_plus_{time}"] = sum(count >= 5 for count in counts)
        totals[f"delivered_10_plus_{time}"] = sum(count >= 10 for count in counts)
        stalled = {
            (row["stream"], row["consumer_group"])
            for row, ms in zip(rows, idle, strict=True)
            if ms >= STALLED_MS
        }
        totals[f"stalled_groups_{time}"] = len(stalled)
        of_idle = Counter(bisect_right(IDLE_MS, ms) for ms in idle)
        of_counts = Counter(bisect_right(DELIVERIES, count) for count in counts)
        intervals[time] = (
            [of_idle[at] for at in range(len(IDLE_MS) + 1)],
            [of_counts[at] for at in range(1, len(DELIVERIES) + 1)],
        )
    return totals, intervals


def check(store, name):
    """Compare a report with the tables, and return it."""
    report = run_report(store, name, stalled_ms=STALLED_MS)
    totals, intervals = expected(store, report.run)
    assert {key: report.totals[key] for key in totals} == totals
    for time, (idle, counts) in intervals.items():
        assert [of[time] for of in report.idle_ms] == idle
        assert [of[time] for of in report.delivery_counts] == counts
    sums = report.balance
    assert (sums["before"], sums["after"]) == (totals["pending_before"], totals["pending_after"])
    assert sums["before"] + sums["added"] - sums["removed"] == sums["after"]
    assert sums["by_others"] == 0
    for column in ("pending_before", "pending_after", "changed", "claimed", "lost"):
        of_groups = sum(row[column] for row in report.groups)
        assert of_groups + report.left_out(column) == report.totals[column]
    return report


def test_the_numbers_of_each_kind_of_run_are_those_of_the_tables(server, client, store):
    stall(client, "s", [f"{n}-0" for n in range(1, 8)], count=6)
    stall(client, "t", ["1-0", "2-0"], owner="eve", idle_ms=1000, count=12)
    client.xdel("s", "2-0")
    mirror(store, server)
    sweep(store)
    write(store, server)
    mirror(store, server)
    xack(store, [NamedAck(b"t", b"w", (StreamId(1, 0),))], run_id="a", to_write_back=True)
    undo(store, "a")
    reports = [check(store, str(number)) for number in range(1, 7)]
    of_runs = {report.run.command: report for report in reports}
    assert of_runs.keys() == {"snapshot", "xautoclaim", "writeback", "xack", "undo"}
    swept = of_runs["xautoclaim"]
    assert [(row["from_consumer"], row["consumer"], row["entries"]) for row in swept.transfers] == [
        ("bob", "alice", 6)
    ]
    assert swept.transfers_total == {"pairs": 1, "entries": 6}
    assert (swept.totals["claimed"], swept.totals["deleted"], swept.totals["groups"]) == (6, 1, 2)
    assert "1 of 2 groups was stalled before the run, 0 after it" in verdict(swept)
    assert verdict(swept).endswith("6 entries claimed, 1 deleted, 0 lost to other writers")
    assert of_runs["xack"].undone_by == of_runs["undo"].run.key
    assert not of_runs["xack"].can_be_undone
    assert swept.can_be_undone
    assert not of_runs["snapshot"].can_be_undone


def test_without_a_name_the_last_run_is_reported(store):
    with pytest.raises(RequestError, match="has no finished run, so there is nothing to report"):
        run_report(store)
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    for run_id in ("a", "b"):
        xautoclaim(store, SweepRequest(REQUEST), run_id=run_id)
    assert run_report(store).run.run_id == "b"
    assert run_report(store, "a").totals["changed"] == 6


def test_what_another_writer_changed_meanwhile_is_lost_and_no_transfer(store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)

    def interfere(phase, _):
        if phase == Phase.APPLY and not done:
            done.append(phase)
            update(store, "pending", "id_ms = 1", consumer="'other'")
            delete(store, "pending", "id_ms = 2")

    done = []
    xautoclaim(store, SweepRequest(REQUEST), run_id="r", progress=interfere)
    report = run_report(store)
    assert (report.totals["lost"], report.totals["claimed"]) == (1, 4)
    assert [row["entries"] for row in report.transfers] == [4]
    assert report.balance["by_others"] == -1
    assert "- 1 removed -1 by other writers = 8 after" in sections(report)[1].table.notes[0]
    assert verdict(report).endswith("4 entries claimed, 1 deleted, 1 lost to other writers")


def test_versions_that_can_no_longer_be_read_are_unknown_and_the_rest_is_told(store, monkeypatch):
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST), run_id="r")
    monkeypatch.setattr(module, "readable_at", lambda *_: None)
    report = run_report(store)
    assert report.balance is None
    assert not (report.knows("before"))
    assert not (report.knows("after"))
    assert report.totals["pending_before"] is report.groups[0]["stalled_after"] is None
    assert (report.totals["claimed"], report.totals["groups"]) == (10, 2)
    assert verdict(report).startswith("Run 1 (xautoclaim:r): 10 entries claimed, 2 deleted")
    titles = [section.table.title for section in sections(report)]
    assert "Idle times" not in titles
    assert "Worst groups" in titles
    assert "can no longer be read" in as_html(report)


def test_a_run_whose_journal_rows_are_deleted_has_its_counts(store, tmp_path):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST), run_id="r")
    maintain(store, run_id="m", keep_history_ms=0)
    report = run_report(store, "r")
    assert not (report.has_history)
    assert not (report.can_be_undone)
    assert verdict(report).endswith("5 entries claimed, 1 deleted, 0 lost to other writers")
    assert report.balance is None
    assert (report.totals["claimed"], report.totals["refused"]) == (None, None)
    assert {row["changed"] for row in report.groups} == {None}
    write_metrics(report, tmp_path / "metrics")
    metrics = (tmp_path / "metrics").read_text()
    assert "claimlib_pending_entries" in metrics
    assert "claimlib_run_entries" not in metrics
    assert verdict(run_report(store, "m")).endswith("No pending entry was changed")


def test_a_refused_group_comes_first_with_its_reason(store):
    write_keyspace(store, keyspace(b"a"), NOW_MS)
    write_keyspace(store, keyspace(b"unproven"), NOW_MS, proven=None)
    xautoclaim(store, SweepRequest(REQUEST), run_id="r")
    report = run_report(store)
    assert report.groups[0]["stream"] == "unproven"
    assert report.groups[0]["reason"] is not None
    assert report.totals["refused"] == 1
    assert verdict(report).endswith("1 refused")


def large_keyspace(number):
    """Groups whose entries are of ten ages, with owners of their own."""
    return {
        b"stream-%04d" % at: Stream(
            {StreamId(1, 0): (b"f", b"v")},
            {
                b"workers": Group(
                    StreamId(1, 0),
                    (PendingEntry(StreamId(1, 0), b"owner-%d" % at, NOW_MS - 10 ** (at % 10), at),),
                    (Consumer(b"owner-%d" % at, NOW_MS, None),),
                )
            },
        )
        for at in range(number)
    }


def test_a_report_on_2000_groups_is_small_and_counts_what_it_leaves_out(store):
    write_keyspace(store, large_keyspace(2000), NOW_MS)
    xautoclaim(store, SweepRequest(AutoclaimRequest(b"alice", 999)), run_id="r")
    report = check(store, "r")
    claimed = 2000 * 7 // 10  # idle for 1s or longer
    assert report.totals["claimed"] == claimed
    assert len(report.groups) == MOST_GROUPS
    (cut_off,) = sections(report)[0].table.notes
    assert cut_off == f"and 1,980 more groups: 1,980 pending, {claimed - MOST_GROUPS:,} changed"
    assert report.transfers_total == {"pairs": claimed, "entries": claimed}
    assert len(as_html(report).encode()) < HTML_BYTES
    assert len("".join(json_chunks(document(report))).encode()) < JSON_BYTES
    page = Path(__file__).parents[2].joinpath("docs", "reports.md").read_text(encoding="utf-8")
    assert f"{HTML_BYTES // 1000} kB" in page


def sweep_three_times(store):
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    for number, consumer in enumerate((b"alice", b"bob", b"alice")):
        now_ms = NOW_MS + number * HOUR_MS
        xautoclaim(store, SweepRequest(AutoclaimRequest(consumer, 1000)), now_ms=now_ms)
        append(store, "pending", *(pending_row("s", 100 + 10 * number + at) for at in range(3)))


def claimed_again(claims):
    """Return by run how many entries it claimed that an earlier run had claimed."""
    turns, again = Counter(), Counter()
    for row in sorted(claims, key=lambda row: row["run_seq"]):
        entry = (row["stream"], row["id_ms"])
        again[row["run_seq"]] += turns[entry] > 0
        turns[entry] += 1
    return again


def test_a_run_that_ended_outside_the_period_does_not_count(store):
    sweep_three_times(store)
    update(store, "runs", "run_seq = 2", ended_ms="1")
    report = period_report(store, 2)
    claims = store.relation("journal").where("kind = 'claimed' AND run_seq <> 2").collect()
    again = claimed_again(claims)
    assert [row["run_seq"] for row in report.runs] == [3, 1]
    assert report.totals["claimed_again"] == again.total() > 0
    taken = Counter(row["from_consumer"] for row in claims if row["stream"] == "s")
    for row in report.losing_consumers:
        assert row["entries"] <= taken[row["consumer"]]


def test_a_period_counts_what_its_runs_did_again_and_again(store):
    sweep_three_times(store)
    report = period_report(store, 0)
    journal = store.relation("journal").collect()
    claims = [row for row in journal if row["kind"] == "claimed"]
    again = claimed_again(claims)
    swept = [row for row in journal if row["kind"] == "swept"]
    for row in report.runs:
        seq = row["run_seq"]
        assert row["claimed"] == sum(claim["run_seq"] == seq for claim in claims)
        assert row["claimed_again"] == again[seq]
        assert row["pending"] == sum(of["pending_before"] for of in swept if of["run_seq"] == seq)
    assert [row["run_seq"] for row in report.runs] == [3, 2, 1]
    assert report.totals["claimed_again"] == again.total() > 0
    (worse,) = report.worse_groups
    first, last = (
        next(row["pending_before"] for row in swept if row["stream"] == "s" and row["run_seq"] == n)
        for n in (1, 3)
    )
    assert (worse["stream"], worse["pending_first"], worse["pending_last"]) == ("s", first, last)
    taken = Counter(
        (row["stream"], row["from_consumer"])
        for row in claims
        if row["from_consumer"] != row["consumer"]
    )
    for row in report.losing_consumers:
        assert row["entries"] == taken[row["stream"], row["consumer"]]
        assert row["runs"] > 1
    assert report.losing_consumers
    assert period_report(store, 0, 1).totals["runs"] == 0
    assert period_report(store, 0, 1).runs == []


def test_the_described_commands_are_those_of_their_modules():
    from claimlib.commands import reset_cursor, retire, undo, writeback, xack, xautoclaim, xclaim

    modules = (xautoclaim, xclaim, xack, retire, reset_cursor, undo, writeback)
    assert {of.COMMAND for of in modules} == RUN_COMMANDS.keys()
