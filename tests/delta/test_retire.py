"""Retirement over real tables: all that a consumer has goes to its recipients, and it is gone."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.retire import Retirement, retire
from claimlib.errors import GlobError, InputError, RequestError, RunKeyConflictError
from claimlib.runs import Phase
from claimlib.schema import TABLES
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.claims_story import MINUTE_MS, contents
from tests.delta.own_rows import Opener
from tests.delta.pels import NOW_MS
from tests.limits import set_limits
from tests.writing import append_rows

IDS = [StreamId(ms, 0) for ms in range(1, 9)]
DANGLING = {StreamId(2, 0), StreamId(5, 0)}
RECIPIENTS = (b"anna", b"bert")
PENDING = (
    *("stream", "consumer_group", "id_ms", "id_seq", "consumer"),
    *("delivery_time_ms", "delivery_count", "run_seq"),
)


def stream_of(owner: bytes, *known: bytes) -> Stream:
    """A group in which a consumer owns all ids but 8-0, its deliveries as many as the id says."""
    owners = [owner] * 7 + [RECIPIENTS[0]]
    pending = tuple(
        PendingEntry(stream_id, name, NOW_MS - stream_id.ms, stream_id.ms)
        for stream_id, name in zip(IDS, owners, strict=True)
    )
    names = sorted({*RECIPIENTS, *known})
    consumers = tuple(Consumer(name, NOW_MS - MINUTE_MS, None) for name in names)
    alive = dict.fromkeys([stream_id for stream_id in IDS if stream_id not in DANGLING], ())
    return Stream(alive, {b"g": Group(MAX_ID, pending, consumers)})


LEAVES = b"\xffleaves"
STREAMS = {
    b"s": stream_of(LEAVES, LEAVES, b"idle"),
    b"busy": stream_of(b"busy", b"busy"),
    b"unlisted": stream_of(b"unlisted"),
    b"beside": stream_of(LEAVES, LEAVES),
    b"no instant": stream_of(LEAVES, LEAVES),
    b"unproven": stream_of(LEAVES, LEAVES),
    b"twice": stream_of(LEAVES, LEAVES),
}


def versions(where: str) -> dict[str, int]:
    return {table: DeltaTable(f"{where}/{table}").version() for table in TABLES}


@dataclass(frozen=True)
class Retired:
    """Three retirements in one store, and what stood there before and after them."""

    before: dict[str, Any]
    after: dict[str, Any]
    versions: list[dict[str, int]]
    shown: BulkReply
    left: BulkReply
    again: BulkReply
    idle: BulkReply
    busy: BulkReply
    unlisted: BulkReply


@pytest.fixture(scope="module")
def retired(
    open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Retired:
    store = open_store(shutil.copytree(empty_store, tmp_path_factory.mktemp("retired") / "store"))
    where = store.where
    write(store)
    before, seen = contents(where), [versions(where)]
    refuse(store)
    leaving = Retirement(b"s", b"g", LEAVES, RECIPIENTS)
    shown = retire(store, leaving, dry_run=True)
    seen.append(versions(where))
    left = retire(store, leaving, run_id="r")
    seen.append(versions(where))
    again = retire(store, leaving, run_id="r")
    with pytest.raises(RunKeyConflictError, match="retire:r"):
        retire(store, Retirement(b"s", b"g", LEAVES, RECIPIENTS[:1]), run_id="r")
    seen.append(versions(where))
    idle = retire(store, Retirement(b"s", b"g", b"idle", RECIPIENTS[1:]), now_ms=NOW_MS + 9)
    busy, unlisted = (
        retire(store, Retirement(name, b"g", name, RECIPIENTS), progress=delivered(store, name))
        for name in (b"busy", b"unlisted")
    )
    return Retired(before, contents(where), seen, shown, left, again, idle, busy, unlisted)


def test_what_is_too_much_for_the_driver_is_handed_over_as_well(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store)
    leaving = Retirement(b"s", b"g", LEAVES, RECIPIENTS)
    held = retire(store, leaving, dry_run=True)
    set_limits(monkeypatch, fetched_rows=2)
    shown = retire(store, leaving, dry_run=True)
    assert (shown.counts["claimed"], shown.counts["deleted"]) == (5, 2)
    assert shown.counts == held.counts


def write(store: Store) -> None:
    instants = dict.fromkeys(STREAMS, NOW_MS) | {b"no instant": None}
    proven = dict.fromkeys(STREAMS, (MIN_ID, MAX_ID)) | {b"unproven": (MIN_ID, StreamId(6, 0))}
    write_keyspace(store, STREAMS, instants, proven)
    twice = store.relation("pending").where("stream = 'twice' AND id_ms = 3")
    append_rows(store, "pending", twice)


def delivered(store: Store, name: bytes):
    """Behind its verification, a run's retired consumer gets 9-0."""

    def told(phase: Phase, _detail: str) -> None:
        if phase is Phase.RECORD:
            row = (name.decode(), "g", 9, 0, name.decode(), NOW_MS + 5, 1, 0)
            append_rows(store, "pending", store.rows("pending", [row], PENDING))

    return told


def refuse(store: Store) -> None:
    """What is refused, whole and named."""
    for stream, group, consumer, recipient, said in (
        (b"s", b"no", LEAVES, b"anna", "NOGROUP No such key 's' or consumer group 'no'"),
        (b"s", b"g", b"nobody", b"anna", "s / g has no consumer nobody; nothing was done"),
        (b"s", b"g", LEAVES, b"anne", "s / g has no consumer anne; nothing was done"),
        (b"beside", b"g", b"idle", b"anna", "beside / g has no consumer idle"),
    ):
        with pytest.raises(RequestError, match=said):
            retire(store, Retirement(stream, group, consumer, (recipient,)))
    for stream, said in (
        (b"unproven", "unproven/g: pending ids .*: 1. .*; nothing was done"),
        (b"no instant", "no instant/g: the group has no snapshot time"),
        (b"twice", "twice/g: duplicate key: .* the first is 3-0; nothing was done"),
    ):
        with pytest.raises(InputError, match=said):
            retire(store, Retirement(stream, b"g", LEAVES, RECIPIENTS))
    with pytest.raises(RequestError, match="now_ms"):
        retire(store, Retirement(b"s", b"g", LEAVES, RECIPIENTS), now_ms=-1)


PODS = (b"pod-1", b"pod-2", b"pod-3", b"pod-9", b"other")


def pods() -> Stream:
    """A group of pods: pod-1 and pod-2 own ids in turn, pod-3 owns nothing, pod-9 was seen now."""
    owners = (b"pod-1", b"pod-2", b"pod-9", b"other")
    pending = tuple(
        PendingEntry(stream_id, owners[n % 4], NOW_MS, stream_id.ms)
        for n, stream_id in enumerate(IDS)
    )
    seen = dict.fromkeys(sorted((*PODS, *RECIPIENTS)), NOW_MS - MINUTE_MS) | {b"pod-9": NOW_MS}
    consumers = tuple(Consumer(name, seen_ms, None) for name, seen_ms in seen.items())
    return Stream(dict.fromkeys(IDS, ()), {b"g": Group(MAX_ID, pending, consumers)})


def names_of(rows: list[tuple[Any, ...]], column: int) -> list[str]:
    return [row[column] for row in rows]


def test_a_glob_retires_all_consumers_that_it_matches_but_not_the_recipients(store: Store) -> None:
    write_keyspace(store, {b"s": pods(), b"t": pods()}, NOW_MS)
    leaving = Retirement(b"s", b"g", "pod-[1-9]", (b"pod-9", b"anna"))
    shown = retire(store, leaving, dry_run=True)
    assert names_of(shown.retired.order_by("consumer").arrow().to_pylist(), "consumer") == [
        "pod-1",
        "pod-2",
        "pod-3",
    ]
    left = retire(store, leaving, run_id="r")
    assert (left.counts["claimed"], left.counts["retired"]) == (4, 3)
    after = contents(store.where)
    # The entries of all who leave are dealt out together.
    assert [(row[1], row[3]) for row in after["pending"]["s"]] == [
        *((1, "pod-9"), (2, "anna"), (3, "pod-9"), (4, "other")),
        *((5, "pod-9"), (6, "anna"), (7, "pod-9"), (8, "other")),
    ]
    assert names_of(after["consumers"]["s"], 1) == ["anna", "bert", "other", "pod-9"]
    assert len(after["consumers"]["t"]) == len(PODS) + len(RECIPIENTS)
    assert retire(store, leaving, run_id="r").counts == left.counts


def test_only_consumers_that_are_idle_for_long_enough_are_retired(store: Store) -> None:
    unlisted = PendingEntry(StreamId(9, 0), b"pod-4", NOW_MS, 1)
    group = pods().groups[b"g"]
    stream = Stream(pods().entries, {b"g": replace(group, pending=(*group.pending, unlisted))})
    write_keyspace(store, {b"s": stream}, NOW_MS)
    leaving = Retirement(b"s", b"g", "pod-*", RECIPIENTS, idle_ms=MINUTE_MS)
    none = retire(store, leaving, now_ms=NOW_MS - 1)
    assert (none.counts["claimed"], none.counts["retired"], none.counts["not_idle"]) == (0, 0, 5)
    left = retire(store, leaving)
    assert (left.counts["claimed"], left.counts["retired"], left.counts["not_idle"]) == (4, 3, 2)
    after = contents(store.where)
    assert names_of(after["consumers"]["s"], 1) == ["anna", "bert", "other", "pod-9"]
    owned = {row[1]: row[3] for row in after["pending"]["s"]}
    assert (owned[1], owned[2], owned[3], owned[9]) == ("anna", "bert", "pod-9", "pod-4")
    single = Retirement(b"s", b"g", b"pod-9", RECIPIENTS, idle_ms=MINUTE_MS)
    assert retire(store, single).counts["not_idle"] == 1


def test_a_glob_that_matches_no_consumer_but_recipients_is_refused(store: Store) -> None:
    write_keyspace(store, {b"s": pods()}, NOW_MS)
    for glob, recipients in (("dop-*", RECIPIENTS), ("an*", RECIPIENTS[:1])):
        with pytest.raises(RequestError, match=f"s / g has no consumer matching {glob[:2]}"):
            retire(store, Retirement(b"s", b"g", glob, recipients))


def test_what_one_consumer_says_is_stored_as_ever() -> None:
    request = {"stream": "s", "consumer_group": "g", "consumer": "c", "recipients": ["a", "b"]}
    assert Retirement(b"s", b"g", b"c", (b"a", b"b")).as_json() == request
    several = Retirement(b"s", b"g", "c*", (b"a",), idle_ms=1).as_json()
    assert (several["consumer_glob"], several["idle_ms"], "consumer" in several) == ("c*", 1, False)


def test_an_idle_time_that_is_none_is_refused() -> None:
    with pytest.raises(RequestError, match="idle_ms must be between 0"):
        Retirement(b"s", b"g", b"c", (b"a",), idle_ms=-1)
    with pytest.raises(GlobError, match="is not closed"):
        Retirement(b"s", b"g", "[c", (b"a",))


@pytest.mark.parametrize("recipients", [(), (b"a", b"b", b"a"), (b"a", b"leaves")])
def test_recipients_are_other_consumers_each_named_once(recipients):
    with pytest.raises(RequestError, match="--to must name at least one other consumer"):
        Retirement(b"s", b"g", b"leaves", recipients)


def test_what_is_refused_and_a_dry_run_write_nothing_and_the_same_run_again_neither(retired):
    assert retired.versions[1] == retired.versions[0]
    assert retired.versions[3] == retired.versions[2] != retired.versions[1]
    assert retired.again.counts == retired.left.counts
    shown = {name: n for name, n in retired.shown.counts.items() if n}
    assert shown == {"claimed": 5, "deleted": 2, "requested": 2, "retired": 1}


def test_all_goes_to_the_recipients_in_turn_with_its_delivery_count_and_delivered_now(retired):
    assert retired.after["pending"]["s"] == [
        ("g", 1, 0, "anna", NOW_MS, 1, 1),
        ("g", 3, 0, "bert", NOW_MS, 3, 1),
        ("g", 4, 0, "anna", NOW_MS, 4, 1),
        ("g", 6, 0, "bert", NOW_MS, 6, 1),
        ("g", 7, 0, "anna", NOW_MS, 7, 1),
        ("g", 8, 0, "anna", NOW_MS - 8, 8, 0),
    ]
    assert retired.after["tombstones"]["s"] == [
        ("g", n, 0, r"\xffleaves", NOW_MS - n, n, NOW_MS, 1) for n in (2, 5)
    ]
    for table in ("pending", "consumers", "groups"):
        assert retired.after[table]["beside"] == retired.before[table]["beside"]
    assert retired.after["groups"] == retired.before["groups"]


def test_the_reply_has_a_request_per_recipient_and_what_dangles_under_the_first(retired):
    rows = [
        (row["request"], row["position"], row["id"], row["status"], row["consumer"])
        for row in retired.left.ids.collect()
    ]
    assert rows == [
        *((1, 0, "1-0", "claimed", "anna"), (1, 1, "4-0", "claimed", "anna")),
        *((1, 2, "7-0", "claimed", "anna"), (1, 3, "2-0", "deleted", None)),
        (1, 4, "5-0", "deleted", None),
        *((2, 0, "3-0", "claimed", "bert"), (2, 1, "6-0", "claimed", "bert")),
    ]
    assert {name: n for name, n in retired.left.counts.items() if n} == {
        "claimed": 5,
        "deleted": 2,
        "requested": 2,
        "retired": 1,
    }


def test_who_is_retired_is_gone_also_who_had_nothing_pending_and_the_recipients_were_seen(retired):
    assert retired.after["consumers"]["s"] == [
        ("g", "anna", NOW_MS, NOW_MS, 1),
        ("g", "bert", NOW_MS + 9, NOW_MS, 2),
    ]
    assert retired.idle.counts["retired"] == 1
    assert {name: n for name, n in retired.idle.counts.items() if n} == {
        "requested": 1,
        "retired": 1,
    }


def test_who_gets_an_entry_meanwhile_stays_and_is_not_said_to_be_retired(retired):
    assert retired.busy.counts["retired"] == 0
    assert ("g", "busy", NOW_MS - MINUTE_MS, None, 0) in retired.after["consumers"]["busy"]
    for name in ("busy", "unlisted"):
        owned = [row for row in retired.after["pending"][name] if row[3] == name]
        assert owned == [("g", 9, 0, name, NOW_MS + 5, 1, 0)]


def test_who_only_pending_knows_and_gets_an_entry_meanwhile_is_not_said_to_be_retired(retired):
    assert (retired.unlisted.counts["claimed"], retired.unlisted.counts["retired"]) == (5, 0)
