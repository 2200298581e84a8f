"""The history of an entry and of a consumer, from the journal and the snapshots."""

from __future__ import annotations

import pytest
import redis

from claimlib.commands.entry import consumer_history, entry_history
from claimlib.commands.undo import undo
from claimlib.errors import RequestError
from claimlib.semantics.ids import StreamId
from claimlib.store.tables import Store
from claimlib.testing.server_process import Server
from tests.delta.server_groups import GROUP, mirror, stall, sweep, write

ID = StreamId(2, 0)


def story(store: Store, server: Server, client: redis.Redis) -> None:
    """A snapshot, a sweep, a writeback, another snapshot, and a client that acknowledges."""
    stall(client, "s", ["1-0", "2-0", "3-0"])
    client.xdel("s", "3-0")
    mirror(store, server)
    sweep(store)
    write(store, server)
    mirror(store, server)
    client.xack("s", GROUP, "2-0")
    mirror(store, server)


def test_an_entry_has_each_owner_that_was_read_or_set(server, client, store):
    story(store, server, client)
    history = entry_history(store, b"s", ID)
    assert [
        (row["run_seq"], row["command"], row["event"], row["from_consumer"], row["consumer"])
        for row in history.events.collect()
    ] == [
        (1, "snapshot", "read", None, "bob"),
        (2, "xautoclaim", "claimed", "bob", "alice"),
        (3, "writeback", "moved", "alice", "alice"),
        (4, "snapshot", "read", None, "alice"),
        (5, "snapshot", "pending_removed", "alice", None),
    ]
    assert (history.pending, history.exists) == ([], False)  # the store keeps what is needed
    (first, *_) = history.events.collect()
    assert '"stream_glob": "*"' in first["request"]


def test_an_entry_that_is_pending_has_its_owner_and_its_payload(server, client, store):
    stall(client, "s", ["1-0"])
    mirror(store, server)
    history = entry_history(store, b"s", StreamId(1, 0))
    assert [(row["consumer"], row["delivery_count"]) for row in history.pending] == [("bob", 1)]
    assert history.fields is not None
    assert [(bytes(pair["name"]), bytes(pair["value"])) for pair in history.fields] == [
        (b"n", b"1")
    ]


def test_an_entry_that_is_gone_and_one_that_never_was(server, client, store):
    story(store, server, client)
    gone = entry_history(store, b"s", StreamId(3, 0), GROUP.encode())
    events = [row["event"] for row in gone.events.collect()]
    assert events == ["read", "deleted", "acknowledged"]
    assert (gone.pending, gone.exists, gone.fields) == ([], False, None)
    never = entry_history(store, b"s", StreamId(9, 9))
    assert (never.events.count(), never.pending, never.exists) == (0, [], False)
    with pytest.raises(RequestError, match="'other'"):
        entry_history(store, b"s", ID, b"other")


def test_a_consumer_has_what_runs_took_and_gave(server, client, store):
    stall(client, "s", ["1-0", "2-0"])
    stall(client, "t", ["1-0"], owner="alice")
    mirror(store, server)
    sweep(store)
    undo(store, "r")
    lost = [
        (row["run_seq"], row["stream"], row["id_ms"], row["change"])
        for row in consumer_history(store, b"bob").order_by("run_seq", "id_ms").collect()
    ]
    taken = [(2, "s", 1, "lost"), (2, "s", 2, "lost")]
    assert lost == [*taken, (3, "s", 1, "received"), (3, "s", 2, "received")]
    assert consumer_history(store, b"bob", b"t").count() == 0
    assert consumer_history(store, b"bob", b"s", GROUP.encode()).count() == 4
    received = consumer_history(store, b"alice").where("change = 'received'")
    assert {row["stream"] for row in received.collect()} == {"s"}
