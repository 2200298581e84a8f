"""XACKs over real tables: what leaves the pending entries lists, and what refuses all of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xack import NamedAck, ack_table, xack
from claimlib.engine.relation import union_by_name
from claimlib.errors import (
    DuplicateRowsError,
    RequestError,
    RunKeyConflictError,
    SourceMismatchError,
)
from claimlib.plans.bulk_plan import ACKS
from claimlib.runs import Phase
from claimlib.schema import TABLES
from claimlib.semantics.ids import MAX_ID
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.claims_story import GONE, ID_1, ID_2, ID_3, ID_6, ID_7, MINUTE_MS, SOUND, contents
from tests.delta.own_rows import Opener, delete, update
from tests.delta.pels import NOW_MS
from tests.delta.reading import count
from tests.delta.snapshots import ALL, source, stream
from tests.spark.literal import with_values
from tests.writing import append_rows

ACK = [
    NamedAck(b"s", b"g", (ID_3, GONE, ID_3, ID_7, MAX_ID)),
    NamedAck(b"none", b"g", ()),
    NamedAck(b"s", b"g", (GONE, ID_1)),
    NamedAck(b"lost", b"g", (ID_1, ID_2, ID_3)),
    NamedAck(b"unproven", b"g", (ID_6, GONE)),
]
STATUSES = [
    *((1, "3-0", "acked"), (1, "4-0", "acked"), (1, "3-0", "not_pending")),
    *((1, "7-0", "not_pending"), (1, str(MAX_ID), "not_pending")),
    *((3, "4-0", "not_pending"), (3, "1-0", "acked")),
    *((4, "1-0", "lost"), (4, "2-0", "lost"), (4, "3-0", "acked")),
    *((5, "6-0", "acked"), (5, "4-0", "acked")),
]


class HaltedError(Exception):
    """Here a process ends."""


@dataclass(frozen=True)
class Acked:
    """A run that is cut off behind its decision, and begun again."""

    where: str
    before: dict[str, Any]
    after: dict[str, Any]
    shown: BulkReply
    reply: BulkReply
    versions: list[dict[str, int]]


def versions(where: str) -> dict[str, int]:
    return {table: DeltaTable(f"{where}/{table}").version() for table in TABLES}


@pytest.fixture(scope="module")
def acked(open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Acked:
    store = open_store(shutil.copytree(empty_store, tmp_path_factory.mktemp("acks") / "store"))
    where = store.where
    write_keyspace(store, dict.fromkeys((b"s", b"none", b"lost", b"twice"), SOUND), NOW_MS)
    write_keyspace(store, {b"unproven": SOUND}, None, None)
    twice = store.relation("pending").where("stream = 'twice' AND id_ms = 1")
    append_rows(store, "pending", twice)
    before, seen = contents(where), [versions(where)]
    refuse_all(store)
    shown = xack(store, ACK, dry_run=True)
    seen.append(versions(where))
    with pytest.raises(HaltedError):
        xack(store, ACK, run_id="r", progress=cut_off)
    seen.append(versions(where))
    delete(store, "pending", "stream = 'lost' AND id_ms = 1")
    update(store, "pending", "stream = 'lost' AND id_ms = 2", delivery_count="9")
    reply = xack(store, ACK, run_id="r")
    after = contents(where)
    seen.append(versions(where))
    assert xack(store, ACK, run_id="r").counts == reply.counts
    with pytest.raises(RunKeyConflictError, match="xack:r"):
        xack(store, ACK[:1], run_id="r")
    seen.append(versions(where))
    return Acked(where, before, after, shown, reply, seen)


def refuse_all(store: Store) -> None:
    """What refuses all acknowledgements, dry or not, and is named."""
    unknown = [*ACK, NamedAck(b"s", b"typo", (ID_1,)), NamedAck(b"no", b"g", ())]
    for dry_run in (True, False):
        with pytest.raises(
            RequestError,
            match=r"no/g: NOGROUP No such key 'no' .* \(and 1 more group\);"
            f" claimlib xpending {store.where} lists the groups; nothing was acknowledged$",
        ) as no:
            xack(store, unknown, dry_run=dry_run)
        assert no.value.groups == [("no", "g"), ("s", "typo")]
        said = r"twice/g: duplicate key.* 1-0; nothing"
        with pytest.raises(DuplicateRowsError, match=said):
            xack(store, [*ACK, NamedAck(b"twice", b"g", (ID_1, ID_2))], dry_run=dry_run)


def cut_off(phase: Phase, _detail: str) -> None:
    if phase is Phase.APPLY:
        raise HaltedError


def test_what_refuses_some_refuses_all_and_neither_it_nor_a_dry_run_writes_anything(acked):
    assert acked.versions[1] == acked.versions[0]
    decided = {name: n for name, n in acked.shown.counts.items() if n}
    assert decided == {"acked": 8, "not_pending": 4, "requested": 5}


def test_cut_off_behind_its_decision_a_run_has_changed_nothing_but_the_journal(acked):
    changed = {t for t in TABLES if acked.versions[2][t] != acked.versions[1][t]}
    assert changed == {"journal"}
    assert acked.versions[4] == acked.versions[3], "done again, it changes nothing"


def test_each_id_is_acknowledged_once_also_a_dangling_one_and_one_that_nothing_proves(acked):
    shown, acknowledged = (
        [(row["request"], row["id"], row["status"]) for row in reply.ids.collect()]
        for reply in (acked.shown, acked.reply)
    )
    assert acknowledged == STATUSES
    assert shown == [(*row[:2], row[2].replace("lost", "acked")) for row in STATUSES]
    assert {name: number for name, number in acked.reply.counts.items() if number} == {
        "acked": 8,
        "not_pending": 4,
        "requested": 5,
        "lost": 2,
    }
    requests = acked.reply.requests.order_by("request").collect()
    told = [(row["request"], row["stream"], row["consumer"], row["status"]) for row in requests]
    assert told == [
        (number, ack.stream.decode(), None, "requested") for number, ack in enumerate(ACK, start=1)
    ]


def test_what_is_acknowledged_is_away_and_all_else_is_as_it_was(acked):
    since = NOW_MS - MINUTE_MS
    gone = {("s", 1), ("s", 3), ("s", 4), ("lost", 3), ("unproven", 4), ("unproven", 6)}
    left = {
        (stream, row[1]): row
        for stream, rows in acked.before["pending"].items()
        for row in rows
        if (stream, row[1]) not in gone | {("lost", 1)}
    }
    left["lost", 2] = ("g", 2, 0, "dead", since, 9, 0)
    after = {
        (stream, row[1]): row for stream, rows in acked.after["pending"].items() for row in rows
    }
    assert after == left
    assert len(acked.after["pending"]["twice"]) == len(acked.before["pending"]["twice"]) == 7
    assert acked.after["tombstones"] == {}
    for table in ("consumers", "groups"):
        assert acked.after[table] == acked.before[table] != {}


def test_a_store_that_a_snapshot_has_read_refuses_and_names_the_server(store):
    snapshot(store, ALL, lambda _: source(stream(b"s", {1: b"a"}, {1}, NOW_MS)))
    before = versions(store.where)
    for dry_run in (True, False):
        with pytest.raises(SourceMismatchError, match="server:6379/0: the next snapshot") as no:
            xack(store, [NamedAck(b"s", b"g", (ID_1,))], dry_run=dry_run)
        assert no.value.kept == "server:6379/0"
    assert versions(store.where) == before
    assert count(store.where, "pending") == 1


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (
            "ids",
            "array('1-0', '-')",
            r"invalid ids in the row for request 1 \(s/g\): no value may be null, ids",
        ),
        ("ids", "array(NULL)", r"invalid ids in the row for request 1 \(s/g\)"),
        ("ids", "CAST(NULL AS ARRAY<STRING>)", r"invalid ids in the row for request 1 \(s/g\)"),
        ("ids", "array(1)", "ids of the request table is array<int>: it must be ARRAY<STRING>"),
        ("request", "1.5D", "request of the request table is double: it must be BIGINT"),
        ("consumer_group", "NULL", "invalid consumer_group in the row for request 1"),
        ("consumer", "'bob'", "has unknown column consumer"),
    ],
)
def test_an_ack_that_cannot_be_used_is_refused_with_its_column_and_request(
    engine, column, value, said
):
    table = ack_table(engine, [NamedAck(b"s", b"g", (ID_1,))])
    with pytest.raises(RequestError, match=said):
        ACKS.checked(with_values(table, **{column: value}))


def test_acks_are_numbered_each_by_itself_and_there_is_at_least_one(store):
    table = ack_table(store.engine, [NamedAck(b"s", b"g", ())])
    with pytest.raises(RequestError, match=r"2 rows for request 1 \(s/g\)"):
        ACKS.checked(union_by_name([table, table], ACKS.columns))
    with pytest.raises(RequestError, match="there is no request"):
        xack(store, [])
