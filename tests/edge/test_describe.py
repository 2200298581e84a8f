"""Consumers and cursors, as the command line shows and sets them."""

import json

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace

NOW_MS = 1_750_000_000_000


@pytest.fixture
def where(store):
    """Group `g` of `orders`: bob owns two entries, alice none, zoe, whom nobody knows, one; and
    nobody owns one."""
    owned = [(b"bob", 90_000), (b"bob", 70_000), (b"zoe", 5), (None, 5)]
    pending = tuple(
        PendingEntry(StreamId(n, 0), name, NOW_MS - ms, n) for n, (name, ms) in enumerate(owned, 1)
    )
    consumers = (Consumer(b"alice", NOW_MS - 1000, None), Consumer(b"bob", NOW_MS, NOW_MS - 90_000))
    entries = {StreamId(n, 0): (b"f", b"v") for n in (1, 2, 3)}
    group = Group(StreamId(9, 0), pending, consumers)
    write_keyspace(store, {b"orders": Stream(entries, {b"g": group})}, NOW_MS)
    return store.where


def test_consumers_are_listed_with_what_they_own_and_when_they_were_active(claimlib, where):
    said = claimlib("describe", where, "--now", str(NOW_MS), "--output", "json")
    assert said.code == 0
    consumers = {row["consumer"]: row for row in json.loads(said.out)["consumers"]}
    assert {
        name: (row["pending"], row["oldest_idle_ms"], row["active_time_ms"], row["is_known"])
        for name, row in consumers.items()
    } == {
        "bob": (2, 90_000, NOW_MS - 90_000, True),
        "zoe": (1, 5, None, False),
        "alice": (0, None, None, True),
    }
    assert next(iter(consumers)) == "bob"
    assert json.loads(said.out)["pending_without_owner"] == 1
    shown = claimlib("describe", where, "--now", str(NOW_MS)).out
    assert "1 consumer owns entries but is missing from the table consumers" in shown
    assert "1m30s" in shown
    assert "\n1 entry has no owner\n" in shown


def test_globs_choose_the_groups(claimlib, where):
    assert "bob" in claimlib("describe", where, "ord*", "g").out
    refused = claimlib("describe", where, "ord*", "x")
    assert (refused.code, refused.out) == (2, "")
    assert "matches ord* / x (stream / group); known groups: orders / g" in refused.err


def page(claimlib, where, number):
    words = ("--consumer", "c", "--min-idle", "1m", "--count", "1", "--cursor", "nightly")
    said = claimlib("xautoclaim", where, *words, "--run-id", f"p{number}", "--output", "json")
    (group,) = json.loads(said.out)["groups"]
    return group["next_id"]


def test_a_cursor_is_shown_and_can_be_set_back_once_for_each_run_id(claimlib, where):
    assert page(claimlib, where, 1) == "2-0"
    assert (
        "cursor nightly: the next page of orders / g begins at 2-0"
        in claimlib("describe", where).out
    )
    reset = ("reset-cursor", where, "nightly", "--run-id", "r")
    done = claimlib(*reset)
    assert (done.code, done.out.splitlines()[-1].split()) == (0, ["nightly", "orders", "g", "0-0"])
    assert "begins at the first entry" in claimlib("describe", where).out
    assert page(claimlib, where, 2) == "3-0"  # 1-0 is the new consumer's, and not idle
    assert claimlib(*reset, "--quiet").out.endswith("was already done: nothing was changed\n")
    assert "begins at 3-0" in claimlib("describe", where).out
    assert claimlib("reset-cursor", where, "nightly", "--to", "2-0").code == 0
    assert "begins at 2-0" in claimlib("describe", where).out


def test_cursors_that_the_limit_cuts_off_are_counted_whatever_the_output(claimlib, where):
    for name in ("nightly", "weekly"):
        words = ("--consumer", "new", "--min-idle", "1m", "--count", 1, "--cursor", name)
        assert claimlib("xautoclaim", where, *words).code == 0
    for output in ("table", "csv", "jsonl"):
        said = claimlib("describe", where, "--limit", 1, "--output", output, "--quiet")
        assert "1 more cursor not shown; use --limit to show more" in said.out + said.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("weekly",), "has no cursor weekly; known cursors: nightly"),
        (
            ("nightly", "--stream", "nosuch"),
            "no consumer group that matches nosuch / * (stream / group) has the cursor",
        ),
    ],
)
def test_a_cursor_that_no_group_has_is_refused_and_nothing_is_written(claimlib, where, words, why):
    page(claimlib, where, 1)
    said = claimlib("reset-cursor", where, *words)
    assert (said.code, said.out) == (2, "")
    assert why in said.err
    assert len(json.loads(claimlib("runs", where, "--output", "json").out)["runs"]) == 1
