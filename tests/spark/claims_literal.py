"""What XCLAIM, XACK and retirement decide on literal frames, as the commands themselves decide it;
and journal rows, applied to the groups that they are about.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pyspark.sql import Row, SparkSession

from claimlib.commands import asking
from claimlib.ids import StreamId, from_bigint
from claimlib.model import Group, Profile
from claimlib.names import unspell
from claimlib.runs import Begun, Decision
from claimlib.schema import TABLES
from claimlib.store import Pins
from tests.claim_batches import Batch, Case, Named, Names
from tests.spark.literal import LiteralStore, _claimed, _found, _id, _seen

GOT = ("claimed", "forced", "superseded")


def empty_store(spark: SparkSession) -> LiteralStore:
    """A store whose tables have their columns: those that nobody writes are read, too."""
    store = LiteralStore(spark)
    for name, table in TABLES.items():
        store._tables[name] = store.rows(name, [], [column.name for column in table.written])
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

    with patch.object(asking, "run", run):
        try:
            command(store, *request, **options)
        except _DecidedError as ended:
            return ended.decision
    raise AssertionError("no run was begun")


def claims_differences(batch: Batch, rows: Iterable[Row]) -> list[str]:
    """Where journal rows say something else than the reference; empty: nowhere."""
    by_group: dict[Names, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[unspell(row["stream"]), unspell(row["consumer_group"])].append(row)
    unknown = [f"{names}: nobody asked" for names in by_group.keys() - batch.cases.keys()]
    found = {names: _differences(case, by_group[names]) for names, case in batch.cases.items()}
    return unknown + [
        f"{names}: {what}\n  expected {expected}\n  found    {got}\n  of       {batch.cases[names]}"
        for names, differences in found.items()
        for what, expected, got in differences
    ]


def _differences(case: Case, rows: Sequence[Row]) -> list[tuple[str, object, object]]:
    """What differs in one group: its name, as it should be, and as it is."""
    kinds = by_kind(rows)
    status = "asked" if case.refusal is None else "refused"
    requests = {n: (status, case.refusal, case.now_ms) for n, _ in case.requests}
    told = {row["request_number"]: _told(row) for row in kinds["asked"] + kinds["refused"]}
    group, claimed, deleted = applied(case.group, kinds)
    state, replies = case.expected
    compared = [
        ("requests", requests, told),
        ("number of requests", len(requests), len(kinds["asked"] + kinds["refused"])),
        ("state", state, group),
        ("claimed", {n: one[0] for n, one in replies.items() if one[0]}, claimed),
        ("deleted", {n: one[1] for n, one in replies.items() if one[1]}, deleted),
        ("ids", case.named, named_of(case, kinds)),
    ]
    return [one for one in compared if one[1] != one[2]]


def by_kind(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    return kinds


def _told(row: Row) -> tuple[str, str | None, int | None]:
    return row["kind"], row["reason"], row["at_ms"]


def applied(
    group: Group | None, kinds: Mapping[str, list[Row]]
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
        assert pending.pop(_id(row)) == _found(row)
    for row in kinds["claimed"]:
        assert pending[_id(row)] == _found(row)
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
        pending=tuple(pending[one] for one in sorted(pending)),
        consumers=_seen(group.consumers, kinds["consumer"] + got),
    )
    return after, claimed, deleted


def _by_request(rows: Iterable[Row]) -> dict[int, tuple[StreamId, ...]]:
    found: dict[int, list[StreamId]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["request_number"], row["position"])):
        found[row["request_number"]].append(_id(row))
    return {number: tuple(ids) for number, ids in found.items()}


def named_of(case: Case, kinds: Mapping[str, list[Row]]) -> dict[tuple[int, int], Named]:
    """By request and position, what the journal says of each id; each once."""
    requests = dict(case.requests)
    found: dict[tuple[int, int], Named] = {}
    for kind in (*GOT, "deleted", "left", "not_pending"):
        for row in kinds[kind]:
            at = row["request_number"], row["position"]
            assert at not in found, f"{at} has two rows"
            request = requests[at[0]]
            assert request.ids[at[1]] == _id(row)
            assert row["at_ms"] == case.now_ms
            before = None if row["from_delivery_count"] is None else _found(row)
            found[at] = Named(kind, before, _claimed(row) if kind in GOT else None)
            seen = (request.justid, case.now_ms) if kind in GOT else (None, None)
            assert (row["justid"], row["seen_time_ms"]) == seen
            is_active = kind in GOT and request.profile is not Profile.REDIS_7_0
            assert row["active_time_ms"] == (case.now_ms if is_active else None)
    return found
