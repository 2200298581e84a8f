"""The reader against a real server.

Other clients' traffic is driven between the reader's batches, without threads: the generator stands
still at each batch, so what the server holds then is what it held when the batch was read.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from claimlib.errors import (
    GlobError,
    PermissionDeniedError,
    RequestError,
    SourceUnreachableError,
    WrongTypeError,
)
from claimlib.live.batches import (
    ConsumerRow,
    Counts,
    EntryPage,
    EntryRow,
    GroupDone,
    PendingPage,
    PendingRow,
    SourceDone,
    SourceOpened,
    StreamDone,
)
from claimlib.live.reader import read_source
from claimlib.live.reading import ServerReading
from claimlib.semantics.ids import MAX_ID, MAX_U64, StreamId, parse_id, successor
from claimlib.semantics.stream_life import StreamCounters
from tests.live.readings import (
    LEAST_RIGHTS,
    Read,
    add,
    deliver,
    drive,
    ids_of,
    once,
    read,
    stream_with_group,
    without,
)


def server_state(source, stream):
    """The groups as XINFO STREAM FULL tells them: delivery times outright, not as idle times."""
    reply = source.call("XINFO", "STREAM", stream, "FULL", "COUNT", 0)
    groups = dict(zip(reply[::2], reply[1::2], strict=True))[b"groups"]
    return {group[1]: dict(zip(group[::2], group[1::2], strict=True)) for group in groups}


def server_pending(source, stream, group):
    return [
        PendingRow(parse_id(id_), consumer, time_ms, count)
        for id_, consumer, time_ms, count in server_state(source, stream)[group][b"pending"]
    ]


def server_consumers(source, stream, group):
    consumers = [
        dict(zip(c[::2], c[1::2], strict=True))
        for c in server_state(source, stream)[group][b"consumers"]
    ]
    return tuple(
        ConsumerRow(
            c[b"name"],
            c[b"seen-time"],
            None if c[b"active-time"] == -1 else c[b"active-time"],
        )
        for c in consumers
    )


# --- exactness


def test_delivery_times_are_those_of_the_server_to_the_millisecond(client, source):
    stream_with_group(client, n=300, delivered=100, consumer=b"one")
    deliver(client, b"s", b"g", b"two", 100)
    deliver(client, b"s", b"g", b"one", 100)
    client.execute_command("XCLAIM", "s", "g", "three", 0, "5-0", "TIME", 0, "RETRYCOUNT", 0)
    client.execute_command("XCLAIM", "s", "g", "three", 0, "6-0", "IDLE", 3_600_000)
    client.execute_command("XCLAIM", "s", "g", "two", 0, "7-0", "RETRYCOUNT", 2**63 - 1)
    expected = server_pending(source, b"s", b"g")
    assert {row.delivery_count for row in expected} == {0, 1, 2, 2**63 - 1}
    for page in (1, 7, 1000):  # with a page of 1 the clock moves on while the group is read
        assert read(source, pending_page=page).pending[b"s", b"g"] == expected


def test_consumers_have_their_seen_and_active_times_and_null_for_never_active(client, source):
    stream_with_group(client, n=3)
    client.xgroup_createconsumer("s", "g", "idle")
    client.execute_command("XREADGROUP", "GROUP", "g", "late", "STREAMS", "s", ">")
    expected = server_consumers(source, b"s", b"g")
    done = read(source).groups[b"s", b"g"]
    assert done.consumers == expected
    active = {consumer.name: consumer.active_time_ms is not None for consumer in expected}
    assert active == {b"c": True, b"idle": False, b"late": False}


def test_a_group_has_the_servers_time_and_the_last_delivered_id(client, source):
    stream_with_group(client, n=5, delivered=3)
    before = source.call("TIME")
    done = read(source, pending_page=1).groups[b"s", b"g"]
    after = source.call("TIME")
    assert _ms(before) <= done.snapshot_ms <= _ms(after)
    assert (done.last_delivered_id, done.pending_count) == (StreamId(3, 0), 3)


def test_every_page_of_a_group_carries_the_instant_of_the_first(client, source):
    stream_with_group(client, n=40)
    batches = list(read_source(source, pending_page=2))
    instants = {batch.snapshot_ms for batch in batches if isinstance(batch, PendingPage)}
    (done,) = [batch for batch in batches if isinstance(batch, GroupDone)]
    (stream,) = [batch for batch in batches if isinstance(batch, StreamDone)]
    assert instants == {done.snapshot_ms}
    assert done.snapshot_ms <= stream.read_ms


def _ms(time):
    return int(time[0]) * 1000 + int(time[1]) // 1000


def test_the_stream_is_told_with_its_length_its_last_id_and_the_span_that_was_read(client, source):
    stream_with_group(client, n=9, delivered=7)
    client.xack("s", "g", "1-0", "2-0")
    client.xgroup_create("s", "later", id="0")
    client.xdel("s", "4-0")
    done = read(source).streams[b"s"]
    assert (done.length, done.last_generated_id) == (8, StreamId(9, 0))
    assert done.entries_added == 9, "the deleted one counts"
    assert (done.complete_from, done.complete_to) == (StreamId(3, 0), StreamId(7, 0))
    assert (done.group_count, done.pending_count, done.entry_count) == (2, 5, 4)


# --- names, values and ids of every kind


NAMES = [b"", b"\xff\xfe", b"\\", b"\n\r\n", b"a b", "ü".encode(), b"\x00", b"*", b"[x", b"x"]


def test_names_and_values_are_the_bytes_that_the_server_holds(client, source):
    for name in NAMES:
        client.execute_command("XADD", name, "1-1", name, b"", b"", name)
        client.xgroup_create(name, name, id="0")
        deliver(client, name, name, name, 1)
    result = read(source)
    assert set(result.streams) == set(NAMES)
    for name in NAMES:
        (row,) = result.pending[name, name]
        assert (row.id, row.consumer) == (StreamId(1, 1), name)
        assert [consumer.name for consumer in result.groups[name, name].consumers] == [name]
        assert result.entries[name] == [EntryRow(StreamId(1, 1), ((name, b""), (b"", name)))]


def test_fields_keep_their_order_and_their_repetitions(client, source):
    client.execute_command("XADD", "s", "1-0", "b", 1, "a", 2, "b", 3, "b", 1)
    client.xgroup_create("s", "g", id="0")
    deliver(client, "s", "g", "c", 1)
    (entry,) = read(source).entries[b"s"]
    assert entry.fields == ((b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"b", b"1"))


EDGES = [
    StreamId(0, 1),
    StreamId(0, MAX_U64),
    StreamId(2**53, 0),
    StreamId(2**53 + 1, 2**53 + 1),
    StreamId(2**63 - 1, 2**63 - 1),
    StreamId(2**63 - 1, 2**63),
    StreamId(2**63, 0),
    StreamId(MAX_U64, 0),
    StreamId(MAX_U64, MAX_U64 - 1),
    MAX_ID,
]


@pytest.mark.parametrize("page", [1, 2, 3, 10, 11])
def test_ids_at_the_edges_of_the_unsigned_range_are_read_in_order(client, source, page):
    add(client, "s", *map(str, EDGES))
    client.xgroup_create("s", "g", id="0")
    deliver(client, "s", "g", "c", len(EDGES))
    result = read(source, pending_page=page, entry_page=page)
    assert [row.id for row in result.pending[b"s", b"g"]] == EDGES
    assert [row.id for row in result.entries[b"s"]] == EDGES
    assert [row.fields for row in result.entries[b"s"]] == [
        ((b"n", str(e).encode()),) for e in EDGES
    ]
    done = result.streams[b"s"]
    assert (done.complete_from, done.complete_to) == (EDGES[0], MAX_ID)
    assert (done.last_generated_id, result.groups[b"s", b"g"].last_delivered_id) == (MAX_ID, MAX_ID)


@pytest.mark.parametrize("page", [100, 101, 200])
def test_a_page_of_many_entries_may_end_at_the_largest_id(client, source, page):
    ids = [f"{i}-0" for i in range(1, 100)] + [str(MAX_ID)]
    add(client, "s", *ids)
    client.xgroup_create("s", "g", id="0")
    deliver(client, "s", "g", "c", 100)
    assert ids_of(read(source, entry_page=page).entries[b"s"]) == ids


# --- which entries, which payloads


@pytest.fixture(params=["with scripts", "without scripts"])
def either_source(request, open_here, user):
    """A source that may run scripts, and one that may not: the rows must be the same."""
    rights = LEAST_RIGHTS if request.param == "with scripts" else without(LEAST_RIGHTS, "+eval_ro")
    return open_here(**user(*rights))


@pytest.mark.parametrize("page", [1, 2, 3, 7, 1000])
def test_the_span_of_the_pending_ids_is_read_and_payloads_of_pending_entries_only(
    client, either_source, page
):
    stream_with_group(client, n=30)
    client.xack("s", "g", *[f"{i}-0" for i in range(1, 31) if i not in {5, 6, 7, 8, 21, 25}])
    client.xdel("s", "7-0", "9-0", "25-0")
    result = read(either_source, entry_page=page, pending_page=page)
    assert ids_of(result.pending[b"s", b"g"]) == ["5-0", "6-0", "7-0", "8-0", "21-0", "25-0"]
    there = [i for i in range(5, 25) if i not in {7, 9}]
    kept = {5, 6, 8, 21}
    assert result.entries[b"s"] == [
        EntryRow(StreamId(i, 0), ((b"n", b"%d-0" % i),) if i in kept else None) for i in there
    ]
    done = result.streams[b"s"]
    assert (done.complete_from, done.complete_to) == (StreamId(5, 0), StreamId(25, 0))


@pytest.mark.parametrize("page", [1, 3, 1000])
def test_the_span_and_the_payloads_are_those_of_all_groups_together(client, either_source, page):
    stream_with_group(client, n=12, group=b"g", delivered=6)
    client.xgroup_create("s", "h", id="7")
    deliver(client, "s", "h", "c", 3)
    client.xack("s", "g", "1-0", "2-0", "4-0")
    result = read(either_source, entry_page=page)
    kept = {row.id.ms for row in result.entries[b"s"] if row.fields is not None}
    assert kept == {3, 5, 6, 8, 9, 10}
    assert ids_of(result.entries[b"s"]) == [f"{i}-0" for i in range(3, 11)]


@pytest.mark.parametrize("delivered", [2, 400])  # few pending, and all of them
def test_large_pages_of_few_and_of_many_pending_entries_are_whole(client, either_source, delivered):
    stream_with_group(client, n=400)
    client.xack("s", "g", "0-1", *[f"{i}-0" for i in range(2, 402 - delivered)])
    result = read(either_source, entry_page=250)
    assert len(result.entries[b"s"]) == 400
    kept = [row for row in result.entries[b"s"] if row.fields is not None]
    assert ids_of(kept) == ids_of(result.pending[b"s", b"g"])
    assert len(kept) == delivered


def test_without_fields_no_payload_is_read(client, either_source):
    stream_with_group(client, n=5)
    result = read(either_source, fields=False, entry_page=2)
    assert result.entries[b"s"] == [EntryRow(StreamId(i, 0), None) for i in range(1, 6)]


def test_with_scripts_payloads_that_are_not_needed_stay_on_the_server(client, source):
    add(client, "s", *[f"{i}-0" for i in range(1, 101)], payload="x" * 10_000)
    client.xgroup_create("s", "g", id="0")
    deliver(client, "s", "g", "c", 100)
    client.xack("s", "g", *[f"{i}-0" for i in range(2, 100)])
    sent = client.info("stats")["total_net_output_bytes"]
    assert len(read(source).entries[b"s"]) == 100
    # Two payloads of a hundred, twice the first and the last one (XINFO STREAM shows them), INFO.
    assert client.info("stats")["total_net_output_bytes"] - sent < 80_000


def test_a_stream_trimmed_to_nothing_keeps_its_pending_ids_and_has_no_entries(
    client, either_source
):
    stream_with_group(client, n=5)
    client.xtrim("s", maxlen=0, approximate=False)
    result = read(either_source, pending_page=2, entry_page=2)
    assert len(result.pending[b"s", b"g"]) == 5
    done = result.streams[b"s"]
    assert (done.length, done.entry_count, done.last_generated_id) == (0, 0, StreamId(5, 0))
    assert (done.complete_from, done.complete_to) == (StreamId(1, 0), StreamId(5, 0))


def test_a_group_without_pending_entries_is_reported_with_its_consumers(client, source):
    stream_with_group(client, n=2)
    client.xack("s", "g", "1-0", "2-0")
    result = read(source)
    done = result.groups[b"s", b"g"]
    assert (done.pending_count, [consumer.name for consumer in done.consumers]) == (0, [b"c"])
    stream = result.streams[b"s"]
    assert (stream.complete_from, stream.complete_to, stream.entry_count) == (None, None, 0)
    assert result.pending == {}


def test_a_stream_without_any_group_is_reported_too(client, source):
    add(client, "s", "1-0", "2-0")
    result = read(source)
    done = result.streams[b"s"]
    assert (done.length, done.group_count, done.complete_from) == (2, 0, None)
    assert result.counts == Counts(1, 0, 0, 0, result.counts.commands, 0)


def test_an_empty_server_gives_nothing_but_who_it_is_and_the_counts(client, source):
    client.set("text", "x")
    opened = SourceOpened(source.server.run_id, source.server.replication_id)
    # SCAN, and in the end HELLO and INFO again
    assert list(read_source(source)) == [opened, SourceDone(Counts(commands=3))]


# --- globs


def test_globs_choose_streams_and_groups_and_other_types_are_passed_over(client, source):
    for stream in (b"orders:1", b"orders:2", b"orders", b"other:1"):
        stream_with_group(client, stream, b"audit", n=1)
        client.xgroup_create(stream, b"Audit", id="0")
        client.xgroup_create(stream, b"ship", id="0")
    client.set("orders:3", "not a stream")
    result = read(source, stream_glob="orders:[0-9]", group_glob="[aA]ud*")
    assert set(result.streams) == {b"orders:1", b"orders:2"}
    assert set(result.groups) == {
        (stream, group) for stream in result.streams for group in (b"audit", b"Audit")
    }


def test_a_glob_escapes_characters_and_matches_single_bytes(client, source):
    for stream in (b"a*", b"ab", b"\xff", b"\xff\xff"):
        stream_with_group(client, stream, n=1)
    assert set(read(source, stream_glob=r"a\*").streams) == {b"a*"}
    assert set(read(source, stream_glob=b"\xff?").streams) == {b"\xff\xff"}
    assert set(read(source, stream_glob="\udcff").streams) == {b"\xff"}  # as argv brings it
    assert set(read(source, group_glob=b"\xff").groups) == set()


def test_a_name_without_glob_characters_is_read_without_searching(client, source):
    stream_with_group(client, b"s", n=1)
    stream_with_group(client, b"t", n=1)
    client.config_resetstat()
    result = read(source, stream_glob="s")
    assert set(result.streams) == {b"s"}
    assert "cmdstat_scan" not in client.info("commandstats")


def test_a_name_that_is_not_there_did_not_vanish_while_it_was_read(client, source):
    stream_with_group(client, b"t", n=1)
    result = read(source, stream_glob="s")
    assert result.gone == []
    assert (result.counts.streams, result.counts.vanished) == (0, 0)


def test_a_name_whose_key_is_no_stream_is_an_error_that_names_the_key(client, source):
    client.set("text", "x")
    with pytest.raises(WrongTypeError, match="key text on"):
        read(source, stream_glob="text")


@pytest.mark.parametrize("option", ["stream_glob", "group_glob"])
@pytest.mark.parametrize("glob", ["", "[a", "a\\"])
def test_a_glob_that_cannot_be_matched_is_refused_before_anything_is_sent(source, option, glob):
    sent = source.commands_sent
    with pytest.raises(GlobError):
        read_source(source, **{option: glob})
    assert source.commands_sent == sent


@pytest.mark.parametrize("option", ["pending_page", "entry_page", "scan_page", "reply_bytes"])
def test_a_page_of_nothing_is_refused(source, option):
    with pytest.raises(RequestError, match=f"{option} must be at least 1"):
        read_source(source, **{option: 0})


def test_a_name_that_scan_gives_twice_is_read_once(client, source, monkeypatch):
    for n in range(5):
        stream_with_group(client, b"s%d" % n, n=1)
    real_call = source.call

    def call(*words):
        reply = real_call(*words)
        return [reply[0], reply[1] * 2] if words[0] == "SCAN" else reply

    monkeypatch.setattr(source, "call", call)
    result = read(source, scan_page=2)
    assert (result.counts.streams, result.counts.groups, result.counts.pending) == (5, 5, 5)


# --- spans that others need


def span(first, last):
    return StreamId(first, 0), StreamId(last, 0)


def read_span(result):
    """Which entries were read, of which with payload, and the range that they are told to fill."""
    rows, done = result.entries[b"s"], result.streams[b"s"]
    kept = [row.id.ms for row in rows if row.fields is not None]
    return [row.id.ms for row in rows], kept, (done.complete_from, done.complete_to)


@pytest.mark.parametrize(
    ("also", "whole"),
    [
        (span(2, 12), span(2, 12)),  # around what is pending
        (span(2, 5), span(2, 8)),
        (span(7, 12), span(5, 12)),
        (span(6, 7), span(5, 8)),  # within
        (span(20, 25), span(5, 25)),  # apart: one range holds both
        (span(1, 1), span(1, 8)),
        (span(29, 40), span(5, 40)),  # beyond what the stream has
    ],
)
@pytest.mark.parametrize("page", [1, 3, 1000])
def test_the_span_that_other_groups_need_is_read_too_without_their_payloads(
    client, either_source, also, whole, page
):
    stream_with_group(client, n=30)
    client.xack("s", "g", *[f"{i}-0" for i in range(1, 31) if i not in {5, 6, 8}])
    client.xgroup_create("s", "other", id="0")
    deliver(client, "s", "other", "c", 30)
    client.xdel("s", "6-0", "9-0")
    result = read(either_source, group_glob="g", entry_page=page, also_spans={b"s": also})
    there = [i for i in range(whole[0].ms, min(whole[1].ms, 30) + 1) if i not in {6, 9}]
    assert read_span(result) == (there, [5, 8], whole)
    assert set(result.groups) == {(b"s", b"g")}
    assert result.counts.entries == len(there)


def test_the_span_that_other_groups_need_is_read_where_the_group_has_nothing_pending(
    client, either_source
):
    stream_with_group(client, n=9, delivered=0)
    result = read(either_source, also_spans={b"s": span(3, 5)})
    assert read_span(result) == ([3, 4, 5], [], span(3, 5))


def test_a_span_is_left_where_no_group_is_read_and_in_streams_that_it_does_not_name(client, source):
    stream_with_group(client, b"s", n=9)
    stream_with_group(client, b"t", b"h", n=3)
    result = read(source, group_glob="h", also_spans={b"s": span(1, 9)})
    assert read_span(result) == ([], [], (None, None))
    assert ids_of(result.entries[b"t"]) == ["1-0", "2-0", "3-0"]


def test_a_span_is_left_where_the_group_is_destroyed_while_it_is_read(client, source):
    stream_with_group(client, n=9)
    act = once(is_page, lambda: client.xgroup_destroy("s", "g"))
    result = drive(source, act, pending_page=2, also_spans={b"s": span(1, 9)})
    assert read_span(result) == ([], [], (None, None))


def test_a_span_that_ends_before_it_begins_is_refused_before_anything_is_sent(source):
    sent = source.commands_sent
    with pytest.raises(RequestError, match=r"the span of stream s\\xff ends at 1-0, before .* 2-0"):
        read_source(source, also_spans={b"s\xff": span(2, 1)})
    assert source.commands_sent == sent


# --- replies of another form


def changed_replies(source, monkeypatch, command, change):
    """Replies to one command become what `change` makes of them."""
    transaction = source.transaction

    def changed(*commands):
        replies = transaction(*commands)
        return [
            change(reply) if words[: len(command)] == command else reply
            for words, reply in zip(commands, replies, strict=True)
        ]

    monkeypatch.setattr(source, "transaction", changed)


def rows_of(change):
    """Changes each row of a reply; the summary of XPENDING is no rows."""
    return lambda reply: [change(row) for row in reply] if isinstance(reply[0], list) else reply


def test_what_a_later_server_may_add_to_a_pending_row_is_passed_over(client, source, monkeypatch):
    stream_with_group(client, n=5)
    changed_replies(source, monkeypatch, ("XPENDING",), rows_of(lambda row: [*row, b"more"]))
    assert len(read(source).pending[b"s", b"g"]) == 5


@pytest.mark.parametrize(
    ("command", "change", "why"),
    [
        (("XPENDING",), rows_of(lambda row: row[:3]), "not enough values"),
        (("XINFO", "CONSUMERS"), rows_of(lambda row: row[:2]), "it has no idle"),
        (("XINFO", "CONSUMERS"), rows_of(lambda row: row[:3]), "zip"),
        (("XINFO", "CONSUMERS"), lambda _reply: None, "NoneType"),
        (("EVAL_RO",), lambda reply: reply[:2], "it has no last-generated-id"),
    ],
)
def test_a_reply_of_another_form_is_named_with_its_command(
    client, source, monkeypatch, command, change, why
):
    stream_with_group(client, n=5)
    changed_replies(source, monkeypatch, command, change)
    named = "XINFO STREAM" if command == ("EVAL_RO",) else " ".join(command)
    with pytest.raises(RequestError, match=rf"the reply of .* to {named} .* \(.*{why}.*\)"):
        read(source)


def test_a_server_reading_hands_on_the_spans_that_others_need(client, server):
    stream_with_group(client, n=9, delivered=2)
    reading = ServerReading(server.url, group_glob="g")
    result = Read()
    for batch in reading({b"s": span(4, 5)}):
        result.take(batch)
    assert read_span(result) == ([1, 2, 3, 4, 5], [1, 2], span(1, 5))


# --- rights


def test_the_documented_rights_suffice_and_nothing_is_denied(client, open_here, user):
    stream_with_group(client, n=5)
    result = read(open_here(**user(*LEAST_RIGHTS, "+client|setinfo")), pending_page=2, entry_page=2)
    assert result.counts.pending == 5
    assert client.execute_command("ACL", "LOG") == []


@pytest.mark.parametrize(
    "right",
    [
        right
        for right in LEAST_RIGHTS
        if right.startswith("+") and right not in {"+info", "+eval_ro", "+xrange"}
    ],
)
def test_each_documented_right_is_needed_and_its_lack_is_named(client, open_here, user, right):
    stream_with_group(client, n=1)
    with pytest.raises(PermissionDeniedError) as denied:
        read(open_here(**user(*without(LEAST_RIGHTS, right))))
    assert denied.value.command == right.removeprefix("+")


def test_without_the_right_to_xrange_the_error_names_it(client, open_here, user):
    stream_with_group(client, n=1)
    with pytest.raises(PermissionDeniedError, match="xrange"):
        read(open_here(**user(*without(LEAST_RIGHTS, "+xrange"))))


def test_without_scripts_they_are_tried_once(client, open_here, user):
    for n in range(3):
        stream_with_group(client, b"s%d" % n, n=5)
    source = open_here(**user(*without(LEAST_RIGHTS, "+eval_ro"), "+client|setinfo"))
    assert read(source, entry_page=2).counts.entries == 15
    (denied,) = client.execute_command("ACL", "LOG")
    assert dict(zip(denied[::2], denied[1::2], strict=True))[b"count"] == 1


def test_a_stream_that_may_not_be_read_is_named(client, open_here, user):
    stream_with_group(client, b"orders", n=1)
    stream_with_group(client, b"secret", n=1)
    source = open_here(**user(*without(LEAST_RIGHTS, "%R~*"), "%R~orders*"))
    with pytest.raises(PermissionDeniedError, match="key secret") as denied:
        read(source)
    assert denied.value.key == "secret"
    assert set(read(source, stream_glob="orders*").streams) == {b"orders"}


def test_reading_changes_nothing_and_sends_commands_that_read_only(client, either_source, source):
    stream_with_group(client, n=20)
    client.xdel("s", "3-0")
    before = server_state(source, b"s")
    client.config_resetstat()
    read(either_source, pending_page=3, entry_page=3)
    sent = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    documented = {right.removeprefix("+") for right in LEAST_RIGHTS if right.startswith("+")}
    assert sent - {"config|resetstat", "hello"} <= documented  # HELLO takes no right
    assert server_state(source, b"s") == before


# --- counts and pace


def test_the_counts_are_those_of_what_was_yielded(client, source):
    for n in range(1, 4):
        stream_with_group(client, b"s%d" % n, n=n)
        client.xgroup_create(b"s%d" % n, "empty", id="0")
    counts = read(source).counts
    assert (counts.streams, counts.groups, counts.pending, counts.entries) == (3, 6, 6, 6)
    assert counts.vanished == 0


def test_the_commands_counted_are_those_that_the_server_saw(client, open_here, user):
    stream_with_group(client, n=20)
    source = open_here(**user(*without(LEAST_RIGHTS, "+eval_ro")))
    client.config_resetstat()
    counts = read(source, pending_page=3, entry_page=3).counts
    stats = client.info("commandstats")
    # The script that is tried, and rejected, is one of them; TIME, discarded with it, is none.
    seen = sum(s["calls"] + s["rejected_calls"] for n, s in stats.items() if "config" not in n)
    assert counts.commands == seen + 1


# --- other clients meanwhile


def is_page(batch):
    return isinstance(batch, PendingPage)


def test_a_group_destroyed_while_it_is_read_is_gone_and_its_pages_are_void(client, source):
    stream_with_group(client, b"s", b"a", n=6)
    client.xgroup_create("s", "b", id="0")
    deliver(client, "s", "b", "c", 2)
    act = once(is_page, lambda: client.xgroup_destroy("s", "a"))
    result = drive(source, act, pending_page=2)
    assert result.gone == [(b"s", b"a")]
    assert set(result.pending) == {(b"s", b"b")}
    done = result.streams[b"s"]
    assert (done.group_count, done.pending_count) == (1, 2)
    assert done.complete_to == StreamId(2, 0)  # the span of what counts
    assert (result.counts.groups, result.counts.vanished) == (1, 1)


@pytest.mark.parametrize("replace", [None, "text"])
@pytest.mark.parametrize("when", [PendingPage, GroupDone])
def test_a_stream_deleted_while_it_is_read_is_gone_and_all_of_it_is_void(
    client, source, when, replace
):
    stream_with_group(client, b"s", n=6)
    stream_with_group(client, b"t", n=6)

    def vanish():
        client.delete("s")
        if replace:
            client.set("s", replace)

    result = drive(
        source,
        once(lambda batch: isinstance(batch, when) and batch.stream == b"s", vanish),
        pending_page=2,
        stream_glob="[st]",
    )
    assert result.gone[-1] == b"s"
    assert set(result.streams) == {b"t"}
    assert {stream for stream, _ in result.pending} == {b"t"}
    assert result.counts.pending == 6


@pytest.mark.parametrize("replace", [None, "text"])
def test_a_stream_deleted_between_scan_and_its_reading_is_gone(client, source, replace):
    stream_with_group(client, b"s", n=2)
    stream_with_group(client, b"t", n=2)

    def act(batch):
        if is_page(batch):
            other = {b"s": b"t", b"t": b"s"}[batch.stream]
            client.delete(other)
            if replace:
                client.set(other, replace)

    result = drive(source, act)
    assert len(result.streams) == 1
    assert len(result.gone) == 1
    assert result.counts.vanished == 1


def test_a_stream_deleted_while_its_entries_are_read_is_gone(client, source):
    stream_with_group(client, b"s", n=6)
    act = once(lambda batch: isinstance(batch, EntryPage), lambda: client.delete("s"))
    result = drive(source, act, entry_page=2)
    assert (result.gone, result.streams) == ([b"s"], {})


def test_counters_are_read_again_after_the_entries(client, either_source):
    """An entry that is deleted meanwhile counts as absent, so the counters must know of it."""
    stream_with_group(client, n=6)
    act = once(lambda batch: isinstance(batch, EntryPage), lambda: client.xdel("s", "1-0", "5-0"))
    done = drive(either_source, act, entry_page=2).streams[b"s"]
    assert (done.length, done.entries_added) == (6, 6)
    assert done.closing == StreamCounters(4, StreamId(6, 0), 6, StreamId(2, 0), StreamId(5, 0))


@pytest.mark.parametrize("page", [1, 2, 3])
def test_what_is_delivered_after_the_first_page_is_left_to_the_next_reading(client, source, page):
    """Otherwise a group that gets entries as fast as they are read would never end."""
    stream_with_group(client, n=4)

    def act(batch):
        if is_page(batch):
            for _ in range(3):
                client.xadd("s", {"a": "1"})
            deliver(client, "s", "g", "c", 3)

    result = drive(source, act, pending_page=page)
    assert ids_of(result.pending[b"s", b"g"]) == ["1-0", "2-0", "3-0", "4-0"]
    assert read(source).counts.pending > 4


def test_an_entry_deleted_before_its_page_is_read_counts_as_absent(client, either_source):
    stream_with_group(client, n=10)
    client.xack("s", "g", *[f"{i}-0" for i in range(2, 10) if i != 5])
    act = once(lambda batch: isinstance(batch, EntryPage), lambda: client.xdel("s", "5-0", "6-0"))
    result = drive(either_source, act, entry_page=4)
    assert ids_of(result.pending[b"s", b"g"]) == ["1-0", "5-0", "10-0"]
    assert ids_of(result.entries[b"s"]) == [f"{i}-0" for i in range(1, 11) if i not in {5, 6}]


def test_a_connection_that_breaks_on_the_way_ends_the_reading(client, source):
    stream_with_group(client, n=10)
    connection_id = source.call("CLIENT", "ID")
    act = once(is_page, lambda: client.execute_command("CLIENT", "KILL", "ID", connection_id))
    with pytest.raises(SourceUnreachableError):
        drive(source, act, pending_page=2)


class Traffic:
    """Acknowledges, deletes, claims, trims and adds at random, counting what it really did."""

    def __init__(self, client, streams, seed):
        self.client = client
        self.streams = streams
        self.random = random.Random(seed)
        self.done = Counter()

    def act(self):
        for stream in self.streams:
            for group in (b"g", b"h"):
                pending = self.client.xpending_range(stream, group, "-", "+", 10_000)
                ids = [row["message_id"] for row in pending]
                if ids:
                    self.change(stream, group, self.random.sample(ids, min(6, len(ids))))
            self.add(stream)

    def change(self, stream, group, ids):
        self.done["acknowledged"] += self.client.xack(stream, group, *ids[:1])
        self.done["claimed"] += len(self.client.xclaim(stream, group, "new", 0, ids[1:3]))
        self.done["deleted"] += self.client.xdel(stream, *ids[3:4])
        if self.random.random() < 0.2:
            length = self.client.xlen(stream)
            self.done["trimmed"] += self.client.xtrim(stream, maxlen=length - 2, approximate=False)
        # Acknowledged and then deleted: gone from both sides between the two readings.
        self.done["both"] += self.client.xack(stream, group, *ids[4:5])
        self.client.xdel(stream, *ids[4:5])

    def add(self, stream):
        for _ in range(2):
            self.client.xadd(stream, {"new": "x"})
            self.done["added"] += 1
        for group in (b"g", b"h"):
            deliver(self.client, stream, group, b"reader", 2)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_promise_holds_while_other_clients_go_on(client, either_source, source, seed):
    streams = [b"s", b"t"]
    for stream in streams:
        stream_with_group(client, stream, b"g", n=300)
        client.xgroup_create(stream, b"h", id="0")
        deliver(client, stream, b"h", b"slow", 200)
    traffic = Traffic(client, streams, seed)
    checked = Counter()
    start = {}  # by stream: from where on its entries are still to be read
    result = Read()

    for batch in read_source(either_source, pending_page=20, entry_page=30):
        result.take(batch)
        if isinstance(batch, PendingPage):
            # Each pending row was pending, exactly like this, when its page was read.
            assert set(batch.rows) <= set(server_pending(source, batch.stream, batch.group))
            first = min(batch.rows[0].id, start.get(batch.stream, batch.rows[0].id))
            start[batch.stream] = first
            checked["pending"] += len(batch.rows)
        elif isinstance(batch, EntryPage):
            # The entries are exactly those that the stream held when their page was read.
            end = batch.rows[-1].id
            there = source.call("XRANGE", batch.stream, str(start[batch.stream]), str(end))
            assert ids_of(batch.rows) == [id_.decode() for id_, _ in there]
            start[batch.stream] = successor(end)
            checked["entries"] += len(batch.rows)
        elif isinstance(batch, StreamDone):
            end = batch.complete_to
            assert source.call("XRANGE", batch.stream, str(start[batch.stream]), str(end)) == []
        traffic.act()

    for stream in streams:
        rows = [row for s, g in result.pending for row in result.pending[s, g] if s == stream]
        pending = {row.id for row in rows}
        absent = pending - {row.id for row in result.entries[stream]}
        checked["absent"] += len(absent)
        # Each id judged absent was absent then (see above), and is still: an id never comes back.
        for id_ in absent:
            assert source.call("XRANGE", stream, str(id_), str(id_)) == []
        for entry in result.entries[stream]:
            assert (entry.fields is not None) == (entry.id in pending)
        done = result.streams[stream]
        assert (done.complete_from, done.complete_to) == (min(pending), max(pending))

    assert min(checked[what] for what in ("pending", "entries", "absent")) > 20, checked
    kinds = ("acknowledged", "deleted", "claimed", "trimmed", "both", "added")
    assert min(traffic.done[what] for what in kinds) > 0, traffic.done
