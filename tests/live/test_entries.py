"""Replies are bounded by bytes, whatever the sizes of the entries, and the rows stay the same."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimlib.live.batches import EntryPage, EntryRow
from claimlib.live.connection import open_source
from claimlib.live.reader import read_source
from claimlib.semantics.ids import StreamId, parse_id
from claimlib.testing.server_process import valkey_server
from tests.examples import examples
from tests.live.readings import LEAST_RIGHTS, deliver, read, stream_with_group, without
from tests.live.wire import Wire

MIB = 1024 * 1024
WITH_AND_WITHOUT_SCRIPTS = {"scripted": LEAST_RIGHTS, "plain": without(LEAST_RIGHTS, "+eval_ro")}


@contextmanager
def server_with_users():
    users = [
        " ".join([name, "on", ">sesame", *rights])
        for name, rights in WITH_AND_WITHOUT_SCRIPTS.items()
    ]
    with valkey_server(users=users) as server, server.client() as client:
        yield server, client


def open_as(user, server):
    return open_source(server.url, username=user, password="sesame", max_commands_per_second=None)


# --- the rows are the same


@pytest.fixture(scope="module")
def connections():
    with (
        server_with_users() as (server, client),
        open_as("scripted", server) as scripted,
        open_as("plain", server) as plain,
        Wire(server) as wire,
    ):
        yield client, wire, scripted, plain


SIZES = [0, 1, 50, 500, 5_000, 50_000]


@st.composite
def streams(draw):
    """Entries by id, each with the sizes of its texts; what is deleted; what is pending, by group;
    and a span that is asked for besides."""
    ids = draw(
        st.lists(
            st.builds(StreamId, st.integers(1, 9), st.integers(0, 9)),
            min_size=1,
            max_size=30,
            unique=True,
        ).map(sorted)
    )
    texts = st.lists(st.sampled_from(SIZES), min_size=2, max_size=6)
    entries = {id_: draw(texts) for id_ in ids}
    some = st.sets(st.sampled_from(ids))
    span = st.none() | st.tuples(*[st.builds(StreamId, st.integers(0, 10), st.just(0))] * 2).map(
        lambda bounds: tuple(sorted(bounds))
    )
    return entries, draw(some), [draw(some), draw(some)], draw(span)


def put(client, entries, deleted, pending):
    client.flushall()
    with client.pipeline() as pipe:
        for id_, sizes in entries.items():
            words = [bytes([65 + n % 26]) * size for n, size in enumerate(sizes)]
            pipe.execute_command("XADD", "s", str(id_), *words[: len(words) // 2 * 2])
        for n, ids in enumerate(pending):
            pipe.xgroup_create("s", f"g{n}", id="0")
            if ids:
                pipe.execute_command("XCLAIM", "s", f"g{n}", "c", 0, *map(str, ids), "FORCE")
        if deleted:
            pipe.xdel("s", *map(str, deleted))
        pipe.execute()


def expected_rows(wire, pending, also):
    """The entries over the span, from one XRANGE over all of them."""
    wanted = set().union(*pending)
    bounds = [*wanted, *(also or ())]
    (whole,) = wire.ask((b"XRANGE", b"s", b"-", b"+"))
    rows = [
        (parse_id(raw), tuple(zip(texts[::2], texts[1::2], strict=True))) for raw, texts in whole
    ]
    return [
        EntryRow(id_, fields if id_ in wanted else None)
        for id_, fields in rows
        if bounds and min(bounds) <= id_ <= max(bounds)
    ]


def payload(row):
    return sum(len(name) + len(value) for name, value in row.fields or ())


@settings(deadline=None, max_examples=examples(300))
@given(
    stream=streams(),
    page=st.integers(1, 35),
    reply_bytes=st.sampled_from([1, 200, 2_000, 20_000, 200_000, 4 * MIB]),
)
def test_the_rows_are_those_of_one_range_whatever_pages_and_budgets(
    connections, stream, page, reply_bytes
):
    client, wire, *sources = connections
    entries, deleted, pending, also = stream
    put(client, entries, deleted, pending)
    expected = expected_rows(wire, pending, also)
    spans = {b"s": also} if also else None
    for source in sources:
        batches = read_source(source, entry_page=page, reply_bytes=reply_bytes, also_spans=spans)
        pages = [batch.rows for batch in batches if isinstance(batch, EntryPage)]
        assert [row for rows in pages for row in rows] == expected
        for rows in pages:
            assert 1 <= len(rows) <= page
            assert sum(map(payload, rows[:-1])) < reply_bytes  # and the last entry


# --- the replies are bounded


def large_stream(client, n, size, small_before=0):
    for i in range(1, small_before + n + 1):
        client.xadd("s", {"a": b"x" * (size if i > small_before else 1)}, id=f"{i}-0")
    client.xgroup_create("s", "g", id="0")
    for _ in range(small_before + n):
        deliver(client, "s", "g", "c", 1)  # one by one: the server's peak is to be the reader's


def sent_to(client, user):
    """How many bytes the server has sent to a user's connection."""
    (connection,) = [
        connection for connection in client.client_list() if connection["user"] == user
    ]
    return int(connection["tot-net-out"])


@pytest.fixture
def watch(monkeypatch):
    """Notes for each round trip of a source what was asked, and how many bytes came back."""

    def watch_(source, client, user):
        real_replies = source._replies
        trips = []

        def replies(commands):
            before = sent_to(client, user)
            answer = real_replies(commands)
            trips.append((str(commands[0][0]), sent_to(client, user) - before))
            return answer

        monkeypatch.setattr(source, "_replies", replies)
        return trips

    return watch_


@pytest.mark.parametrize("user", WITH_AND_WITHOUT_SCRIPTS)
def test_no_reply_is_larger_than_the_budget_and_one_entry(watch, user):
    """A hundred entries of 1 MB, and replies of 2 MiB."""
    with server_with_users() as (server, client), open_as(user, server) as source:
        large_stream(client, 100, MIB)
        held = client.info("memory")["used_memory"]
        trips = watch(source, client, user)
        largest = rows = 0
        for batch in read_source(source, reply_bytes=2 * MIB):
            if isinstance(batch, EntryPage):
                rows += len(batch.rows)
                largest = max(largest, sum(map(payload, batch.rows)))
        peak = client.info("memory")["used_memory_peak"]
    one_entry = MIB + 100
    assert rows == 100
    assert max(size for _, size in trips) <= 2 * MIB + one_entry
    assert largest <= 2 * MIB + one_entry
    # What the server makes up for a reply, and what waits to be sent.
    assert peak - held < 12 * MIB


def test_with_scripts_large_entries_behind_small_ones_make_no_larger_reply_either(watch):
    with server_with_users() as (server, client), open_as("scripted", server) as source:
        large_stream(client, 30, MIB, small_before=300)
        held = client.info("memory")["used_memory"]
        trips = watch(source, client, "scripted")
        assert read(source, reply_bytes=2 * MIB).counts.entries == 330
        peak = client.info("memory")["used_memory_peak"]
    assert max(size for _, size in trips) <= 2 * MIB + MIB + 100
    assert peak - held < 24 * MIB  # eight entries at a time


def test_without_scripts_pages_are_bounded_where_large_entries_behind_small_ones_make_a_reply_large(
    watch,
):
    with server_with_users() as (server, client), open_as("plain", server) as source:
        large_stream(client, 30, MIB, small_before=300)
        trips = watch(source, client, "plain")
        pages = [
            b.rows for b in read_source(source, reply_bytes=2 * MIB) if isinstance(b, EntryPage)
        ]
    assert max(size for _, size in trips) > 20 * MIB  # as `live.entries` says
    assert max(sum(map(payload, rows)) for rows in pages) <= 3 * MIB
    assert sum(map(len, pages)) == 330


def test_with_scripts_the_server_asks_for_fewer_entries_the_larger_those_before_were():
    """No payload is sent here: what the server holds at its peak is one range of the script."""
    with server_with_users() as (server, client), open_as("scripted", server) as source:
        large_stream(client, 30, MIB)
        held = client.info("memory")["used_memory"]
        assert read(source, fields=False, reply_bytes=5 * MIB).counts.entries == 30
        peak = client.info("memory")["used_memory_peak"]
    assert 2 * MIB < peak - held < 3 * MIB  # one entry, two, one again; not four


def test_without_scripts_one_large_entry_slows_the_reading_for_a_while_only(
    client, open_here, user
):
    """COUNT is cut to 1 behind it and doubles again."""
    stream_with_group(client, n=500, delivered=0)
    client.xadd("s", {"a": "x" * MIB}, id="501-0")
    with client.pipeline() as pipe:
        for n in range(502, 1003):
            pipe.xadd("s", {"a": "1"}, id=f"{n}-0")
        pipe.execute()
    deliver(client, "s", "g", "c", 2000)
    source = open_here(**user(*WITH_AND_WITHOUT_SCRIPTS["plain"]))
    client.config_resetstat()
    assert read(source, reply_bytes=MIB).counts.entries == 1002
    # 1, 2, 4 … 256, of which the last has the large one, and once more
    assert client.info("commandstats")["cmdstat_xrange"]["calls"] == 18


def test_an_id_that_several_groups_have_pending_is_asked_for_once(client, source):
    stream_with_group(client, n=30)
    for group in ("h", "i"):
        client.xgroup_create("s", group, id="0")
        deliver(client, "s", group, "c", 30)
    client.config_resetstat()
    assert read(source, entry_page=10).counts.entries == 30
    calls = client.info("commandstats")["cmdstat_eval_ro"]["calls"]
    assert calls == 2 + 3  # the stream's state, before and after; three pages


def test_scripts_do_not_walk_further_than_the_budget_over_payloads_that_nobody_asked_for(
    client, source
):
    """What is not pending does not cross the network, and still costs the server its time."""
    stream_with_group(client, n=1, delivered=1)
    for n in range(2, 52):
        client.xadd("s", {"a": "x" * 100_000}, id=f"{n}-0")
    client.xadd("s", {"a": "1"}, id="60-0")
    client.execute_command("XCLAIM", "s", "g", "c", 0, "60-0", "FORCE")
    client.config_resetstat()
    assert read(source, reply_bytes=MIB).counts.entries == 52
    calls = client.info("commandstats")["cmdstat_eval_ro"]["calls"]
    assert calls == 2 + 5  # the stream's state, before and after; 5 MB by 1 MiB
