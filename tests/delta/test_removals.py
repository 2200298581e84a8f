"""What a snapshot or an import may take away from a store, and what it may not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from claimlib.commands import staging
from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.commands.runs import abandon, find_run, list_runs
from claimlib.commands.snapshot import SnapshotRequest, Spans, _changed_ids, snapshot
from claimlib.commands.sources import last_snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine.changes import Changes
from claimlib.engine.relation import Relation, Rows
from claimlib.errors import (
    EmptySourceError,
    GuardError,
    NotAMirrorError,
    RequestError,
    SchemaError,
    SourceMismatchError,
    UnfinishedRunError,
    VerificationError,
)
from claimlib.live.batches import (
    Batch,
    ConsumerRow,
    EntryPage,
    EntryRow,
    GroupDone,
    PendingPage,
    PendingRow,
    SourceOpened,
    StreamDone,
)
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.runs import Phase, pinned, rollforward
from claimlib.runs.journal import ServerIdentity, decided_by, run_rows
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import RemovalLimits
from claimlib.store.tables import Store
from claimlib.store.writer import RunCommit
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.given_files import entries as given_entries
from tests.delta.given_files import groups as given_groups
from tests.delta.given_files import pending as given_pending
from tests.delta.given_files import request
from tests.delta.own_rows import append, delete, entry_row, init, init_again, pending_row, update
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.reading import count, query
from tests.delta.snapshots import ALL, FIELDS, owners, source, stream

STATE = ("pending", "entries", "groups", "consumers", "streams")


def limited(share: float = 0.5, *, allow_empty: bool = False) -> SnapshotRequest:
    return SnapshotRequest(ALL.source, limits=RemovalLimits(allow_empty, share))


def contents(store: Store) -> dict[str, list[str]]:
    return {
        table: sorted(str(row) for row in query(store.where, table, "SELECT * FROM t"))
        for table in STATE
    }


# ------------------------------------------------------------------- a source is not believed


def test_a_store_with_rows_of_its_own_is_never_taken_over_by_a_snapshot(store: Store) -> None:
    sources: tuple[list[Batch], ...] = ([], stream(b"s", {1: b"x"}, {1}, NOW_MS))
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    before = contents(store)
    for batches in sources:
        with pytest.raises(NotAMirrorError, match=r"pending, entries.*claimlib init"):
            snapshot(store, limited(1, allow_empty=True), lambda _, read=batches: source(read))
        assert contents(store) == before
    xautoclaim(store, SweepRequest(REQUEST))
    for batches in sources:
        with pytest.raises(NotAMirrorError):
            snapshot(store, limited(1, allow_empty=True), lambda _, read=batches: source(read))


def test_a_server_that_has_nothing_empties_its_mirror_only_where_that_is_allowed(
    store: Store,
) -> None:
    snapshot(store, ALL, lambda _: source(stream(b"s", {1: b"x", 2: b"x"}, {1, 2}, NOW_MS)))
    before = contents(store)
    with pytest.raises(EmptySourceError, match="--allow-empty"):
        snapshot(store, limited(1), lambda _: source())
    assert contents(store) == before
    assert count(store.where, "journal", "kind = 'run'") == 1
    reply = snapshot(store, limited(allow_empty=True), lambda _: source())
    assert contents(store) == {table: [] for table in STATE}
    assert (reply.counts["pending_removed"], reply.counts["entry_removed"]) == (2, 2)
    again = snapshot(store, ALL, lambda _: source())
    assert again.counts["pending_read"] == 0, "an empty mirror of an empty server is no surprise"


def test_a_share_that_nothing_explains_is_judged_for_each_stream_and_for_all(store: Store) -> None:
    large = dict.fromkeys(range(1, 9), b"x")
    first = [
        stream(b"a", large, set(large), NOW_MS),
        stream(b"b", {1: b"x"}, {1}, NOW_MS),
        stream(b"c", {1: b"x"}, {1}, NOW_MS),
    ]
    snapshot(store, ALL, lambda _: source(*first))
    before = contents(store)
    with pytest.raises(
        GuardError, match=r"1 of 1 row of pending of stream c .1 of 10 in all streams"
    ):
        snapshot(store, ALL, lambda _: source(*first[:2]))
    with pytest.raises(GuardError, match=r"8 of 8 .* of stream a .8 of 10 in all.*--max-removed-"):
        snapshot(store, limited(0.9), lambda _: source(*first[1:]))
    assert contents(store) == before
    assert count(store.where, "pel_snapshots") == 10, "what was read in vain is not kept"
    assert count(store.where, "entry_landing") == 0
    reply = snapshot(store, limited(1), lambda _: source(*first[1:]))
    assert (reply.counts["pending_removed"], reply.counts["stream_removed"]) == (8, 1)
    assert owners(store) == {(b"b", 1): b"x", (b"c", 1): b"x"}


def test_what_was_acknowledged_deleted_or_trimmed_is_explained_and_a_group_made_again_is_not(
    store: Store,
) -> None:
    full = dict.fromkeys(range(1, 9), b"x")
    snapshot(store, ALL, lambda _: source(stream(b"s", full, set(full), NOW_MS)))
    acked = stream(b"s", {9: b"x"}, {9}, NOW_MS + 1)
    reply = snapshot(store, limited(0), lambda _: source(acked))
    assert (reply.counts["pending_removed"], reply.counts["entry_removed"]) == (8, 8)
    assert owners(store) == {(b"s", 9): b"x"}
    nothing = stream(b"s", {}, set(), NOW_MS + 2)
    again = [
        GroupDone(b"s", b"g", NOW_MS + 2, StreamId(8, 0), (), 0),
        StreamDone(b"s", 0, StreamId(99, 0), None, None, NOW_MS + 2, 1, 0, 0),
    ]
    with pytest.raises(GuardError, match="1 of 1 row of pending of stream s"):
        snapshot(store, ALL, lambda _: source(again))
    snapshot(store, limited(0), lambda _: source(nothing))
    assert owners(store) == {}


FULL = dict.fromkeys(range(1, 9), b"x")
NEW_IDS = {9: b"x"}


@pytest.mark.parametrize(
    ("entries", "added_before", "added"),
    [
        pytest.param({9}, 8, 3, id="fewer entries were ever added than before"),
        pytest.param({*range(9, 21)}, 8, 12, id="nothing was deleted, and entries are missing"),
    ],
)
def test_a_stream_that_was_made_again_with_larger_ids_explains_nothing(
    store: Store, entries: set[int], added_before: int, added: int
) -> None:
    snapshot(store, ALL, lambda _: source(stream(b"s", FULL, set(FULL), NOW_MS, added_before)))
    before = contents(store)
    again = stream(b"s", NEW_IDS, entries, NOW_MS + 1, added)
    with pytest.raises(GuardError, match=r"8 of 8 rows of pending of stream s.*recreated"):
        snapshot(store, ALL, lambda _: source(again))
    assert contents(store) == before
    snapshot(store, limited(1), lambda _: source(again))
    assert owners(store) == {(b"s", 9): b"x"}


def test_a_stream_that_went_on_explains_what_is_gone_also_after_a_restart(store: Store) -> None:
    first = stream(b"s", FULL, set(FULL), NOW_MS, 8)
    snapshot(store, ALL, lambda _: source([SourceOpened("a", "h")], first))
    went_on = stream(b"s", NEW_IDS, {9}, NOW_MS + 1, 9)
    reply = snapshot(store, limited(0), lambda _: source([SourceOpened("b", "i")], went_on))
    assert reply.counts["pending_removed"] == 8


def test_a_server_that_says_of_no_stream_how_much_it_got_explains_nothing_once_it_is_another_one(
    store: Store,
) -> None:
    first = stream(b"s", FULL, set(FULL), NOW_MS)
    snapshot(store, ALL, lambda _: source([SourceOpened("a", "h")], first))
    later = stream(b"s", NEW_IDS, {9}, NOW_MS + 1)
    with pytest.raises(GuardError, match="8 of 8 rows of pending of stream s"):
        snapshot(store, ALL, lambda _: source([SourceOpened("b", "i")], later))
    reply = snapshot(store, limited(0), lambda _: source([SourceOpened("b", "i", "h")], later))
    assert reply.counts["pending_removed"] == 8, "a promoted replica goes on with these streams"


def test_a_stream_of_which_only_an_earlier_process_is_known_is_not_taken_for_deleted(
    store: Store,
) -> None:
    """A snapshot of some streams after a restart says nothing about the others."""
    kept, more = (dict.fromkeys(range(1, last), b"x") for last in (9, 30))
    first = stream(b"a:1", kept, set(kept), NOW_MS)
    deleted = stream(b"b:1", kept, set(kept), NOW_MS)
    other = stream(b"b:2", more, set(more), NOW_MS)

    def part(glob: str) -> SnapshotRequest:
        return SnapshotRequest(ALL.source, glob)

    snapshot(store, ALL, lambda _: source([SourceOpened("first", "f")], first, deleted, other))
    snapshot(store, part("a:*"), lambda _: source([SourceOpened("second", "s")], first))
    with pytest.raises(GuardError, match="8 of 8 rows of pending of stream b:1"):
        snapshot(store, part("b:*"), lambda _: source([SourceOpened("second", "s")], other))
    snapshot(store, part("b:*"), lambda _: source([SourceOpened("first", "f")], other))
    assert {name for name, _ in owners(store)} == {b"a:1", b"b:2"}


def test_an_import_is_judged_by_the_same_share(store: Store, tmp_path: Path) -> None:
    def tables(*ids: int, upto: int) -> dict[str, object]:
        return {
            "entries": given_entries([(b"s", f"{n}-0", None) for n in ids]),
            "pending": given_pending([(b"s", b"g", f"{n}-0", b"x", 5, 1) for n in ids]),
            "groups": given_groups([(b"s", b"g", f"{upto}-0", NOW_MS)]),
        }

    def limits(share: float) -> dict[str, object]:
        return {"entries_complete": True, "limits": RemovalLimits(max_removed_share=share)}

    first = request(tmp_path / "1", tables(1, 2, 3, 4, upto=4), **limits(0.5))
    import_tables(store, first)
    before = contents(store)
    fewer = request(tmp_path / "2", tables(1, upto=1), **limits(0.5))
    with pytest.raises(GuardError, match="3 of 4 rows of pending of stream s"):
        import_tables(store, fewer)
    assert contents(store) == before
    import_tables(store, request(tmp_path / "3", tables(1, upto=1), **limits(1)))
    assert owners(store) == {(b"s", 1): b"x"}


def test_another_server_process_at_the_same_address_is_told(store: Store) -> None:
    rows = stream(b"s", {1: b"x"}, {1}, NOW_MS)

    def from_process(run_id: str | None, replication_id: str | None) -> dict[str, int]:
        opened = SourceOpened(run_id, replication_id)
        counts = snapshot(store, ALL, lambda _: source([opened], rows)).counts
        return {n: counts[n] for n in ("server_restarted", "replication_changed") if n in counts}

    def told(run_id: str | None, replication_id: str | None) -> dict[str, int]:
        """What the next snapshot would say."""
        last = last_snapshot(pinned(store, ("runs",))[0].relation("runs"))
        assert last is not None
        return _changed_ids(last.server, ServerIdentity(run_id, replication_id))

    assert from_process("a", "h") == {}
    assert told("a", "h") == {}
    assert from_process("b", "h") == {"server_restarted": 1}
    assert from_process(None, "i") == {"replication_changed": 1}
    assert told("b", "i") == {}, "what was not known is not another one"
    kept = query(store.where, "runs", "SELECT server_run_id AS a, replication_id AS b FROM t")
    assert {(row["a"], row["b"]) for row in kept} == {("a", "h"), ("b", "h"), (None, "i")}


# ------------------------------------------------------------------- only some groups


def two_groups(at_ms: int, a: dict[int, bytes], b: dict[int, bytes] | None) -> list[Batch]:
    """A stream with the ids 1 to 9 and the groups a and b; b is not read where it is null."""
    read = {b"a": a} if b is None else {b"a": a, b"b": b}
    batches: list[Batch] = []
    for name, owned in read.items():
        rows = tuple(PendingRow(StreamId(n, 0), owner, 1000, 1) for n, owner in owned.items())
        batches += [
            PendingPage(b"s", name, at_ms, rows),
            GroupDone(b"s", name, at_ms, StreamId(9, 0), (ConsumerRow(b"x", 1, None),), len(rows)),
        ]
    low, high = (pick(n for owned in read.values() for n in owned) for pick in (min, max))
    ids = range(low, high + 1) if b is not None else range(1, 10)
    page = EntryPage(b"s", tuple(EntryRow(StreamId(n, 0), FIELDS if n in a else None) for n in ids))
    span = (StreamId(ids[0], 0), StreamId(ids[-1], 0))
    pending = sum(map(len, read.values()))
    done = StreamDone(b"s", 9, StreamId(9, 0), *span, at_ms, len(read), pending, len(ids))
    return [*batches, page, done]


def test_a_snapshot_of_some_groups_reads_over_the_span_that_the_others_need(store: Store) -> None:
    both = two_groups(NOW_MS, {5: b"x", 6: b"x"}, dict.fromkeys(range(1, 10), b"x"))
    snapshot(store, ALL, lambda _: source(both))
    told: list[Spans] = []

    def read(spans: Spans) -> Iterator[Batch]:
        told.append(spans)
        return source(two_groups(NOW_MS + 1, {5: b"y"}, None))

    only_a = SnapshotRequest(ALL.source, group_glob="a")
    reply = snapshot(store, only_a, read)
    assert told == [{b"s": (StreamId(1, 0), StreamId(9, 0))}]
    assert count(store.where, "entries") == 9
    (proof,) = query(store.where, "streams", "SELECT complete_from_ms, complete_to_ms FROM t")
    assert tuple(proof.values()) == (1, 9)
    assert (reply.counts["pending_removed"], reply.counts["pending_replaced"]) == (1, 1)
    assert count(store.where, "pending", "consumer_group = 'b' AND run_seq = 1") == 9
    swept = xautoclaim(store, SweepRequest(REQUEST))
    assert (swept.counts["refused"], swept.counts["deleted"]) == (0, 0)
    assert swept.counts["claimed"] == 10


def test_a_snapshot_of_one_stream_opens_no_file_of_another_bucket(store: Store) -> None:
    from claimlib.plans.keys import bucket_of

    names = [b"s%d" % n for n in range(40)]
    snapshot(store, ALL, lambda _: source(*(stream(n, {1: b"x"}, {1}, NOW_MS) for n in names)))
    one_row = Relation(store.engine, Rows(pa.table({"n": [1]})))
    bucket = one_row.select(f"{bucket_of(names[0].decode(), store.buckets)} AS bucket").first()[
        "bucket"
    ]
    for table in ("pending", "entries"):
        for folder in Path(store.where, table).glob("bucket=*"):
            if folder.name != f"bucket={bucket}":
                for file in folder.glob("*.parquet"):
                    file.unlink()
    snapshot_request = SnapshotRequest(ALL.source, stream_glob=names[0].decode())
    reply = snapshot(
        store, snapshot_request, lambda _: source(stream(names[0], {2: b"y"}, {2}, NOW_MS + 1))
    )
    assert (reply.counts["pending_new"], reply.counts["pending_removed"]) == (1, 1)


# ------------------------------------------------------------------- late, or not all there


def cut_off(phase: Phase) -> Callable[[Phase, str], None]:
    """A progress callback that ends the run as it enters a phase."""

    def die(entered: Phase, detail: str) -> None:
        if entered is phase:
            raise KeyboardInterrupt(detail)

    return die


def import_of(folder: Path, *ids: int) -> ImportRequest:
    tables = {
        "entries": given_entries([(b"s", f"{n}-0", None) for n in ids]),
        "pending": given_pending([(b"s", b"g", f"{n}-0", b"x", 5, 1) for n in ids]),
    }
    limits = RemovalLimits(max_removed_share=1)
    return request(folder, tables, entries_complete=True, limits=limits)


def test_an_import_that_is_recovered_leaves_alone_what_was_appended_and_changed_since_its_decision(
    store: Store, tmp_path: Path
) -> None:
    import_tables(store, import_of(tmp_path / "1", 1, 2, 3, 4))
    own = {"stream": "s", "run_seq": 0, "last_delivered_ms": 1, "last_delivered_seq": 0}
    append(store, "groups", {**own, "consumer_group": "h"}, {**own, "consumer_group": "i"})
    second = import_of(tmp_path / "2", 3)
    with pytest.raises(KeyboardInterrupt):
        import_tables(store, second, run_id="cut", progress=cut_off(Phase.APPLY))
    append(store, "pending", pending_row("s", 7), pending_row("t", 8))
    append(store, "entries", entry_row("s", 7), entry_row("t", 8))
    append(store, "streams", {"stream": "t", "run_seq": 0})
    group = {"stream": "t", "consumer_group": "g", "run_seq": 0}
    append(store, "groups", {**group, "last_delivered_ms": 8, "last_delivered_seq": 0})
    append(store, "consumers", {**group, "consumer": "own", "seen_time_ms": 5})
    update(store, "groups", "consumer_group = 'h'", last_delivered_ms="2")
    update(store, "pending", "stream = 's' AND id_ms = 2", delivery_count="9")
    delete(store, "pending", "stream = 's' AND id_ms = 4")

    xautoclaim(store, SweepRequest(REQUEST, stream_glob="nothing"), now_ms=NOW_MS)

    ids = query(store.where, "pending", "SELECT stream, id_ms FROM t ORDER BY 1, 2")
    assert [tuple(row.values()) for row in ids] == [("s", 2), ("s", 3), ("s", 7), ("t", 8)]
    ids = query(store.where, "entries", "SELECT stream, id_ms FROM t ORDER BY 1, 2")
    assert [tuple(row.values()) for row in ids] == [("s", 3), ("s", 7), ("t", 8)]
    for table in ("streams", "groups", "consumers"):
        assert count(store.where, table, "stream = 't'") == 1, table
    left = query(store.where, "groups", "SELECT consumer_group AS g FROM t WHERE stream = 's'")
    assert {row["g"] for row in left} == {"g", "h"}
    done = find_run(store, "import:cut")
    wanted = {"pending_removed": 3, "lost": 2, "pending_extra": 3, "entries_extra": 2}
    assert {name: done.counts[name] for name in wanted} == wanted
    lost = query(store.where, "journal", "SELECT id_ms FROM t WHERE kind = 'lost' ORDER BY 1")
    assert [row["id_ms"] for row in lost] == [2, 4]


def test_an_entry_that_its_owner_rewrote_since_the_decision_stays_as_its_pending_row_does(
    store: Store, tmp_path: Path
) -> None:
    import_tables(store, import_of(tmp_path / "1", 1, 2))
    with pytest.raises(KeyboardInterrupt):
        import_tables(
            store, import_of(tmp_path / "2", 2), run_id="cut", progress=cut_off(Phase.APPLY)
        )
    for table in ("pending", "entries"):
        delete(store, table, "id_ms = 1")
    append(store, "entries", entry_row("s", 1, [(b"f", b"own")]))
    append(store, "pending", pending_row("s", 1))

    swept = xautoclaim(store, SweepRequest(REQUEST), now_ms=NOW_MS)

    assert (swept.counts["deleted"], swept.counts["claimed"]) == (0, 2)
    done = find_run(store, "import:cut").counts
    expected = {"entry_removed": 1, "lost": 1, "pending_extra": 1, "entries_extra": 1}
    assert {name: done[name] for name in expected} == expected


def test_what_is_lost_is_counted_also_where_new_rows_make_up_the_number(
    store: Store, tmp_path: Path
) -> None:
    import_tables(store, import_of(tmp_path / "1", 1, 3))
    second = request(
        tmp_path / "2",
        {
            "entries": given_entries([(b"s", f"{n}-0", None) for n in (1, 2, 3)]),
            "pending": given_pending([(b"s", b"g", f"{n}-0", b"ann", 5, 1) for n in (1, 2, 3)]),
        },
        entries_complete=True,
    )
    with pytest.raises(KeyboardInterrupt):
        import_tables(store, second, run_id="cut", progress=cut_off(Phase.APPLY))
    update(store, "pending", "id_ms = 3", consumer="'own'")
    xautoclaim(store, SweepRequest(REQUEST, stream_glob="nothing"), now_ms=NOW_MS)
    done = find_run(store, "import:cut").counts
    assert (done["pending_new"], done["pending_replaced"], done["lost"]) == (1, 2, 1)
    lost = query(store.where, "journal", "SELECT id_ms FROM t WHERE kind = 'lost'")
    assert lost == [{"id_ms": 3}]
    assert owners(store) == {(b"s", 1): b"ann", (b"s", 2): b"ann", (b"s", 3): b"own"}


def test_two_drivers_of_one_snapshot_both_end_well_though_the_first_sweeps_its_landing(
    store: Store,
) -> None:
    batches = stream(b"s", {1: b"x"}, {1}, NOW_MS)
    with pytest.raises(KeyboardInterrupt):
        snapshot(store, ALL, lambda _: source(batches), progress=cut_off(Phase.APPLY))
    (row,) = run_rows(store, 0)
    first = rollforward.roll_forward(store, row, lambda *_: None)
    assert count(store.where, "entry_landing") == 0
    clock = rollforward.Clock(lambda *_: None)
    assert rollforward.carry_out(store, decided_by(store, row.run_seq), clock) == first


def test_a_snapshot_does_not_take_over_what_was_imported_under_its_servers_name(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    start = request.getfixturevalue("spark_if_needed")
    engine = request.config.getoption("--engine")
    store = init(start, str(tmp_path / "own"), engine, source=ALL.source)
    import_tables(store, import_of(tmp_path / "1", 1, 2))
    before = contents(store)
    with pytest.raises(SourceMismatchError, match="by claimlib import"):
        snapshot(store, ALL, lambda _: source(stream(b"s", {1: b"x"}, {1}, NOW_MS)))
    assert contents(store) == before


def test_what_was_read_before_the_reading_broke_off_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_off(_: Spans) -> Iterator[Batch]:
        yield from stream(b"s", {1: b"x"}, {1}, NOW_MS)
        raise ConnectionError

    monkeypatch.setattr(staging, "MAX_ROWS", 1)
    with pytest.raises(ConnectionError):
        snapshot(store, ALL, breaks_off)
    for table in ("pel_snapshots", "entry_landing"):
        assert store.version(table) > 0, "it was staged"
        assert count(store.where, table) == 0, table


def test_a_row_that_its_owner_removed_since_the_decision_does_not_come_back(
    store: Store, tmp_path: Path
) -> None:
    import_tables(store, import_of(tmp_path / "1", 1, 2))
    with pytest.raises(KeyboardInterrupt):
        import_tables(store, import_of(tmp_path / "2", 1, 2, 3), progress=cut_off(Phase.APPLY))
    for table in ("pending", "entries"):
        delete(store, table, "id_ms = 1")
    xautoclaim(store, SweepRequest(REQUEST, stream_glob="nothing"), now_ms=NOW_MS)
    for table in ("pending", "entries"):
        ids = query(store.where, table, "SELECT id_ms FROM t ORDER BY 1")
        assert [row["id_ms"] for row in ids] == [2, 3], table


def test_a_landing_that_is_not_what_was_decided_is_not_applied_and_can_be_given_up(
    store: Store,
) -> None:
    first = stream(b"s", dict.fromkeys(range(1, 6), b"x"), set(range(1, 6)), NOW_MS)
    snapshot(store, ALL, lambda _: source(first))
    second = stream(b"s", dict.fromkeys(range(1, 7), b"y"), set(range(1, 7)), NOW_MS + 1)
    with pytest.raises(KeyboardInterrupt):
        snapshot(store, ALL, lambda _: source(second), run_id="cut", progress=cut_off(Phase.APPLY))
    before = contents(store)
    (known,) = query(store.where, "streams", "SELECT * FROM t")
    delete(store, "pel_snapshots", f"snapshot_ms > {NOW_MS}")
    delete(store, "entry_landing", "id_ms = 6")
    delete(store, "journal", "kind = 'consumer' AND run_seq = 2")

    lost = "found pel_snapshots: 0 of 6 rows, entry_landing: 5 of 6 rows, consumers: 0 of 1 row"
    with pytest.raises(VerificationError, match=rf"\({lost}\).*claimlib abandon"):
        xautoclaim(store, SweepRequest(REQUEST))
    assert contents(store) == before
    with pytest.raises(UnfinishedRunError, match="snapshot:cut"):
        xautoclaim(store, SweepRequest(REQUEST), dry_run=True)
    with pytest.raises(RequestError, match="no unfinished run snapshot:other"):
        abandon(store, "snapshot:other")

    assert abandon(store, "snapshot:cut").counts == {"abandoned": 1}
    assert list_runs(store, 9).unfinished == ()
    (proven,) = query(store.where, "streams", "SELECT * FROM t")
    taken_back = {**dict.fromkeys(PROVEN_RANGE), "run_seq": 2}
    assert proven == known | taken_back, "its proof, and nothing else"
    assert contents(store) == before | {"streams": [str(proven)]}
    reply = snapshot(store, ALL, lambda _: source(second))
    assert reply.counts["pending_replaced"] == 5
    assert set(owners(store).values()) == {b"y"}


def test_an_unfinished_snapshot_proves_nothing_of_entries_that_were_lost_and_made_again_since(
    store: Store,
) -> None:
    rows = stream(b"s", {1: b"x", 2: b"x"}, {1, 2}, NOW_MS)
    later = stream(b"s", {1: b"x", 2: b"x"}, {1, 2}, NOW_MS + 1)
    snapshot(store, ALL, lambda _: source(rows))
    with pytest.raises(KeyboardInterrupt):
        snapshot(store, ALL, lambda _: source(later), run_id="cut", progress=cut_off(Phase.APPLY))
    shutil.rmtree(Path(store.where, "entries"))
    again = init_again(store)
    swept = xautoclaim(again, SweepRequest(REQUEST), now_ms=NOW_MS)
    assert find_run(again, "snapshot:cut").run_seq == 2, "it was finished"
    assert (swept.counts["refused"], swept.counts["deleted"]) == (1, 0)
    snapshot(again, ALL, lambda _: source(later))
    assert xautoclaim(again, SweepRequest(REQUEST), now_ms=NOW_MS).counts["refused"] == 0


@pytest.mark.parametrize("ends_by", ["the next run", "abandon"])
def test_before_an_unfinished_snapshot_writes_into_an_older_copy_of_entries_that_is_refused(
    store: Store, ends_by: str
) -> None:
    """Its own commit would bring the copy to the version that was last seen, and hide what the copy
    lacks of another stream."""
    of_t = stream(b"t", {1: b"x", 2: b"x"}, {1, 2}, NOW_MS)
    first_of_s = stream(b"s", {1: b"x"}, {1}, NOW_MS)
    entries, copy = Path(store.where, "entries"), Path(store.where, "copy")
    shutil.copytree(entries, copy)
    snapshot(store, ALL, lambda _: source(first_of_s, of_t))
    of_s = stream(b"s", {1: b"x", 2: b"x"}, {1, 2}, NOW_MS + 1)
    only_s = SnapshotRequest(ALL.source, stream_glob="s")
    with pytest.raises(KeyboardInterrupt):
        snapshot(
            *(store, only_s, lambda _: source(of_s)),
            run_id="cut",
            progress=cut_off(Phase.APPLY),
        )
    shutil.rmtree(entries)
    copy.rename(entries)
    for _ in range(2):
        with pytest.raises(SchemaError, match="entries is at version 0, but run 2 has used"):
            xautoclaim(store, SweepRequest(REQUEST), now_ms=NOW_MS)
    with pytest.raises(SchemaError, match="entries is at version 0, but run 2 has used"):
        abandon(store, "snapshot:cut")
    again = init_again(store, accept_replaced=True)
    if ends_by == "abandon":
        abandon(again, "snapshot:cut")
    swept = xautoclaim(again, SweepRequest(REQUEST), now_ms=NOW_MS)
    assert find_run(again, "snapshot:cut").run_seq == 2, "it has ended"
    assert (swept.counts["refused"], swept.counts["deleted"]) == (2, 0)
    snapshot(again, ALL, lambda _: source(of_s, of_t))
    assert xautoclaim(again, SweepRequest(REQUEST), now_ms=NOW_MS).counts["refused"] == 0


def test_where_entries_are_accepted_while_a_snapshot_writes_its_proofs_they_are_taken_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([False])  # after they were written
    monkeypatch.setattr("claimlib.runs.mirror_rows._is_pinned_entries", lambda *_: next(looks))
    snapshot(store, ALL, lambda _: source(stream(b"s", {1: b"x"}, {1}, NOW_MS)))
    assert not list(looks)
    (row,) = query(store.where, "streams", "SELECT complete_to_ms FROM t")
    assert row == {"complete_to_ms": None}


def test_a_run_that_claims_is_not_given_up_for_the_next_run_finishes_it(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    with pytest.raises(KeyboardInterrupt):
        xautoclaim(store, SweepRequest(REQUEST), run_id="cut", progress=cut_off(Phase.APPLY))
    with pytest.raises(RequestError, match="can still be finished"):
        abandon(store, "1")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            "pending",
            "change the entry 9223372036854775808-0 of s / g, but pending still has the row",
        ),
        (
            "entries",
            "entries does not contain what the run decided.*; the first is s 9223372036854775808-0",
        ),
    ],
    ids=["pending", "entries"],
)
def test_a_store_that_does_not_hold_what_was_decided_though_nobody_else_wrote_is_an_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, table: str, says: str
) -> None:
    large = 2**63  # negative in the tables
    first = stream(b"s", {large: b"x", 2: b"x"}, {large, 2}, NOW_MS)
    snapshot(store, ALL, lambda _: source(first))
    apply = store.writer.apply

    def passed_over(changes: Changes, commit: RunCommit) -> int | None:
        return None if changes.table == table else apply(changes, commit)

    monkeypatch.setattr(store.writer, "apply", passed_over)
    fewer = stream(b"s", {2: b"x"}, {2}, NOW_MS + 1)
    with pytest.raises(VerificationError, match=says):
        snapshot(store, ALL, lambda _: source(fewer), run_id="cut")
    monkeypatch.undo()
    reply = snapshot(store, ALL, lambda _: source(fewer), run_id="cut")
    assert (reply.counts["lost"], count(store.where, table)) == (0, 1)


def test_pages_that_were_not_all_written_down_decide_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = store.writer.append

    def one_row_less(table: str, rows: Relation, **options: Any) -> None:
        written(table, rows.limit(1) if table == "pel_snapshots" else rows, **options)

    monkeypatch.setattr(store.writer, "append", one_row_less)
    rows = stream(b"s", {1: b"x", 2: b"x"}, {1, 2}, NOW_MS)
    with pytest.raises(VerificationError, match="arrived in the staging tables"):
        snapshot(store, ALL, lambda _: source(rows))
    assert count(store.where, "journal") == 0
