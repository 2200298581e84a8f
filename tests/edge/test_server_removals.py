"""Snapshots of a real server that lost, replaced or deleted streams, as a user runs them."""

import json

from claimlib.testing.keyspace_rows import read_groups
from tests.live.readings import deliver

ENTRIES = 52


def fill(client, name, first_ms, number):
    ids = [f"{ms}-0" for ms in range(first_ms, first_ms + number)]
    for id_ in ids:
        client.xadd(name, {"f": "v"}, id=id_)
    client.xgroup_create(name, "workers", id="0")
    deliver(client, name, "workers", "bob", number)
    return ids


def pending_in(store):
    return {
        (stream, str(entry.id))
        for stream, groups in read_groups(store).items()
        for group in groups.values()
        for entry in group.pending
    }


def test_streams_made_again_after_a_flush_are_refused_though_they_deleted_some_of_their_entries(
    claimlib, client, server, store
):
    words = ("snapshot", server.url, store.where, "--stream", "orders:*")
    names = [b"orders:eu", b"orders:us"]
    for name in names:
        fill(client, name, 1_000, ENTRIES)
    assert claimlib(*words).code == 0
    before = pending_in(store)
    assert len(before) == 2 * ENTRIES
    client.flushall()
    for name in names:
        ids = fill(client, name, 9_000, ENTRIES + 8)
        assert client.xdel(name, *ids[:3]) == 3
    refused = claimlib(*words)
    assert (refused.code, refused.out) == (4, "")
    assert "no longer has 52 of 52 rows of pending of stream orders:" in refused.err
    assert "(104 of 104 in all streams; 1 more stream is above the limit, too)" in refused.err
    assert pending_in(store) == before
    accepted = claimlib(*words, "--max-removed-share", "1", "--output", "json")
    assert accepted.code == 0
    document = json.loads(accepted.out)
    assert document["streams_replaced"] == ["orders:eu", "orders:us"]
    assert document["streams_replaced_not_shown"] == 0
    assert document["counts"]["removed_unexplained"] == 4 * ENTRIES
    assert len(pending_in(store)) == 2 * (ENTRIES + 8)


def test_deletions_that_the_server_counts_explain_what_is_gone(claimlib, client, server, store):
    words = ("snapshot", server.url, store.where, "--max-removed-share", "0")
    ids = fill(client, b"orders:eu", 1_000, ENTRIES)
    assert claimlib(*words).code == 0
    client.xack("orders:eu", "workers", *ids[:-1])
    client.xdel("orders:eu", *ids[:-1])
    said = claimlib(*words)
    assert said.code == 0
    assert "trace of why" not in said.out
    assert pending_in(store) == {(b"orders:eu", ids[-1])}


def test_streams_that_are_deleted_as_a_habit_are_named_and_count_for_all_streams_together(
    claimlib, client, server, store
):
    words = ("snapshot", server.url, store.where)
    for number in range(20):
        fill(client, b"job:%02d" % number, 1_000, 4)
    assert claimlib(*words).code == 0
    client.delete("job:03", "job:11")
    said = claimlib(*words)
    assert said.code == 0
    assert "2 streams are gone from the source: job:03, job:11" in said.out
    assert "16 rows were removed without an explanation" in said.out
    assert len(pending_in(store)) == 72
    client.delete(*(f"job:{number:02d}" for number in range(13)))
    refused = claimlib(*words)
    assert (refused.code, refused.out) == (4, "")
    gone = "job:00, job:01, job:02, job:04, job:05, job:06 and 5 more"
    assert f"These streams are gone: {gone}. This is more" in refused.err
    assert "no longer has 44 of 72 rows of pending in all streams" in refused.err
    assert len(pending_in(store)) == 72
