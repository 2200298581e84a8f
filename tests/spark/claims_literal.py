"""What XCLAIM, XACK and retirement decide on rows in memory, as the commands themselves decide it;
and journal rows, applied to the groups that they are about.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from claimlib.commands import reply
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xclaim import claim_table, xclaim
from claimlib.engine.relation import Executor, Record, Relation, Rows
from claimlib.runs import Begun, Decision
from claimlib.schema import TABLES
from claimlib.semantics import scan
from claimlib.semantics.ids import StreamId, from_bigint
from claimlib.semantics.model import Group, Profile
from claimlib.store.tables import Pins
from tests.claim_batches import Batch, Case, Named, batch_of, simpler, size
from tests.shrinking import Difference, assert_same
from tests.spark.literal import (
    LiteralStore,
    _before,
    _claimed,
    _id,
    _seen,
    rows_by_group,
    said_by,
)

GOT = ("claimed", "forced", "superseded")


NewStore = Callable[[], LiteralStore]
"""Makes an empty store of one engine."""


def store_of(new_store: NewStore, batch: Batch) -> LiteralStore:
    """A store that holds a batch."""
    store = new_store()
    batch.write(store)
    return store


class _DecidedError(Exception):
    def __init__(self, decision: Decision) -> None:
        super().__init__()
        self.decision = decision


def decided_by(
    command: Callable[..., Any], store: LiteralStore, *request: Any, **options: Any
) -> Decision:
    """What a command decides, with all that it checks before; the run ends there."""

    def run(store: LiteralStore, *, decide: Callable[[Begun], Decision], **_: Any) -> None:
        pins = Pins(versions=dict.fromkeys(TABLES, 0), table_ids={})
        raise _DecidedError(decide(Begun(store, 1, pins)))

    with patch.object(reply, "run", run):
        try:
            command(store, *request, **options)
        except _DecidedError as ended:
            return ended.decision
    raise AssertionError("no run was begun")


def claims_differences(batch: Batch, rows: Iterable[Record]) -> list[Difference[Case]]:
    """Where journal rows say something else than the reference; empty: nowhere."""
    by_group = rows_by_group(rows)
    assert by_group.keys() <= batch.cases.keys(), "nobody asked"
    return [
        difference
        for names, case in batch.cases.items()
        for difference in [_compared(case, by_group[names])]
        if difference.expected != difference.actual
    ]


def assert_claimed_as_the_reference(
    new_store: NewStore, batch: Batch, rows: Iterable[Record]
) -> None:
    """Fail, with the smallest example to be had, where XCLAIM's journal rows say something else
    than the reference."""
    differing = claims_differences(batch, rows)
    assert_same(differing, simpler, size, partial(claims_that_differ, new_store))


def claims_that_differ(new_store: NewStore, cases: Sequence[Case]) -> list[Difference[Case]]:
    """Of some groups those of which XCLAIM's plan says something else than the reference."""
    batch = batch_of(cases)
    store = store_of(new_store, batch)
    decision = decided_by(xclaim, store, table_of(store.engine, batch))
    return claims_differences(batch, decision.rows.collect())


def table_of(engine: Executor, batch: Batch) -> Relation:
    """The requests as a table: their numbers say the order, and nothing else does."""
    numbers = sorted(batch.requests)
    rows = claim_table(engine, [batch.requests[number] for number in numbers]).arrow()
    numbered = rows.set_column(0, "request", pa.array(numbers, pa.int64()))
    return Relation(engine, Rows(numbered))


def _compared(case: Case, rows: list[Record]) -> Difference[Case]:
    """One group: what differs of it, by name."""
    expected, actual = _expected(case), said_by(_said, case, rows)
    if not isinstance(actual, dict):
        return Difference(case, expected, actual)
    names = [name for name in expected if expected[name] != actual[name]]
    return Difference(
        case, {name: expected[name] for name in names}, {name: actual[name] for name in names}
    )


def _expected(case: Case) -> dict[str, object]:
    status = "requested" if case.refusal is None else "refused"
    state, replies = case.expected
    return {
        "requests": {n: (status, case.refusal, case.now_ms) for n, _ in case.requests},
        "number of requests": len(case.requests),
        "state": state,
        "claimed": {n: reply[0] for n, reply in replies.items() if reply[0]},
        "deleted": {n: reply[1] for n, reply in replies.items() if reply[1]},
        "ids": case.named,
    }


def _said(case: Case, rows: list[Record]) -> dict[str, object]:
    kinds = by_kind(rows)
    group, claimed, deleted = applied(case.group, kinds)
    told = kinds["requested"] + kinds["refused"]
    return {
        "requests": {row["request_number"]: _told(row) for row in told},
        "number of requests": len(told),
        "state": group,
        "claimed": claimed,
        "deleted": deleted,
        "ids": named_of(case, kinds),
    }


def by_kind(rows: Iterable[Record]) -> Mapping[str, list[Record]]:
    kinds: dict[str, list[Record]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    return kinds


def _told(row: Record) -> tuple[str, str | None, int | None]:
    return row["kind"], row["reason"], row["at_ms"]


def applied(
    group: Group | None, kinds: Mapping[str, list[Record]]
) -> tuple[Group | None, dict[int, tuple[StreamId, ...]], dict[int, tuple[StreamId, ...]]]:
    """A group with its journal rows applied; what each request claimed and deleted, in its order.
    The rows must say what they found."""
    got = [row for kind in GOT for row in kinds[kind]]
    claimed, deleted = _by_request(got), _by_request(kinds["deleted"])
    if group is None:
        assert not claimed, "of a group that is not there"
        return None, claimed, deleted
    pending = {entry.id: entry for entry in group.pending}
    for row in kinds["deleted"] + kinds["acked"]:
        assert pending.pop(_id(row)) == _before(row)
    for row in kinds["claimed"]:
        assert pending[_id(row)] == _before(row)
        pending[_id(row)] = _claimed(row)
    for row in kinds["forced"]:
        assert _id(row) not in pending
        pending[_id(row)] = _claimed(row)
    last_delivered_id = group.last_delivered_id
    for row in kinds["lastid"]:
        wanted = from_bigint(row["last_delivered_ms"]), from_bigint(row["last_delivered_seq"])
        last_delivered_id = max(last_delivered_id, StreamId(*wanted))
    after = replace(
        group,
        last_delivered_id=last_delivered_id,
        pending=tuple(pending[stream_id] for stream_id in sorted(pending)),
        consumers=_seen(group.consumers, kinds["consumer"] + got),
    )
    return after, claimed, deleted


def _by_request(rows: Iterable[Record]) -> dict[int, tuple[StreamId, ...]]:
    by_request: dict[int, list[StreamId]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["request_number"], row["position"])):
        by_request[row["request_number"]].append(_id(row))
    return {number: tuple(ids) for number, ids in by_request.items()}


def named_of(case: Case, kinds: Mapping[str, list[Record]]) -> dict[tuple[int, int], Named]:
    """By request and position, what the journal says of each id; each once."""
    requests = dict(case.requests)
    named: dict[tuple[int, int], Named] = {}
    for kind in (*GOT, "deleted", "left", "not_pending"):
        for row in kinds[kind]:
            at = row["request_number"], row["position"]
            assert at not in named, f"{at} has two rows"
            request = requests[at[0]]
            assert request.ids[at[1]] == _id(row)
            assert row["at_ms"] == case.now_ms
            before = None if row["from_delivery_count"] is None else _before(row)
            named[at] = Named(kind, before, _claimed(row) if kind in GOT else None)
            seen = (request.justid, case.now_ms) if kind in GOT else (None, None)
            assert (row["justid"], row["seen_time_ms"]) == seen
            is_active = kind in GOT and request.profile is not Profile.REDIS_7_0
            assert row["active_time_ms"] == (case.now_ms if is_active else None)
    return named


# ---- XACK: the ids of the same requests ----


def asked_acks(batch: Batch) -> list[NamedAck]:
    """Of groups that somebody made, the ids of their requests; in their order."""
    return [
        NamedAck(named.stream, named.group, named.claim.ids)
        for _, named in sorted(batch.requests.items())
        if named.group in batch.keyspace[named.stream].groups
    ]


def acks_differences(batch: Batch, rows: Iterable[Record]) -> list[Difference[Case]]:
    """Where XACK's journal rows say something else than the reference; empty: nowhere."""
    by_group = rows_by_group(rows)
    compared = [
        Difference(case, _acked(case), said_by(_said_of_acks, case, by_group[names]))
        for names, case in batch.cases.items()
        if case.group is not None
    ]
    return [difference for difference in compared if difference.expected != difference.actual]


def assert_acked_as_the_reference(
    new_store: NewStore, batch: Batch, rows: Iterable[Record]
) -> None:
    """As `assert_claimed_as_the_reference`."""
    differing = acks_differences(batch, rows)
    assert_same(differing, simpler, size, partial(acks_that_differ, new_store))


def acks_that_differ(new_store: NewStore, cases: Sequence[Case]) -> list[Difference[Case]]:
    """Of some groups those of which XACK's plan says something else than the reference."""
    batch = batch_of(cases)
    decision = decided_by(xack, store_of(new_store, batch), asked_acks(batch))
    return acks_differences(batch, decision.rows.collect())


def _acked(case: Case) -> dict[str, object]:
    ids = [stream_id for _, request in case.requests for stream_id in request.ids]
    group, number = scan.xack(case.group, ids)
    ended = +Counter(acked=number, not_pending=len(ids) - number)
    return {"state": group, "ids": ended, "rows": ended + Counter(requested=len(case.requests))}


def _said_of_acks(case: Case, rows: list[Record]) -> dict[str, object]:
    group, _, _ = applied(case.group, by_kind(rows))
    named = Counter(row["kind"] for row in rows if row["position"] is not None)
    return {"state": group, "ids": named, "rows": Counter(row["kind"] for row in rows)}
