"""XCLAIMs over real tables: one run over many streams; what it leaves, lost, refused and said."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xclaim import NamedClaim, claim_table, xclaim
from claimlib.engine.changes import Changes
from claimlib.engine.relation import Executor, Relation
from claimlib.errors import (
    RequestError,
    RunKeyConflictError,
    UnfinishedRunError,
)
from claimlib.plans.bulk_plan import CLAIMS
from claimlib.runs import Phase, claims, records
from claimlib.runs.journal import decided_by, run_rows
from claimlib.runs.rollforward import roll_forward
from claimlib.schema import TABLES
from claimlib.semantics.ids import parse_id
from claimlib.semantics.names import spell, unspell
from claimlib.store.spark_writer import SparkWriter
from claimlib.store.tables import Store
from claimlib.store.writer import RunCommit
from claimlib.testing.keyspace_rows import write_keyspace
from tests.claim_batches import Batch
from tests.delta.claims_story import (
    DONE,
    FORESTALLED,
    GONE,
    ID_1,
    ID_2,
    ID_3,
    ID_7,
    ID_8,
    LOST,
    LOST_7_0,
    MINUTE_MS,
    PENDING,
    REASONS,
    REFUSED,
    SOUND,
    SPARED,
    as_rows,
    claim,
    contents,
    everything,
    interfere,
    write,
)
from tests.delta.own_rows import Opener, delete
from tests.delta.pels import NOW_MS
from tests.delta.reading import count, query
from tests.spark.literal import with_values
from tests.writing import append_rows

# What was done about an id that a request names.
DOINGS = ("claimed", "forced", "superseded", "deleted", "left", "not_pending")


def versions(where: str) -> dict[str, int]:
    return {table: DeltaTable(f"{where}/{table}").version() for table in TABLES}


@dataclass(frozen=True)
class Said:
    """A reply, read."""

    counts: Mapping[str, int]
    requests: list[dict[str, Any]]
    ids: list[dict[str, Any]]

    @classmethod
    def of(cls, reply: BulkReply) -> Said:
        requests = reply.requests.order_by("request").collect()
        return cls(reply.counts, requests, reply.ids.collect())

    def statuses(self, stream: bytes) -> list[tuple[str, str]]:
        return [(row["id"], row["status"]) for row in self.ids if row["stream"] == stream.decode()]


@dataclass(frozen=True)
class Run:
    """One run over everything, with what stood there before and after it."""

    store: Store
    halted: Store  # a copy of the store as it was before
    batch: Batch
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    everything: Mapping[str, list[str]]
    shown: Said  # by a dry run
    said: Said
    again: Said
    versions: list[Mapping[str, int]]  # before and after the dry run; after the run; after repeats


@pytest.fixture(scope="module")
def run(open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("claims")
    store = open_store(shutil.copytree(empty_store, folder / "store"))
    batch = everything()
    write(store, batch)
    halted = open_store(shutil.copytree(folder / "store", folder / "halted"))
    before, seen = contents(store.where), [versions(store.where)]
    shown = Said.of(xclaim(store, list(batch.requests.values()), dry_run=True))
    seen.append(versions(store.where))
    said = Said.of(claimed_once(store, batch))
    seen.append(versions(store.where))
    after, rows = contents(store.where), all_rows(store.where)
    again = Said.of(claimed_once(store, batch))
    with pytest.raises(RunKeyConflictError, match="xclaim:once"):
        xclaim(store, list(batch.requests.values())[1:], run_id="once")
    seen.append(versions(store.where))
    return Run(store, halted, batch, before, after, rows, shown, said, again, seen)


def claimed_once(store: Store, batch: Batch, stop: Phase | None = None) -> BulkReply:
    """The run, in which others change some of it first; it may be stopped at a phase."""

    def told(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY and not count(
            store.where, "pending", "consumer = 'eve' AND id_ms = 7"
        ):
            interfere(store)
        if phase is stop:
            raise HaltedError

    return xclaim(store, list(batch.requests.values()), run_id="once", progress=told)


class HaltedError(Exception):
    """Here a process ends."""


def all_rows(where: str) -> dict[str, list[str]]:
    """All rows of all tables, but for what two runs of the same may differ in."""
    differs = {
        "journal": {"attempt", "inputs"},
        "runs": {"phase_ms", "began_ms", "ended_ms", "input_versions", "output_versions"},
    }
    return {
        table: sorted(
            str({name: row[name] for name in row if name not in differs.get(table, ())})
            for row in query(where, table, "SELECT * FROM t")
        )
        for table in TABLES
    }


def done(batch: Batch) -> dict[tuple[bytes, bytes], Any]:
    """The groups of which all is done that was decided."""
    special = {*REFUSED, *FORESTALLED}
    return {
        names: case
        for names, case in batch.cases.items()
        if names[0] not in special and case.refusal is None
    }


# ---- what is done ----


def test_pending_consumers_and_groups_are_as_the_reference_leaves_them(run):
    after = {stream: dict(SOUND.groups) for stream in DONE}
    touched = defaultdict(set)
    for (stream, name), case in done(run.batch).items():
        after.setdefault(stream, dict(run.batch.keyspace[stream].groups))[name] = case.expected[0]
        for at, row in case.named.items():
            if row.status in {"claimed", "forced"}:
                touched[stream].add((name, dict(case.requests)[at[0]].ids[at[1]]))
    assert len(after) > 20
    for stream, groups in after.items():
        expected = as_rows(run.batch.keyspace[stream], groups, touched[stream])
        for table in ("pending", "consumers", "groups"):
            rows = run.after[table].get(spell(stream), [])
            assert rows == expected[table] or stream in SPARED, (stream, table)


def test_a_group_is_not_refused_for_rows_that_nobody_asks_for(run):
    for stream in map(spell, SPARED):
        before, after = (tables["pending"][stream] for tables in (run.before, run.after))
        kept = [row for row in before if row[1] != ID_1.ms]
        assert after == sorted([*kept, ("g", 1, 0, "alice", NOW_MS, 2, 1)], key=str)


def test_each_purge_leaves_a_tombstone_with_its_last_owner_and_no_claim_does(run):
    expected = {
        (spell(stream), spell(name), *bits(case, at), *state(row.before), case.now_ms, 1)
        for (stream, name), case in done(run.batch).items()
        for at, row in case.named.items()
        if row.status == "deleted"
    }
    assert len(expected) > 5
    tombstones = [
        (stream, *row) for stream, rows in run.after["tombstones"].items() for row in rows
    ]
    assert sorted(tombstones, key=str) == sorted(expected, key=str)


def bits(case, at: tuple[int, int]) -> tuple[int, int]:
    id_ = dict(case.requests)[at[0]].ids[at[1]]
    return id_.ms - 2**64 * (id_.ms >= 2**63), id_.seq - 2**64 * (id_.seq >= 2**63)


def state(entry) -> tuple[object, ...]:
    if entry is None:
        return (None, None, None)
    owner = None if entry.consumer is None else spell(entry.consumer)
    return owner, entry.delivery_time_ms, entry.delivery_count


def test_the_reply_has_one_row_per_id_that_a_request_names_in_their_order(run):
    expected = {
        at: (*state(row.before), *state(row.after), row.status, case.now_ms)
        for case in done(run.batch).values()
        for at, row in case.named.items()
    }
    new = ("consumer", "delivery_time_ms", "delivery_count")
    columns = (*(f"from_{name}" for name in new), *new, "status", "at_ms")
    rows = {
        (row["request"], row["position"]): tuple(row[name] for name in columns)
        for row in run.said.ids
        if row["stream"].encode() not in FORESTALLED and row["stream"].encode() not in SPARED
    }
    others = {at for at in expected if at not in rows}
    elsewhere = {n for n, named in run.batch.requests.items() if named.stream in SPARED}
    assert {number for number, _ in others} <= elsewhere
    assert rows == {at: row for at, row in expected.items() if at not in others}
    order = [(row["request"], row["position"]) for row in run.said.ids]
    assert order == sorted(set(order))
    assert {row["status"] for row in run.said.ids} == {*DOINGS, "lost"}


def test_what_was_claimed_without_justid_comes_with_its_fields(run):
    for row in run.said.ids:
        named = run.batch.requests[row["request"]]
        stream_id = named.claim.ids[row["position"]]
        assert (row["stream"], row["id"]) == (spell(named.stream), str(stream_id))
        if row["status"] in ("claimed", "forced", "superseded") and not named.claim.justid:
            flat = run.batch.keyspace[named.stream].entries[stream_id]
            pairs = zip(flat[::2], flat[1::2], strict=True)
            assert row["fields"] == [{"name": name, "value": value} for name, value in pairs]
            assert row["payload"] == "present"
        else:
            assert row["fields"] is row["payload"] is None
        if row["status"] == "lost":
            assert row["consumer"] is row["delivery_time_ms"] is row["delivery_count"] is None


def test_the_reply_has_one_row_per_request(run):
    rows = [
        (row["request"], row["stream"], row["consumer"], row["status"], row["reason"])
        for row in run.said.requests
    ]
    assert rows == [
        (
            *(number, spell(named.stream), spell(named.claim.consumer)),
            *(("requested", None) if reason is None else ("refused", reason)),
        )
        for number, named in run.batch.requests.items()
        for reason in [reason_of(run.batch, named)]
    ]


def reason_of(batch: Batch, named: NamedClaim) -> str | None:
    return REASONS.get(named.stream) or batch.cases[named.stream, named.group].refusal


def test_the_counts_say_what_was_decided_and_the_dry_run_said_the_same(run):
    statuses = Counter(
        row.status
        for names, case in run.batch.cases.items()
        if names[0] not in REASONS and case.refusal is None
        for row in case.named.values()
    )
    refused = sum(reason_of(run.batch, named) is not None for named in run.batch.requests.values())
    expected = {
        **statuses,
        "requested": len(run.batch.requests) - refused,
        "refused": refused,
    }
    assert {name: n for name, n in run.shown.counts.items() if n} == expected
    assert without_zeros(run.said.counts) == {**expected, "lost": 5}


def test_a_dry_run_writes_nothing_and_says_what_the_run_says_but_what_others_prevented(run):
    assert run.versions[1] == run.versions[0]
    assert run.shown.requests == run.said.requests
    shown = [row for row in run.shown.ids if row["stream"].encode() not in FORESTALLED]
    assert shown == [row for row in run.said.ids if row["stream"].encode() not in FORESTALLED]
    assert run.shown.statuses(LOST) == [
        *(("1-0", "superseded"), ("2-0", "claimed"), ("3-0", "claimed")),
        *(("1-0", "claimed"), ("4-0", "deleted"), ("7-0", "forced"), ("8-0", "forced")),
    ]


def test_the_same_run_again_changes_nothing_and_says_the_same_and_another_request_is_refused(run):
    assert run.versions[3] == run.versions[2] != run.versions[1]
    assert run.again == run.said


def test_the_journal_and_the_runs_say_what_was_asked(run):
    (row,) = query(run.store.where, "journal", "SELECT * FROM t WHERE kind='run' AND run_seq=1")
    assert (row["command"], row["run_id"]) == ("xclaim", "once")
    (number,) = (
        n
        for n, named in run.batch.requests.items()
        if named.claim.retrycount == 9 and named.stream == b"all"
    )
    (requested,) = query(
        run.store.where,
        "journal",
        f"SELECT * FROM t WHERE kind = 'requested' AND run_seq = 1 AND request_number = {number}",
    )
    assert json.loads(requested["request"]) == {
        "ids": 2,
        "consumer": "bob",
        "min_idle_ms": 0,
        "retrycount": 9,
        "force": True,
        "justid": False,
        "idle_rule": "documented",
        "profile": "redis-7.2",
    }
    (finished,) = query(run.store.where, "runs", "SELECT * FROM t WHERE run_seq = 1")
    assert without_zeros(dict(finished["counts"])) == without_zeros(run.said.counts)


def without_zeros(counts):
    return {name: number for name, number in counts.items() if number}


# ---- what others do first ----


def test_what_others_changed_between_decision_and_change_is_lost_and_left_as_they_left_it(run):
    assert run.said.statuses(LOST) == [
        *(("1-0", "lost"), ("2-0", "lost"), ("3-0", "claimed")),
        *(("1-0", "lost"), ("4-0", "lost"), ("7-0", "lost"), ("8-0", "forced")),
    ]
    since = NOW_MS - MINUTE_MS
    assert run.after["pending"][spell(LOST)] == sorted(
        [
            ("g", 2, 0, "eve", since, 1, 0),
            ("g", 3, 0, "bob", NOW_MS, 2, 1),
            ("g", 5, 0, "dead", since, 1, 0),
            ("g", 6, 0, "dead", since, 1, 0),
            ("g", 7, 0, "eve", NOW_MS + 7, 1, 0),
            ("g", 8, 0, "alice", NOW_MS, 2, 1),
        ],
        key=str,
    )
    assert spell(LOST) not in run.after["tombstones"], "it was not this run that purged it"
    lost = query(run.store.where, "journal", "SELECT stream, id_ms FROM t WHERE kind = 'lost'")
    assert sorted((row["stream"], row["id_ms"]) for row in lost) == [
        *(("lost", n) for n in (1, 2, 4, 7)),
        ("lost, 7.0", 1),
    ]


def test_all_that_was_decided_was_applied_or_lost_or_is_gone(run):
    counts = run.said.counts
    applied = sum(row[-1] == 1 for rows in run.after["pending"].values() for row in rows)
    purged = sum(map(len, run.after["tombstones"].values()))
    decided = counts["claimed"] + counts["forced"] + counts["deleted"]
    assert decided == applied + purged + counts["lost"] + counts["gone"]


def test_who_got_nothing_but_what_was_lost_is_not_active_and_of_redis_7_0_not_even_seen(run):
    assert run.said.statuses(LOST_7_0) == [("1-0", "lost")]
    owners = run.after["consumers"]
    assert [row[1] for row in owners[spell(LOST_7_0)]] == ["bob", "dead"]
    assert owners[spell(LOST)] == [
        ("g", "alice", NOW_MS, NOW_MS, 1),
        ("g", "bob", NOW_MS, NOW_MS, 1),
        ("g", "dead", NOW_MS - MINUTE_MS, None, 0),
    ]


# ---- what is refused ----


def test_a_group_that_cannot_be_judged_is_refused_as_it_is_and_says_why(run):
    refused = {
        row["stream"]: row["reason"] for row in run.said.requests if row["status"] == "refused"
    }
    assert {stream: refused[spell(stream)] for stream in REFUSED} == REASONS
    for table in ("pending", "consumers", "groups"):
        for stream in map(spell, REFUSED):
            assert run.after[table].get(stream) == run.before[table].get(stream), (table, stream)
    assert not {row["stream"] for row in run.said.ids} & set(map(spell, REFUSED))
    assert not run.after["tombstones"].keys() & set(map(spell, REFUSED))


# ---- a run that is cut off, and a driver that is late ----


@pytest.fixture(scope="module")
def halted(run):
    """The same run on the same store, cut off at every step; each time begun again, it does all
    steps up to there once more.  What stood in pending, and in runs, at each stop."""
    store, seen = run.halted, {}
    for stop in (Phase.APPLY, Phase.VERIFY, Phase.RECORD, Phase.FINISH):
        with pytest.raises(HaltedError):
            claimed_once(store, run.batch, stop)
        seen[stop] = contents(store.where) | {"runs": count(store.where, "runs")}
        if stop is Phase.APPLY:
            with pytest.raises(UnfinishedRunError, match="xclaim:once"):
                xclaim(store, [NamedClaim(b"all", b"g", claim(ID_1))], dry_run=True)
    reply = claimed_once(store, run.batch)
    return seen, Said.of(reply)


def cut_off(_writer: SparkWriter, table: str, *_: Any, **__: Any) -> None:
    assert table == "pending"
    raise HaltedError


def test_cut_off_at_any_step_a_run_ends_row_for_row_as_one_that_was_not(run, halted):
    _, said = halted
    assert said == run.said
    rows = all_rows(run.halted.where)
    for table in TABLES:
        assert rows[table] == run.everything[table], table


def test_what_is_claimed_and_forced_stands_in_pending_before_the_tombstones_and_the_run_are(
    run, halted
):
    seen, _ = halted
    assert [seen[stop]["runs"] for stop in seen] == [0] * len(seen)
    by_run = {stop: touched(tables["pending"], by=1) for stop, tables in seen.items()}
    assert by_run[Phase.APPLY] == 0
    assert by_run[Phase.VERIFY] == touched(run.after["pending"], by=1)
    assert seen[Phase.VERIFY]["pending"] == run.after["pending"]
    assert seen[Phase.VERIFY]["tombstones"] == {}
    assert seen[Phase.FINISH] == {**run.after, "runs": 0}


def touched(pending: Mapping[str, list], by: int) -> int:
    return sum(row[-1] == by for rows in pending.values() for row in rows)


def test_a_driver_that_is_late_brings_back_nothing_that_was_acknowledged_since(run):
    store = run.store
    forced = [row for row in run.said.ids if row["status"] == "forced"]
    acks = [
        NamedAck(unspell(row["stream"]), unspell(row["consumer_group"]), (parse_id(row["id"]),))
        for row in forced
    ]
    assert xack(store, acks).counts["acked"] == len(forced) > 2
    before = all_rows(store.where)

    row = run_rows(store, 0)[0]
    decided = decided_by(store, row.run_seq)
    counts = roll_forward(store, row, lambda *_: None).counts
    assert without_zeros(counts) == without_zeros(run.said.counts)
    claims.apply(store, row, decided)
    outcome = claims.verify(store, row, decided)
    records.apply(store, row, decided, outcome)

    assert outcome.counts() == {"lost": 5, "gone": 0}
    assert all_rows(store.where) == before
    for forced_row in forced:
        rows = contents(store.where)["pending"][forced_row["stream"]]
        assert (forced_row["consumer_group"], forced_row["id_ms"], forced_row["id_seq"]) not in [
            r[:3] for r in rows
        ]


def test_forced_rows_and_claims_come_by_one_commit_of_the_embedded_engine(
    folder_store,
):
    store = folder_store
    write_keyspace(store, {b"s": SOUND}, NOW_MS)
    before = store.version("pending")
    reply = xclaim(store, [NamedClaim(b"s", b"g", claim(ID_1, GONE, ID_7, ID_8, force=True))])
    assert store.version("pending") == before + 1
    assert [reply.counts[name] for name in ("claimed", "deleted", "forced", "lost")] == [1, 1, 2, 0]
    assert count(store.where, "pending", "run_seq = 1") == 3


@pytest.mark.long
@pytest.mark.classic
def test_where_another_driver_has_appended_the_forced_rows_the_claims_are_still_made(
    spark_store, monkeypatch
):
    """Both go on with one run; the other is stopped before its MERGE.  Its append bears the run's
    token, which does not say that all is done."""
    write_keyspace(spark_store, {b"s": SOUND}, NOW_MS)
    requests = [NamedClaim(b"s", b"g", claim(ID_1, GONE, ID_7, ID_8, force=True))]
    apply, others = SparkWriter.apply, ["another driver"]

    def meanwhile(self: SparkWriter, changes: Changes, commit: RunCommit) -> int | None:
        if changes.table == "pending" and others:
            others.clear()
            with monkeypatch.context() as patch:
                patch.setattr(SparkWriter, "execute", cut_off)
                with pytest.raises(HaltedError):
                    xclaim(spark_store, requests, run_id="both")
        return apply(self, changes, commit)

    monkeypatch.setattr(SparkWriter, "apply", meanwhile)
    reply = xclaim(spark_store, requests, run_id="both")
    assert not others
    assert [reply.counts[name] for name in ("claimed", "deleted", "forced", "lost")] == [1, 1, 2, 0]
    assert count(spark_store.where, "pending", "run_seq = 1") == 3
    assert count(spark_store.where, "pending", "id_ms = 4") == 0


@pytest.mark.long
def test_what_others_take_between_the_forced_rows_and_the_claims_is_lost_and_the_run_ends(
    spark_store, monkeypatch
):
    write_keyspace(spark_store, {b"s": SOUND}, NOW_MS)
    requests = [NamedClaim(b"s", b"g", claim(ID_1, GONE, ID_7, ID_8, force=True))]
    with monkeypatch.context() as patch:
        patch.setattr(SparkWriter, "execute", cut_off)
        with pytest.raises(HaltedError):
            xclaim(spark_store, requests, run_id="cut off")
    assert count(spark_store.where, "pending", "run_seq = 1") == 2
    delete(spark_store, "pending", "id_ms IN (1, 4, 7)")

    reply = xclaim(spark_store, requests, run_id="cut off")

    counted = {
        name: reply.counts[name] for name in ("claimed", "deleted", "forced", "lost", "gone")
    }
    assert counted == {"claimed": 1, "deleted": 1, "forced": 2, "lost": 2, "gone": 0}
    statuses = [(row["id"], row["status"]) for row in reply.ids.collect()]
    assert statuses == [("1-0", "lost"), ("4-0", "lost"), ("7-0", "forced"), ("8-0", "forced")]
    assert count(spark_store.where, "pending", "id_ms IN (1, 4, 7)") == 0
    assert count(spark_store.where, "pending", "id_ms = 8 AND run_seq = 1") == 1
    assert count(spark_store.where, "tombstones") == 0


def test_a_run_that_only_forces_says_what_it_lost(store):
    write_keyspace(store, {b"s": SOUND}, NOW_MS)
    eve = ("s", "g", ID_7.ms, ID_7.seq, "eve", NOW_MS + 7, 1, 0)

    def deliver(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            append_rows(store, "pending", store.rows("pending", [eve], PENDING))

    requests = [NamedClaim(b"s", b"g", claim(ID_7, ID_8, force=True))]
    reply = xclaim(store, requests, progress=deliver)

    counted = {name: n for name, n in reply.counts.items() if n}
    assert counted == {"forced": 2, "lost": 1, "requested": 1}
    statuses = [(row["id"], row["status"]) for row in reply.ids.collect()]
    assert statuses == [("7-0", "lost"), ("8-0", "forced")]
    assert count(store.where, "pending", "id_ms = 7 AND consumer = 'eve' AND run_seq = 0") == 1
    assert count(store.where, "pending", "id_ms = 7") == 1


# ---- request tables that cannot be used ----


@pytest.fixture(scope="module")
def row(engine: Executor) -> Relation:
    """A request table of one row, number 7."""
    named = NamedClaim(b"s", b"g", claim(ID_1, ID_2, retrycount=3, last_id=ID_3))
    return with_values(claim_table(engine, [named]), request="7L")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("request", "'x'"),
        ("consumer", "NULL"),
        ("consumer", r"'\\xff\\'"),
        ("min_idle_ms", "NULL"),
        ("min_idle_ms", "'15m'"),
        ("ids", "CAST(NULL AS ARRAY<STRING>)"),
        ("ids", "array('1-0', NULL)"),
        ("ids", "array('1-0', '5')"),
        ("ids", "array('1-0', '1-18446744073709551616')"),
        ("ids", "array('')"),
        ("ids", "array(NULL)"),
        ("time_ms", "1"),
        ("retrycount", "-1"),
        ("force", "NULL"),
        ("justid", "NULL"),
        ("justid", "'maybe'"),
        ("last_id", "'-'"),
        ("idle_rule", "'Server'"),
        ("idle_rule", "NULL"),
        ("profile", "'redis-8'"),
    ],
)
def test_a_value_that_no_claim_can_have_is_refused_with_its_column_and_request(row, column, value):
    table = with_values(row, **{"idle_ms": "5", column: value})
    number = "x" if column == "request" else "7"
    said = rf"invalid {column} in the row for request {number} \(s/g\)"
    with pytest.raises(RequestError, match=said) as raised:
        CLAIMS.checked(table)
    assert raised.value.columns == [column]


@pytest.mark.parametrize(
    ("column", "value", "type_"),
    [
        ("ids", "array(1L)", "array<bigint>"),
        ("ids", "'1-0'", "string"),
        ("min_idle_ms", "1.0D", "double"),
        ("min_idle_ms", "1.5", r"decimal\(2,1\)"),
        ("force", "1", "int"),
        ("consumer", "X'00'", "binary"),
        ("request", "true", "boolean"),
    ],
)
def test_a_column_of_a_type_that_does_not_fit_is_refused(row, column, value, type_):
    with pytest.raises(RequestError, match=f"{column} of the request table is {type_}: it must be"):
        CLAIMS.checked(with_values(row, **{column: value}))


def test_a_column_too_few_or_too_many_is_refused_but_what_may_be_left_out(row):
    with pytest.raises(RequestError, match="has no column ids"):
        CLAIMS.checked(row.select(*(name for name in row.columns if name != "ids")))
    with pytest.raises(RequestError, match="has unknown column Idle"):
        CLAIMS.checked(with_values(row, Idle="5"))
    left_out = ("idle_ms", "time_ms", "retrycount", "last_id")
    few = row.select(*(name for name in row.columns if name not in left_out))
    (checked,) = CLAIMS.checked(few).collect()
    assert [checked[name] for name in left_out] == [None] * 4
    assert checked["ids"] == ["1-0", "2-0"]


def test_no_ids_are_ids_and_numbers_may_be_texts(row):
    texts = {"request": "' 7'", "min_idle_ms": "'007'", "ids": "array()", "force": "'y'"}
    (checked,) = CLAIMS.checked(with_values(row, **texts)).collect()
    assert (checked["request"], checked["min_idle_ms"], checked["ids"], checked["force"]) == (
        *(7, 7, []),
        True,
    )


@pytest.mark.parametrize("number", ["7", "'7'", "'007'"])
def test_each_request_has_a_number_of_its_own_however_it_is_written(row, number):
    first = with_values(row, request="'7'" if number.startswith("'") else "7")
    both = first.sql(
        "SELECT * FROM {this} AS this UNION ALL SELECT * FROM {other} AS other",
        other=with_values(row, request=number),
    )
    with pytest.raises(RequestError, match=r"2 rows for request 0*7 \(s/g\)"):
        CLAIMS.checked(both)


def test_of_a_thousand_requests_one_of_which_is_bad_none_is_done(store):
    write_keyspace(store, {b"s": SOUND}, NOW_MS)
    before = versions(store.where)
    good = NamedClaim(b"s", b"g", claim(ID_1))
    table = claim_table(store.engine, [good] * 1000)
    bad = with_values(table, ids="CASE WHEN request = 617 THEN array('6') ELSE ids END")
    for dry_run in (True, False):
        with pytest.raises(RequestError, match=r"invalid ids in the row for request 617 \(s/g\)"):
            xclaim(store, bad, dry_run=dry_run)
    with pytest.raises(RequestError, match="there is no request"):
        xclaim(store, [])
    with pytest.raises(RequestError, match="now_ms"):
        xclaim(store, [good], now_ms=-1)
    assert versions(store.where) == before
