"""Pending entries, as `claimlib xpending` lists them for people and for programs."""

import csv
import io
import json

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.names import spell
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import append, entry_row, pending_row

NOW_MS = 1_750_000_000_000
DELIVERED_MS = NOW_MS - 3 * 3_600_000 - 55_000
DELIVERED = "2025-06-15T12:05:45.000Z"


POISON = b'{"to": "\x1b[2J\xff' + "é".encode() * 300


def group_of(*owned):
    """A group whose entries 1-0, 2-0, … have these owners, delivery times and delivery counts."""
    pending = (
        PendingEntry(StreamId(n, 0), name, time_ms, count)
        for n, (name, time_ms, count) in enumerate(owned, 1)
    )
    return Group(StreamId(9, 0), tuple(pending), (Consumer(b"bob", NOW_MS, None),))


@pytest.fixture
def where(store):
    """Groups of two streams: bob owns three of the six entries, and two of five deliveries or more
    are his."""
    payload = (b"order", b"17", b"body", POISON)
    entries = {StreamId(1, 0): payload, StreamId(2, 0): (b"f", b"v")}
    orders = group_of((b"bob", DELIVERED_MS, 7), (b"ann", NOW_MS - 5, 1), (b"bob", NOW_MS - 5, 2))
    mails = group_of((b"bob", NOW_MS - 90_000, 5), (b"ann", NOW_MS - 90_000, 9), (None, 5, 1))
    keyspace = {b"orders": Stream(entries, {b"g\n": orders}), b"mails": Stream({}, {b"h": mails})}
    write_keyspace(store, keyspace, NOW_MS)
    append(store, "entries", entry_row("mails", 2, None))
    return store.where


def records(out, output):
    if output == "jsonl":
        return [json.loads(line) for line in out.splitlines()]
    return list(csv.DictReader(io.StringIO(out)))


def test_an_entry_for_programs_names_its_stream_its_group_and_when_it_was_delivered(
    claimlib, where
):
    words = ("xpending", where, "orders", r"g\u000a", "--count", "1", "--quiet", "--output")
    (listed,) = json.loads(claimlib(*words, "json").out)["rows"]
    assert listed == {
        "stream": "orders",
        "consumer_group": "g\n",
        "id": "1-0",
        "consumer": "bob",
        "idle_ms": 10_855_000,
        "delivery_time_ms": DELIVERED_MS,
        "delivery_time": DELIVERED,
        "delivery_count": 7,
    }
    for output in ("jsonl", "csv"):
        said = claimlib(*words, output)
        cut = "claimlib: 1 of 3 entries shown; --start '(1-0' shows the next\n"
        assert said.err == cut
        (record,) = records(said.out, output)
        assert record == (listed if output == "jsonl" else {k: str(v) for k, v in listed.items()})


def test_delivery_times_can_be_chosen_for_the_table_as_text_and_as_a_number(claimlib, where):
    words = ("xpending", where, "orders", r"g\u000a", "--count", "9")
    assert "3h0m" in claimlib(*words).out
    chosen = claimlib(*words, "--columns", "id,idle,delivery_time,delivery_time_ms").out
    assert chosen.splitlines()[3].split() == ["1-0", "3h0m", DELIVERED, str(DELIVERED_MS)]


def test_the_payload_of_an_entry_is_shown_up_to_some_bytes_or_it_is_said_why_there_is_none(
    claimlib, where
):
    words = ("xpending", where, "orders", r"g\u000a", "--count", "9", "--fields")
    document = json.loads(claimlib(*words, "--output", "json").out)
    first, second, gone = document["rows"]
    size = len(b"order" + b"17" + b"body" + POISON)
    body = r'{"to": "' + "\x1b" + r"[2J\xff" + "é" * 244
    assert first["fields"] == [["order", "17"], ["body", body]]
    assert (first["payload"], first["payload_bytes"]) == ("present", size)
    assert first["bytes_not_shown"] == size - 512 == 112
    assert (second["fields"], second["bytes_not_shown"]) == ([["f", "v"]], 0)
    assert [gone[name] for name in ("payload", "payload_bytes", "fields")] == ["gone", None, None]
    shown = claimlib(*words).out
    assert f'order=17  body={{"to": "\\u001b[2J\\xff{"é" * 244} ... 112 of 624 bytes' in shown
    assert "1 payload is cut to its first 512 bytes; use --max-bytes to show more" in shown
    assert "1 of these has no payload, because its stream entry no longer exists" in shown


@pytest.mark.parametrize(("most", "fields"), [("1", [["o", ""]]), ("7", [["order", "17"]])])
def test_bytes_that_are_cut_off_are_said_to_programs_too_quiet_or_not(
    claimlib, where, most, fields
):
    words = ("xpending", where, "orders", r"g\u000a", "--count", "1", "--fields", "--quiet")
    for output in ("jsonl", "csv"):
        said = claimlib(*words, "--max-bytes", most, "--output", output)
        assert f"claimlib: 1 payload is cut to its first {most} bytes; use" in said.err
        (record,) = records(said.out, output)
        assert int(record["bytes_not_shown"]) == int(record["payload_bytes"]) - int(most)
        assert fields == (json.loads(record["fields"]) if output == "csv" else record["fields"])
    everything = claimlib(*words, "--max-bytes", 624, "--output", "jsonl").out
    assert json.loads(everything)["fields"][1] == ["body", spell(POISON)]
    assert "\x1b" not in everything


def test_a_payload_that_the_store_never_had_is_said_to_be_not_kept(claimlib, where):
    said = claimlib("xpending", where, "mails", "h", "--count", "9", "--fields")
    assert [line.split()[-2:] for line in said.out.splitlines()[3:6]] == [
        ["gone", "-"],
        ["not_kept", "-"],
        ["gone", "-"],
    ]
    assert "1 of these has no payload, because the store never had it" in said.out


def listed(claimlib, where, *words):
    """The stream, the group and the id of each entry, and the JSON document."""
    said = claimlib("xpending", where, *words, "--output", "json")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    return [(row["stream"], row["consumer_group"], row["id"]) for row in document["rows"]], document


OLDEST, OF_BOB = ("orders", "g\n", "1-0"), ("mails", "h", "1-0")
OFTENEST = ("mails", "h", "2-0")


@pytest.mark.parametrize(
    ("words", "entries"),
    [
        (("--consumer", "bob"), [OLDEST, OF_BOB, ("orders", "g\n", "3-0")]),
        (("--consumer", "bob", "--idle", "1m"), [OLDEST, OF_BOB]),
        (("--min-deliveries", "5"), [OFTENEST, OLDEST, OF_BOB]),
        (("--min-deliveries", "5", "--consumer", "bob"), [OLDEST, OF_BOB]),
        (("--min-deliveries", "5", "--stream", "m*"), [OFTENEST, OF_BOB]),
        (("--min-deliveries", "10"), []),
        (("--idle", "1m", "--group", "h"), [("mails", "h", "3-0"), OFTENEST, OF_BOB]),
        (("mails", "h", "--min-deliveries", "5"), [OF_BOB, OFTENEST]),
        (("mails", "h", "--consumer", "bob"), [OF_BOB]),
    ],
)
def test_entries_of_all_groups_are_chosen_by_owner_deliveries_and_idle_time(
    claimlib, where, words, entries
):
    keys, document = listed(claimlib, where, *words)
    assert keys == entries
    assert document["rows_not_shown"] == 0
    if words[0] != "mails":
        groups = {entry[:2] for entry in entries}
        assert (document["entries"], document["groups"]) == (len(entries), len(groups))


def test_a_list_that_is_cut_says_how_many_entries_there_are_in_all(claimlib, where):
    said = claimlib("xpending", where, "--consumer", "bob", "--count", "2")
    lines = said.out.splitlines()
    assert lines[0] == f"Pending in {where}: 3 entries in 2 groups"
    assert lines[3].split() == ["orders", r"g\u000a", "1-0", "bob", "3h0m", "7"]
    assert lines[-1] == "2 of 3 entries shown; use --count to show more"
    said = claimlib("xpending", where, "--count", "1", "--output", "jsonl", "--quiet")
    assert json.loads(said.out)["id"] == "3-0"
    assert said.err == "claimlib: 1 of 6 entries shown; use --count to show more\n"


def test_payloads_are_shown_of_entries_of_all_groups(claimlib, where):
    words = ("xpending", where, "--min-deliveries", "5", "--count", "2", "--fields", "--max-bytes")
    said = claimlib(*words, "7", "--output", "jsonl", "--quiet")
    first, second = (json.loads(line) for line in said.out.splitlines())
    assert (first["id"], first["stream"], first["payload"]) == ("2-0", "mails", "not_kept")
    assert (second["stream"], second["fields"]) == ("orders", [["order", "17"]])


def test_a_consumer_that_no_group_knows_is_not_taken_for_one_without_entries(claimlib, where):
    said = claimlib("xpending", where, "--consumer", "bbo")
    assert (said.code, said.out) == (2, "")
    assert "no consumer group has a consumer bbo; known consumers: bob" in said.err
    assert (
        "no entry matches" in claimlib("xpending", where, "--consumer", "ann", "--idle", "9w").out
    )
    said = claimlib("xpending", where, "mails", "h", "--consumer", "bbo")
    assert (said.code, "mails / h has no consumer bbo; known" in said.err) == (2, True)
    said = claimlib("xpending", where, "--consumer", "bob", "--stream", "nosuch")
    assert (said.code, said.out) == (2, "")
    assert "no consumer group of " in said.err


def test_entries_whose_idle_time_is_not_known_are_counted(claimlib, store, where):
    append(store, "pending", pending_row("imported", 1), pending_row("imported", 2))
    said = claimlib("xpending", where, "--idle", "1h")
    assert "2 more entries may match: their groups have no snapshot time" in said.out
    assert "may match" not in claimlib("xpending", where, "--idle", "1h", "--now", NOW_MS).out


def test_groups_and_consumers_have_times_beside_the_durations(claimlib, where):
    words = ("--columns", "stream,oldest_delivery_time,oldest_delivery_time_ms,now_ms")
    shown = claimlib("xpending", where, *words, "--stream", "orders").out.splitlines()
    assert shown[3].split() == ["orders", DELIVERED, str(DELIVERED_MS), str(NOW_MS)]
    words = ("describe", where, "orders", "--output", "jsonl")
    consumers = {row["consumer"]: row for row in records(claimlib(*words).out, "jsonl")}
    bob, ann = consumers["bob"], consumers["ann"]
    assert (bob["oldest_delivery_time"], bob["oldest_delivery_time_ms"]) == (
        DELIVERED,
        DELIVERED_MS,
    )
    assert bob["seen_time"] == "2025-06-15T15:06:40.000Z"
    assert (bob["active_time"], ann["seen_time"]) == (None, None)


@pytest.mark.parametrize("output", ["json", "csv", "jsonl"])
def test_a_list_of_payloads_is_limited_unless_count_says_more_and_says_so(
    claimlib, where, monkeypatch, output
):
    monkeypatch.setattr("claimlib.cli.reading_commands.MOST_ROWS", 2)
    words = ("xpending", where, "--output", output, "--quiet")

    def number(*options):
        said = claimlib(*words, *options)
        rows = json.loads(said.out)["rows"] if output == "json" else records(said.out, output)
        return len(rows), said.err

    assert number("--idle", "0ms")[0] == 6
    assert number("--fields", "--count", "4")[0] == 4
    shown, err = number("--fields")
    assert shown == 2
    if output != "json":  # the document counts them
        assert err.startswith("claimlib: 2 of 6 entries shown; use --count to show more\n")
