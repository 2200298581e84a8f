"""A dry run lists the entries that it would change, and names the owners that would lose most."""

import csv
import io
import json

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace

NOW_MS = 1_750_000_000_000
SWEEP = ("--consumer", "c", "--min-idle", "1m", "--dry-run")


@pytest.fixture
def where(store):
    """Return a store with two streams.

    In `orders` bob has three idle entries, of which 3-0 is gone, carol one, and c, which claims,
    one.  In `jobs` seven consumers have one each.
    """
    owners = (b"bob", b"bob", b"bob", b"carol", b"c")
    orders = [
        PendingEntry(StreamId(n, 0), owner, NOW_MS - 90_000, n) for n, owner in enumerate(owners, 1)
    ]
    workers = [b"w%d" % n for n in range(7)]
    jobs = [
        PendingEntry(StreamId(n, 0), owner, NOW_MS - 61_000, 1)
        for n, owner in enumerate(workers, 1)
    ]
    entries = {StreamId(n, 0): (b"f", b"v") for n in (1, 2, 4, 5, 6, 7)}
    write_keyspace(
        store,
        {
            b"orders": Stream(entries, {b"g": group(orders)}),
            b"jobs": Stream(entries | {StreamId(3, 0): (b"f", b"v")}, {b"g": group(jobs)}),
        },
        NOW_MS,
    )
    return store.where


def group(pending):
    names = {entry.consumer for entry in pending}
    consumers = (Consumer(name, NOW_MS, NOW_MS - 90_000) for name in sorted(names))
    return Group(StreamId(9, 0), tuple(pending), tuple(consumers))


def records(said, output):
    assert said.code == 0, said.err
    if output == "csv":
        return list(csv.DictReader(io.StringIO(said.out)))
    if output == "jsonl":
        return [json.loads(line) for line in said.out.splitlines()]
    document = json.loads(said.out)
    assert (document["dry_run"], document["run_seq"]) == (True, None)
    return document["claimed"]


@pytest.mark.parametrize("output", ["json", "jsonl", "csv"])
def test_the_entries_that_would_be_claimed_are_listed_with_owner_idle_time_and_count(
    claimlib, where, output
):
    sweep = ("xautoclaim", where, *SWEEP, "--stream", "orders", "--claimed", "--output", output)
    rows = records(claimlib(*sweep), output)
    columns = ("stream", "consumer_group", "id", "from_consumer", "consumer")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("orders", "g", f"{n}-0", owner, "c")
        for n, owner in ((1, "bob"), (2, "bob"), (4, "carol"), (5, "c"))
    ]
    numbers = ("from_idle_ms", "from_delivery_count", "from_delivery_time_ms")
    assert [int(rows[1][name]) for name in numbers] == [90_000, 2, NOW_MS - 90_000]


def test_people_read_the_columns_of_runs(claimlib, where):
    listed = claimlib("xautoclaim", where, *SWEEP, "--deleted")
    title, headings, _, row = listed.out.splitlines()
    assert title == "would be deleted by xautoclaim (dry run; nothing was written)"
    assert row.split() == ["orders", "g", "3-0", "bob", "2025-06-15T15:05:10.000Z", "1m30s", "3"]
    none = claimlib("xautoclaim", where, *SWEEP, "--deleted", "--stream", "jobs")
    assert none.out.splitlines()[-1] == "no entry would be deleted"
    cut = claimlib("xautoclaim", where, *SWEEP, "--claimed", "--limit", "1")
    assert cut.out.splitlines()[-1] == "10 more entries not shown; use --limit to show more"
    assert "no run yet" in claimlib("runs", where).out
    assert claimlib("xautoclaim", where, *SWEEP[:-1], "--run-id", "r").code == 0
    of_run = claimlib("runs", where, "xautoclaim:r", "--deleted")
    assert of_run.out.splitlines()[1:] == [headings, *listed.out.splitlines()[2:]]


def test_the_owners_that_would_lose_most_are_named(claimlib, where):
    of_orders = claimlib("xautoclaim", where, *SWEEP, "--stream", "orders")
    assert of_orders.out.splitlines()[-1] == (
        "2 owners would lose entries: bob 3 (orders / g), carol 1 (orders / g)"
    )
    of_all = claimlib("xautoclaim", where, *SWEEP, "--output", "json")
    document = json.loads(of_all.out)
    assert len(document["losing_owners"]) == 5
    assert document["losing_owners_not_shown"] == 4
    assert document["losing_owners"][0] == {
        "stream": "orders",
        "consumer_group": "g",
        "from_consumer": "bob",
        "claimed": 2,
        "deleted": 1,
    }
    assert (
        "9 owners would lose entries, these most: bob 3"
        in claimlib("xautoclaim", where, *SWEEP).out
    )
    done = claimlib("xautoclaim", where, *SWEEP[:-1], "--output", "json")
    assert json.loads(done.out)["losing_owners"] is None


@pytest.mark.parametrize(
    ("words", "owners"),
    [
        (
            ("xclaim", "orders", "g", "carol", "--min-idle", "1m", "1-0", "3-0", "4-0"),
            "1 owner would lose entries: bob 2 (orders / g)",
        ),
        (
            ("xack", "orders", "g", "1-0", "4-0", "99-0"),
            "2 owners would lose entries: bob 1 (orders / g), carol 1 (orders / g)",
        ),
        (
            ("retire", "orders", "g", "bob", "--to", "carol"),
            "1 owner would lose entries: bob 3 (orders / g)",
        ),
    ],
)
def test_commands_about_ids_list_owner_idle_time_and_count_too(claimlib, where, words, owners):
    command, *rest = words
    shown = claimlib(command, where, *rest, "--dry-run")
    assert shown.code == 0, shown.err
    assert owners in shown.out.splitlines()
    listed = claimlib(command, where, *rest, "--dry-run", "--output", "jsonl")
    first = json.loads(listed.out.splitlines()[0])
    before = ("id", "from_consumer", "from_idle_ms", "from_delivery_count")
    assert [first[name] for name in before] == ["1-0", "bob", 90_000, 1]


def test_lists_without_a_dry_run_are_refused(claimlib, where):
    for words, reason in (
        (SWEEP[:-1], "--claimed lists the entries of a dry run: add --dry-run. Of a"),
        ((*SWEEP, "--explain"), "of a dry run: leave out --explain. Of a"),
        ((*SWEEP[:-1], "--explain"), "of a dry run: add --dry-run and leave out --explain. Of a"),
        ((*SWEEP, "--deleted"), "give only one of --claimed and --deleted"),
    ):
        refused = claimlib("xautoclaim", where, *words, "--claimed")
        assert (refused.code, refused.out) == (2, "")
        assert reason in refused.err
