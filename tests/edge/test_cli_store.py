"""The command line on a store: what it prints, and how it ends."""

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from claimlib.commands.runs import find_run
from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry, RemovalLimits
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import append, pending_row
from tests.delta.snapshots import source

NOW_MS = 1_750_000_000_000
SWEEP = ("--consumer", "c", "--min-idle", "1m")


def _group(*idle_ms):
    """A group whose entries 1-0, 2-0, … have been idle for so long."""
    entries = (
        PendingEntry(StreamId(n, 0), b"dead", NOW_MS - ms, 3) for n, ms in enumerate(idle_ms, 1)
    )
    return Group(StreamId(9, 0), tuple(entries), (Consumer(b"dead", NOW_MS, None),))


@pytest.fixture
def stalled(store):
    """A store with a group in which one entry is due, one gone, one left; and one without proof."""
    group = _group(90_000, 90_000, 5)
    kept = {StreamId(n, 0): (b"f", b"\xff") for n in (1, 3)}
    write_keyspace(store, {b"orders": Stream(kept, {b"g\n": group})}, NOW_MS)
    write_keyspace(store, {b"unproven": Stream({}, {b"g": _group(90_000)})}, NOW_MS, proven=None)
    return store.where


@pytest.mark.usefixtures("spark")  # a session that is there is used
def test_a_run_is_shown_refusals_are_named_and_the_run_can_be_looked_up(claimlib, stalled):
    words = ("xautoclaim", stalled, *SWEEP, "--run-id", "r", "--output", "json")
    said = claimlib(*words)
    assert said.code == 6
    *phases, refused = said.err.splitlines()
    assert refused.startswith("claimlib: refused: unproven / g: ")
    assert phases == [
        f"claimlib: {phase}"
        for phase in (
            *("recover", "begin"),
            *("decide · run 1", "apply · run 1 · 2 rows to write"),
            *(f"{name} · run 1" for name in ("verify", "record", "finish")),
        )
    ]
    document = json.loads(said.out)
    assert document["totals"] == {
        "pending_before": 4,
        "pending_after": 3,
        "claimed": 1,
        "deleted": 1,
        "lost": 0,
        "at_boundary": 0,
        "oldest_idle_ms": 90_000,
        "highest_delivery_count": 3,
    }
    assert [group["status"] for group in document["groups"]] == ["refused", "swept"]
    again = claimlib(*words)
    assert document["is_repeat"] is False
    assert json.loads(again.out) == document | {"is_repeat": True}
    assert "finish · run 1 was already done: nothing is changed" in again.err
    quiet = claimlib(*words[:-2], "--quiet")
    assert quiet.out.splitlines()[-1] == "run 1 was already done: nothing was changed"

    listed = claimlib("runs", stalled).out
    assert "xautoclaim:r" in listed
    entries = claimlib("runs", stalled, "xautoclaim:r", "--claimed", "--output", "json").out
    (claimed,) = json.loads(entries)["claimed"]
    assert (claimed["id"], claimed["consumer"], claimed["fields"]) == ("1-0", "c", [["f", r"\xff"]])
    (deleted,) = json.loads(claimlib("runs", stalled, "1", "--deleted", "--output", "json").out)[
        "deleted"
    ]
    assert deleted["id"] == "2-0"
    assert claimlib("runs", stalled, "xautoclaim:other").code == 2
    assert claimlib(*words, "--justid").code == 2


def test_a_check_that_finds_what_makes_groups_be_refused_ends_with_4(claimlib, stalled):
    said = claimlib("check", stalled, "--output", "json")
    assert said.code == 4
    problems = json.loads(said.out)["problems"]
    assert [(problem["table"], problem["refuses"], problem["count"]) for problem in problems] == [
        ("pending", True, 1),
        ("streams", False, 1),
    ]
    assert "1 problem makes a sweep refuse groups" in claimlib("check", stalled).out


@pytest.mark.parametrize("count", [2, 1_000_000])
def test_a_page_of_a_group_says_how_many_entries_are_left_and_where_the_next_begins(
    claimlib, stalled, monkeypatch, count
):
    monkeypatch.setattr("claimlib.cli.reading_commands.MOST_ROWS", 2)
    words = ("xpending", stalled, "orders", "g\n", "--count", count)
    said = claimlib(*words)
    assert said.code == 0
    *_, last, note = said.out.splitlines()
    assert last.startswith("2-0")
    assert note == "2 of 3 entries shown; --start '(2-0' shows the next"
    rest = json.loads(claimlib(*words, "--start", "(2-0", "--output", "json").out)
    assert [row["id"] for row in rest["rows"]] == ["3-0"]
    assert (rest["rows_not_shown"], rest["next_start"]) == (0, None)
    refused = claimlib(*words, "--limit", "7")
    assert (refused.code, refused.out) == (2, "")
    assert "--count says how many entries of one group to show" in refused.err


@pytest.mark.parametrize("command", ["runs", "xpending", "xautoclaim", "xclaim", "xack", "retire"])
def test_no_report_has_more_rows_than_can_be_printed(claimlib, job, command):
    words = {
        "xautoclaim": ("--consumer", "c", "--min-idle", "1h"),
        "xclaim": ("s", "g", "c", "1-0", "--min-idle", "1h"),
        "xack": ("s", "g", "1-0"),
        "retire": ("s", "g", "c", "--to", "d"),
    }.get(command, ())
    for run in (claimlib, job):
        for limit in ("0", "100001", "many"):
            said = run(command, "store", *words, "--limit", limit)
            assert (said.code, said.out) == (2, "")
            assert "--limit" in said.err
        said = run(command, "store", *words, "--limit", "100001")
        assert "a table has at most 100,000 rows; --output json, csv or jsonl has all" in said.err


def test_a_dry_run_shows_the_worst_groups_first_and_counts_what_it_does_not_show(claimlib, stalled):
    said = claimlib("xautoclaim", stalled, *SWEEP, "--dry-run", "--limit", "1")
    assert said.code == 6
    title, _, _, first, total, note, *losing = said.out.splitlines()
    assert "dry run" in title
    assert first.startswith("unproven")
    assert total.split()[:5] == ["total", "2", "groups", "4", "3"]
    assert note == "1 more group not shown; use --limit to show more"
    assert "dead" in " ".join(losing)
    assert "no run yet" in claimlib("runs", stalled).out


def test_init_again_changes_nothing_and_another_number_of_buckets_is_refused(claimlib, store_path):
    assert claimlib("init", store_path, "--output", "json").code == 0
    said = claimlib("init", store_path, "--buckets", "3")
    assert (said.code, said.out) == (4, "")
    assert "8 buckets" in said.err
    refused = claimlib("init", store_path, "--print-sql", "--accept-replaced")
    assert (refused.code, refused.out) == (2, "")
    assert "--accept-replaced cannot be combined with --print-sql" in refused.err
    refused = claimlib("init", store_path, "--source", "")
    assert (refused.code, refused.out) == (2, "")
    assert "the name of the source is empty" in refused.err


def test_init_of_a_store_that_is_there_says_so_and_what_it_mirrors(claimlib, stalled, tmp_path):
    again = claimlib("init", stalled)
    assert again.code == 0
    assert "the store already exists: nothing was changed" in again.out
    named = ("init", tmp_path / "new", "--source", "lake", "--output", "json")
    for was_there in (False, True):
        document = json.loads(claimlib(*named).out)
        assert (document["was_there"], document["source"]) == (was_there, "lake")


def test_init_of_a_store_that_lost_its_entries_says_what_it_mirrors_and_what_it_took_back(
    claimlib, store
):
    snapshot(store, SnapshotRequest("cache:6379/0"), lambda _: source([]))
    shutil.rmtree(Path(store.where, "entries"))
    said = claimlib("init", store.where)
    assert said.code == 0
    assert "cache:6379/0" in said.out
    assert "entries do not count as complete any more" in said.out
    assert "next: claimlib snapshot" in said.out


def test_a_local_store_that_is_not_there_is_noticed_before_spark_starts(claimlib, tmp_path):
    said = claimlib("runs", tmp_path / "absent")
    assert (said.code, said.out) == (4, "")
    (error,) = said.err.splitlines()
    assert f"claimlib init {tmp_path / 'absent'}" in error


def test_a_file_a_table_and_a_catalog_without_a_schema_are_no_store(claimlib, store_path, tmp_path):
    file = tmp_path / "a file"
    file.write_text("")
    for place, code, said in (
        (file, 4, f"{file} is a file, but a store is a folder"),
        (store_path / "pending", 4, f"did you mean {store_path}?"),
        ("lake.", 2, "STORE is lake., which has no schema: give catalog.schema"),
    ):
        refused = claimlib("xpending", place)
        assert (refused.code, refused.out) == (code, "")
        assert said in refused.err
        assert "create it with" not in refused.err
    assert claimlib("init", "lake.").code == 2


def test_instants_in_seconds_are_refused_and_nothing_is_written(claimlib, stalled):
    said = claimlib("xautoclaim", stalled, *SWEEP, "--now", str(NOW_MS // 1000))
    assert (said.code, said.out) == (2, "")
    assert f"it looks like seconds; write {NOW_MS}" in said.err
    assert "no run yet" in claimlib("runs", stalled).out


def test_csv_has_names_as_the_tables_have_them(claimlib, stalled):
    said = claimlib("xpending", stalled, "--output", "csv", "--columns", "stream,consumer_group")
    rows = list(csv.DictReader(io.StringIO(said.out, newline="")))
    assert {row["consumer_group"] for row in rows} == {"g\n", "g"}


@pytest.mark.parametrize("command", [("runs",), ("init",), ("snapshot", "redis://127.0.0.1:1")])
def test_an_empty_place_of_a_store_is_refused(claimlib, command):
    said = claimlib(*command, "")
    assert (said.code, said.out) == (2, "")
    assert "is empty: give a folder, a URL, or catalog.schema" in said.err


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_globs_that_match_no_group_are_refused_and_name_those_that_come_near(
    claimlib, stalled, dry_run
):
    words = ("xautoclaim", stalled, *SWEEP, *dry_run)
    said = claimlib(*words, "--stream", "unprovn")
    assert (said.code, said.out) == (2, "")
    assert "matches unprovn / * (stream / group); known groups: unproven / g and 1 more" in said.err
    assert "no run yet" in claimlib("runs", stalled).out
    allowed = claimlib(*words, "--stream", "unprovn", "--allow-none")
    assert allowed.code == 0
    assert "No consumer group of the store matches" in allowed.out


def test_a_policy_that_matches_no_group_is_refused(claimlib, stalled, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[request]]\ngroup = "nosuch"\nconsumer = "c"\nmin_idle = "1m"\n')
    said = claimlib("xautoclaim", stalled, "--policy", policy)
    assert (said.code, said.out) == (2, "")
    assert "matches * / nosuch" in said.err


def test_groups_that_no_request_of_a_policy_matches_are_counted(claimlib, stalled, tmp_path):
    policy = tmp_path / "policy.toml"
    template = '[[request]]\nstream = "{}"\nconsumer = "c"\nmin_idle = "1m"\n'
    policy.write_text(template.format("orders") + template.format("none"))
    words = ("xautoclaim", stalled, "--policy", policy, "--dry-run")
    said = claimlib(*words)
    assert said.code == 0, said.err
    assert "1 group matches no request of the policy; --explain lists" in said.out
    counts = json.loads(claimlib(*words, "--output", "json").out)["counts"]
    assert counts["without_request"] == 1
    policy.write_text(template.format("orders") + template.format("*"))
    assert "without_request" not in claimlib(*words, "--output", "json").out


def test_a_store_in_a_catalog_that_ends_with_the_session_is_refused(claimlib, spark):
    assert spark.conf.get("spark.sql.catalogImplementation") == "in-memory"
    said = claimlib("init", "spark_catalog.shop")
    assert (said.code, said.out) == (4, "")
    assert "spark_catalog.shop would disappear when this Spark session ends" in said.err
    assert not spark.catalog.databaseExists("spark_catalog.shop")


def test_a_page_by_a_policy_shows_where_the_next_one_begins(claimlib, stalled, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[request]]\nstream = "orders"\nconsumer = "c"\nmin_idle = "1m"\ncount = 1\ncursor = "x"\n'
    )
    words = ("xautoclaim", stalled, "--policy", policy)
    explained = json.loads(claimlib(*words, "--explain", "--output", "json").out)["groups"]
    assert [(row["stream"], row["request"]) for row in explained] == [
        ("unproven", None),
        ("orders", 1),
    ]
    said = claimlib(*words, "--output", "json")
    assert said.code == 0
    (group,) = json.loads(said.out)["groups"]
    assert (group["claimed"], group["deleted"], group["next_id"]) == (1, 0, "2-0")
    assert (group["pending_before"], group["pending_after"]) == (None, None)
    table = claimlib(*words, "--run-id", "second")
    assert (
        "1 group has more entries: for the next page, run again with another --run-id" in table.out
    )
    assert "page" in claimlib("xautoclaim", "--help").out


def test_the_line_for_schedulers_goes_on_page_by_page_and_begins_again_at_the_end(
    claimlib, stalled
):
    document = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (line,) = (line for line in document.splitlines() if '--run-id "page-$(' in line)
    assert "%" not in line  # in a crontab it would end the line
    printed = f"claimlib() {{ printf '%s\\n' \"$@\"; }}; {line}"
    words = subprocess.check_output(["sh", "-c", printed], text=True).splitlines()
    assert (words[:2], words[-2]) == (["xautoclaim", "./store"], "--run-id")
    run_id = words[-1]
    assert re.fullmatch(r"page-\d{4}-\d\d-\d\dT\d\d:\d\d\+00:00", run_id)
    words = ["xautoclaim", stalled, *words[2:-2], "--min-idle", "1m", "--stream", "orders"]
    words += ["--count", "1"]
    pages = []
    for minute in range(5):
        run_id = f"{run_id[:-8]}{minute:02d}{run_id[-6:]}"
        said = claimlib(*words, "--run-id", run_id, "--output", "json")
        pages.append(json.loads(said.out)["groups"][0]["next_id"])
        repeat = claimlib(*words, "--run-id", run_id, "--output", "json")
        assert json.loads(repeat.out)["groups"][0]["next_id"] == pages[-1]
    assert pages == ["2-0", "3-0", "0-0", "0-0", "0-0"]
    without_cursor = claimlib("xautoclaim", stalled, *SWEEP, "--count", "1", "--start", "1-0")
    assert (
        "add --cursor NAME" not in without_cursor.out
    )  # nothing is due, so the page reached the end


@pytest.mark.parametrize("limit", [50, 1, 200_000])
def test_totals_over_sweeps_and_pages_add_up_or_are_null(claimlib, stalled, tmp_path, limit):
    policy = tmp_path / "policy.toml"
    request = 'consumer = "c"\nmin_idle = "1m"\n'
    policy.write_text(f'[[request]]\nstream = "orders"\ncount = 1\n{request}[[request]]\n{request}')
    words = ("xautoclaim", stalled, "--policy", policy, "--dry-run", "--limit", limit)
    totals = json.loads(claimlib(*words, "--output", "json").out)["totals"]
    assert (totals["pending_before"], totals["pending_after"]) == (None, None)
    assert (totals["claimed"], totals["deleted"], totals["lost"]) == (1, 0, 0)


def test_an_alarm_is_not_silent_where_idle_times_are_unknown(claimlib, store):
    write_keyspace(store, {b"s": Stream({}, {b"g": _group()})}, NOW_MS)
    append(store, "pending", pending_row("s", 1), pending_row("imported", 1))
    last = {"last_delivered_ms": 9, "last_delivered_seq": 0, "run_seq": 0}
    append(store, "groups", {"stream": "imported", "consumer_group": "g", **last})
    words = ("xpending", store.where, "--fail-on-stalled", "52000w")
    said = claimlib(*words)
    assert said.code == 3
    assert said.err.splitlines()[-1].startswith(
        "claimlib: unknown: for 1 group, it is not known how long pending entries have been idle"
    )
    assert "set the time with --now" in said.err
    for known in (("--now", str(NOW_MS)), ("--stream", "s")):
        assert claimlib(*words, *known).code == 0
    both = claimlib("xpending", store.where, "--fail-on-stalled", "1ms")
    assert [line.split(":")[1] for line in both.err.splitlines()[-2:]] == [" stalled", " unknown"]


def test_a_snapshot_that_no_longer_comes_is_an_alarm(claimlib, stalled):
    stale = claimlib("xpending", stalled, "--fail-on-stale", "30m")
    assert stale.code == 3
    assert (
        "stale: for 2 groups, the last snapshot is older than 30m, or its time is unknown"
        in stale.err
    )
    for late_ms, code in ((30 * 60_000, 0), (30 * 60_000 + 1, 3)):
        words = ("--fail-on-stale", "30m", "--now", str(NOW_MS + late_ms), "--stream", "orders")
        said = claimlib("xpending", stalled, *words)
        assert said.code == code, said.err
        assert "30m" in said.out.splitlines()[-1]


NO_GROUPS = SnapshotRequest("empty:6379/0", limits=RemovalLimits(allow_empty=True))
NO_SNAPSHOT = "claimlib: stale: the store has no snapshot, and no import"


def test_a_store_that_never_had_a_snapshot_is_an_alarm(claimlib, store):
    words = ("xpending", store.where, "--fail-on-stale", "1h")
    assert claimlib("xautoclaim", store.where, *SWEEP).code == 0
    said = claimlib(*words)
    assert (said.code, said.err.splitlines()[-1]) == (3, NO_SNAPSHOT)
    snapshot(store, NO_GROUPS, lambda _: source())
    assert claimlib(*words).code == 0
    before = claimlib(*words, "--as-of", "1")
    assert (before.code, before.err.splitlines()[-1]) == (3, NO_SNAPSHOT)


def test_a_snapshot_that_was_given_up_is_none(claimlib, store):
    snapshot(store, NO_GROUPS, lambda _: source())
    store.spark.sql(f"UPDATE {store.identifier('runs')} SET counts = map('abandoned', 1L)")
    said = claimlib("xpending", store.where, "--fail-on-stale", "1h")
    assert (said.code, said.err.splitlines()[-1]) == (3, NO_SNAPSHOT)


def test_a_store_of_a_server_without_groups_is_an_alarm_once_its_snapshot_is_old(claimlib, store):
    words = ("xpending", store.where, "--fail-on-stale", "1h", "--now")
    run = snapshot(store, NO_GROUPS, lambda _: source()).run_seq
    began_ms = find_run(store, str(run)).began_ms
    for late_ms, code in ((0, 0), (3_600_000, 0), (3_600_001, 3)):
        said = claimlib(*words, began_ms + late_ms)
        assert said.code == code, said.err
    assert said.err.splitlines()[-1] == (
        "claimlib: stale: the store has no consumer groups, and its last snapshot is older than 1h,"
        " or its time is unknown"
    )


def test_the_totals_of_a_store_without_groups_are_0_and_it_is_said_what_to_do(claimlib, store):
    said = claimlib("xpending", store.where)
    *_, total, note = said.out.splitlines()
    assert re.split(r" {2,}", total) == ["total", "0 groups", *"00--00000-"]
    assert note == "the store has no consumer groups yet: take a snapshot or an import first"
    totals = json.loads(claimlib("xpending", store.where, "--output", "json").out)["totals"]
    numbers = ("pending", "stalled", "owners", "idle_owners", "unknown_owners")
    assert [totals[name] for name in numbers] == [0] * 5
    assert totals["oldest_idle_ms"] is None
    swept = claimlib("xautoclaim", store.where, *SWEEP, "--dry-run").out
    assert "if it has none, take a snapshot or an import first." in swept


def test_the_overview_shows_the_groups_that_globs_match_and_refuses_globs_that_match_none(
    claimlib, stalled
):
    shown = claimlib("xpending", stalled, "--stream", "ord*", "--output", "json")
    (group,) = json.loads(shown.out)["groups"]
    assert (group["stream"], group["pending"], group["snapshot_ms"]) == ("orders", 3, NOW_MS)
    worst = json.loads(claimlib("xpending", stalled, "--top", "1", "--output", "json").out)
    assert (len(worst["groups"]), worst["groups_not_shown"]) == (1, 1)
    for words in (("--group", "nosuch"), ("--stream", "ordres", "--fail-on-stalled", "1h")):
        refused = claimlib("xpending", stalled, *words)
        assert (refused.code, refused.out) == (2, "")
        assert "no consumer group of " in refused.err
        assert "known groups: " in refused.err
    both = claimlib("xpending", stalled, "orders", "g", "--fail-on-stale", "1h")
    assert (both.code, both.out) == (2, "")


def test_a_group_that_is_not_there_is_named_with_those_that_come_near(claimlib, stalled):
    for words in ((), ("--count", "5")):
        said = claimlib("xpending", stalled, "unprovn", "g", *words)
        assert (said.code, said.out) == (2, "")
        assert (
            "NOGROUP No such key 'unprovn' or consumer group 'g'; known groups: unproven / g"
            in said.err
        )
    swapped = claimlib("xpending", stalled, "g", "unproven")
    assert swapped.code == 2
    assert "known groups: unproven / g" in swapped.err
    literal = claimlib("describe", stalled, "orders", "g\\u000a")
    assert "in a glob, a backslash escapes the next character" in literal.err


def test_what_a_run_refused_can_be_looked_up_with_the_reason(claimlib, stalled):
    assert claimlib("xautoclaim", stalled, *SWEEP, "--run-id", "r").code == 6
    said = claimlib("runs", stalled, "xautoclaim:r", "--refused", "--output", "json")
    (refused,) = json.loads(said.out)["refused"]
    assert (refused["stream"], refused["consumer_group"]) == ("unproven", "g")
    assert "pending ids whose entries may have been deleted" in refused["reason"]
    assert "unproven" in claimlib("runs", stalled, "xautoclaim:r", "--refused").out
    filtered = claimlib("runs", stalled, "xautoclaim:r", "--claimed", "--stream", "nope")
    assert "no entry matches the filter: this run claimed 1 entry" in filtered.out


@pytest.mark.parametrize(
    ("who", "consumers"),
    [
        (("--consumer", "b", "--consumer", "a"), ["b", "a"]),
        (("--consumer", "a"), ["a", "a"]),
        (("--assign", "live:1h"), ["dead", "dead"]),
    ],
)
def test_options_of_xclaim_choose_who_shares_the_entries(claimlib, store, who, consumers):
    group = replace(_group(90_000, 90_000), consumers=(Consumer(b"dead", NOW_MS, NOW_MS),))
    kept = {StreamId(n, 0): (b"f", b"v") for n in (1, 2)}
    write_keyspace(store, {b"orders": Stream(kept, {b"g": group})}, NOW_MS)
    words = ("xclaim", store.where, "orders", "g", *who, "--min-idle", "1m", "2-0", "1-0")
    said = claimlib(*words, "--output", "json")
    assert said.code == 0
    got = {row["id"]: row["consumer"] for row in json.loads(said.out)["ids"]}
    assert got == dict(zip(("1-0", "2-0"), consumers, strict=True))


@pytest.mark.parametrize(
    ("who", "message"),
    [
        (("--consumer", "a", "--assign", "live"), "--consumer and --assign both choose"),
        (("--assign", "all"), "--assign must be live or live:DURATION"),
        (("--consumer", "", "--consumer", "b"), "is empty: name who gets the entries"),
    ],
)
def test_consumers_that_xclaim_cannot_use(claimlib, stalled, who, message):
    said = claimlib("xclaim", stalled, "orders", "g\n", *who, "--min-idle", "1m", "1-0")
    assert (said.code, said.out) == (2, "")
    assert message in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("xautoclaim", "--consumer", "", "--min-idle", "1m"),
        ("xclaim", "orders", "g\n", "", "1-0", "--min-idle", "1m"),
    ],
)
def test_an_empty_consumer_is_refused(claimlib, stalled, words):
    command, *rest = words
    said = claimlib(command, stalled, *rest)
    assert (said.code, said.out) == (2, "")
    assert "is empty: name who gets the entries" in said.err


@pytest.mark.usefixtures("spark")  # a session that is there is used
def test_init_and_a_dry_run_show_what_they_do(claimlib, stalled, tmp_path):
    assert "claimlib: starting Spark" in claimlib("init", tmp_path / "new", "--engine", "spark").err
    shown = claimlib("xautoclaim", stalled, *SWEEP, "--dry-run").err
    assert "claimlib: decide · dry run" in shown.splitlines()


def test_verbose_a_run_says_how_many_entries_it_is_about(claimlib, stalled):
    swept = claimlib("xautoclaim", stalled, *SWEEP, "--dry-run", "--verbose").err
    assert "claimlib: decide · dry run · 4 pending entries" in swept.splitlines()
    words = ("xclaim", stalled, "orders", "g\n", "c", "1-0", "3-0", "--min-idle", "1m", "--verbose")
    claimed = claimlib(*words).err.splitlines()
    assert "claimlib: decide · run 1 · 2 ids" in claimed
    assert "claimlib: apply · run 1 · 1 row to write" in claimed
    assert any(re.fullmatch(r"claimlib: finish · run 1 · took [0-9.]+ s", line) for line in claimed)


@pytest.mark.usefixtures("spark")  # a session that is there is used
@pytest.mark.usefixtures("in_session")
def test_memory_for_a_spark_that_runs_already_is_said_to_have_no_effect(claimlib, stalled):
    options = ("--spark-conf", "spark.driver.memory=9g")
    said = claimlib("xpending", stalled, *options)
    assert said.code == 0
    assert (
        "claimlib: spark.driver.memory has no effect, because Spark is running already: set it"
        " where Spark is started (spark-submit --driver-memory 9g)" in said.err.splitlines()
    )
    for words in ((*options, "--quiet"), ("--spark-conf", "spark.sql.shuffle.partitions=2")):
        assert "has no effect" not in claimlib("xpending", stalled, *words).err
