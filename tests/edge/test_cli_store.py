"""The command line on a store: what it prints, and how it ends."""

import json

import pytest

from claimlib.ids import StreamId
from claimlib.model import Consumer, Group, PendingEntry
from claimlib.testing.tables import write_keyspace
from claimlib.words import Stream

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


def test_a_run_is_shown_refusals_are_named_and_the_run_can_be_looked_up(claimlib, stalled):
    words = ("xautoclaim", stalled, *SWEEP, "--run-id", "r", "--output", "json")
    said = claimlib(*words)
    assert said.code == 6
    *phases, refused = said.err.splitlines()
    assert refused.startswith("claimlib: refused: unproven / g: ")
    assert phases == [
        f"claimlib: {phase}"
        for phase in (
            *("starting Spark", "looking at the store", "recover", "begin"),
            *(f"{name} · run 1" for name in ("decide", "apply", "verify", "record", "finish")),
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
    assert again.out == said.out
    assert "finish · run 1 was done before: nothing is done again" in again.err

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
    found = json.loads(said.out)["findings"]
    assert [(one["table"], one["refuses"], one["count"]) for one in found] == [
        ("pending", True, 1),
        ("streams", False, 1),
    ]
    assert "1 of them make a sweep refuse groups" in claimlib("check", stalled).out


def test_of_a_count_that_is_too_much_to_print_it_says_how_many_are_left_and_where(
    claimlib, stalled, monkeypatch
):
    monkeypatch.setattr("claimlib.cli.app.MOST_ROWS", 2)
    words = ("xpending", stalled, "orders", "g\n", "--count", "1000000")
    said = claimlib(*words)
    assert said.code == 0
    *_, last, note = said.out.splitlines()
    assert last.startswith("2-0")
    assert note.startswith("1 more entries not shown: 2 are printed at most; --start '(2-0' shows")
    rest = json.loads(claimlib(*words, "--start", "(2-0", "--output", "json").out)
    assert [row["id"] for row in rest["rows"]] == ["3-0"]
    assert (rest["rows_not_shown"], rest["next_start"]) == (0, None)


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
        assert "100000" in run(command, "store", *words, "--limit", "100001").err.replace(",", "")


def test_a_dry_run_shows_the_worst_groups_first_and_counts_what_it_does_not_show(claimlib, stalled):
    said = claimlib("xautoclaim", stalled, *SWEEP, "--dry-run", "--limit", "1")
    assert said.code == 6
    title, _, _, first, total, note = said.out.splitlines()
    assert "dry run" in title
    assert first.startswith("unproven")
    assert total.split()[:5] == ["total", "2", "groups", "4", "3"]
    assert note == "1 more groups not shown; --limit shows more"
    assert "no run yet" in claimlib("runs", stalled).out


def test_init_again_changes_nothing_and_another_number_of_buckets_is_refused(claimlib, store_path):
    assert claimlib("init", store_path, "--output", "json").code == 0
    said = claimlib("init", store_path, "--buckets", "3")
    assert (said.code, said.out) == (4, "")
    assert "8 buckets" in said.err


def test_a_store_that_is_not_there_ends_with_4_and_says_how_to_make_it(claimlib, spark, tmp_path):
    assert spark.version
    said = claimlib("runs", tmp_path / "absent")
    assert (said.code, said.out) == (4, "")
    *phases, error = said.err.splitlines()
    assert f"claimlib init {tmp_path / 'absent'}" in error
    assert phases == ["claimlib: starting Spark", "claimlib: looking at the store"]


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
    assert "1 groups have entries behind this page" in table.out
    assert "page" in claimlib("xautoclaim", "--help").out
