"""An incremental sweep decides what a full one decides, whatever happened since its base."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from claimlib.commands.runs import find_run, remark_on
from claimlib.commands.sweep_decision import decide
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs import Decision, begin_reading
from claimlib.semantics.model import AutoclaimRequest, Guards
from claimlib.store.gone_back import Accepted
from claimlib.store.opening import is_one_process, set_property
from claimlib.store.tables import Store
from tests.delta.histories import MINUTE_MS, SWEEP, History, Server
from tests.delta.own_rows import append, pending_row, say_nothing_of_the_newest_commit

# Both of its checks find a base.
SEED = 2
_OTHER_SEEDS = [seed for seed in range(51) if seed != SEED]
# What only a look at the whole PEL can say.
_OF_WHOLE_PELS = ("pending_before", "oldest_delivery_time_ms", "highest_delivery_count")


@pytest.fixture
def reader(request: pytest.FixtureRequest) -> str:
    """Who reads `pending` where a base says which rows matter."""
    return str(getattr(request, "param", "delta-rs"))


by_each_reader = pytest.mark.parametrize("reader", ["delta-rs", "Spark"], indirect=True)


@pytest.fixture(autouse=True)
def _tables_are_large(
    reader: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table of few rows a sweep looks at all."""
    if reader == "Spark":
        request.getfixturevalue("large_tables")
    else:
        monkeypatch.setattr("claimlib.store.tables.FEW_ROWS", 0)
    monkeypatch.setattr(
        "claimlib.commands.sweep_decision.few_held", lambda _store, *tables: list(tables)
    )


@pytest.fixture(scope="module")
def swept(spark: SparkSession, empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has had a snapshot and a sweep."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("swept") / "store")
    store = Store.open(spark, str(where))
    Server.new().bring(store, 61_000)
    reply = xautoclaim(store, SWEEP, now_ms=61_010)
    assert (reply.counts["claimed"], reply.counts["deleted"]) == (24, 6)
    return where


@pytest.fixture
def history(spark: SparkSession, swept: Path, tmp_path: Path) -> Callable[[int], History]:
    def begun(seed: int) -> History:
        where = shutil.copytree(swept, tmp_path / f"store-{seed}")
        store = Store.open(spark, str(where))
        return History(store, Server.new(), Random(seed), now_ms=61_010)

    return begun


@pytest.fixture
def store(history: Callable[[int], History]) -> Store:
    return history(0).store


def decision(
    store: Store, request: SweepRequest = SWEEP, now_ms: int = 61_020, *, full: bool = False
) -> Decision:
    """What a sweep would decide."""
    return decide(
        begin_reading(store), [request], now_ms, refuse_duplicates=False, incremental=not full
    )


def base_of(store: Store, request: SweepRequest = SWEEP) -> int | None:
    return decision(store, request).counts.get("base_run")


def rows_of(decided: Decision) -> list[Row]:
    return decided.rows.collect()


def said(rows: list[Row]) -> list[str]:
    """All that a sweep decided, but what only a look at the whole PEL can say."""
    known = ({k: v for k, v in row.asDict().items() if k not in _OF_WHOLE_PELS} for row in rows)
    return sorted(str(sorted(row.items())) for row in known)


def ids(rows: list[Row], kind: str) -> list[int]:
    return sorted(row["id_ms"] for row in rows if row["kind"] == kind)


def check_same(history: History) -> None:
    """An incremental and a full sweep at the same instant say the same."""
    now_ms = history.now_ms + history.random.choice((0, 15))
    short, full = (decision(history.store, now_ms=now_ms, full=full) for full in (False, True))
    assert "base_run" not in full.counts
    assert ("base_run" in short.counts) == history.is_provable, history.done
    assert said(rows_of(short)) == said(rows_of(full)), history.done


def played(history: History, hold: Callable[[int], None]) -> None:
    """A history, checked where what is to be looked at is left to Spark, and where it is held."""
    for _ in range(2):
        history.step()
    hold(0)
    check_same(history)
    history.sweep()
    history.step()
    hold(100)
    check_same(history)


@by_each_reader
def test_after_any_history_it_decides_what_a_full_sweep_decides(
    history: Callable[[int], History], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is random: what happens follows from the seed."""
    made = history(SEED)
    played(made, partial(monkeypatch.setattr, "claimlib.commands.sweep_base.MOST_HELD"))
    assert made.done == ["deleted", "served", "sweep", "forced"]


@pytest.mark.long
@by_each_reader
@pytest.mark.parametrize("seed", _OTHER_SEEDS)
def test_so_it_does_after_fifty_other_histories(
    history: Callable[[int], History], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    played(history(seed), partial(monkeypatch.setattr, "claimlib.commands.sweep_base.MOST_HELD"))


@by_each_reader
def test_an_entry_deleted_since_is_deleted_though_its_row_is_not_due(store: Store) -> None:
    store.execute("entries", "DELETE FROM {table} WHERE stream = 'a' AND id_ms = 19")
    decided = decision(store, now_ms=61_011)
    assert decided.counts["base_run"] == 2
    rows = rows_of(decided)
    assert ids(rows, "deleted") == [19]
    assert ids(rows, "claimed") == [10] * 3


@pytest.mark.classic  # over Spark Connect nothing is left to delta-rs
def test_delta_rs_answers_all_that_an_incremental_sweep_has_to_know_of_pending(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it could not, Spark would answer, and nobody would notice."""
    answers = []
    queried = Store.queried

    def watched(*of: Any, **frames: Any) -> pa.Table | None:
        answers.append(queried(*of, **frames))
        return answers[-1]

    monkeypatch.setattr(Store, "queried", watched)
    assert decision(store).counts["base_run"] == 2
    looked_at, *rest = answers
    assert looked_at is not None
    assert looked_at.num_rows > 0
    assert rest == [None] * 3, "what is looked at is no whole table any more"


@pytest.fixture
def temporary(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files; what is looked at is too much for the driver's memory."""
    del store  # made before
    monkeypatch.setattr("claimlib.commands.sweep_base.MOST_HELD", 0)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.classic  # over Spark Connect nothing is left to delta-rs
def test_many_rows_are_looked_at_in_a_file_which_goes_with_the_decision(
    store: Store, temporary: Path
) -> None:
    decided = decision(store)
    assert decided.counts["base_run"] == 2
    assert said(rows_of(decided)) == said(rows_of(decision(store, full=True)))
    assert len(list(temporary.rglob("*.parquet"))) == 1
    del decided
    gc.collect()
    assert list(temporary.iterdir()) == []


@pytest.mark.classic  # over Spark Connect nothing is left to delta-rs
def test_such_a_file_goes_where_its_writing_is_interrupted(
    store: Store, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pq.ParquetWriter, "write_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decision(store)
    assert list(temporary.iterdir()) == []


@pytest.mark.classic  # over Spark Connect nothing is left to delta-rs
def test_such_a_file_stays_for_the_frames_of_a_dry_run_until_the_process_ends(
    store: Store, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Callable[[], object]] = []
    monkeypatch.setattr(
        "claimlib.store.tables.atexit.register",
        lambda call, *of, **how: at_exit.append(partial(call, *of, **how)),
    )
    reply = xautoclaim(store, SWEEP, now_ms=61_020, incremental=True, dry_run=True)
    claimed, number = reply.claimed, reply.counts["claimed"]
    del reply
    gc.collect()
    assert claimed.count() == number > 0
    (remove,) = at_exit
    remove()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("claimlib.store.tables.is_one_process", lambda _spark: False),
        ("claimlib.commands.sweep_base.MOST_SAVED", 1),
    ],
    ids=["Spark's tasks may run elsewhere", "too many rows"],
)
def test_where_spark_cannot_read_a_file_or_it_would_be_large_the_table_is_read(
    store: Store, temporary: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(name, value)
    decided = decision(store)
    assert decided.counts["base_run"] == 2
    assert list(temporary.iterdir()) == []
    assert said(rows_of(decided)) == said(rows_of(decision(store, full=True)))


@pytest.mark.classic
@pytest.mark.parametrize(
    ("master", "is_one"),
    [
        *(("local", True), ("local[2]", True), ("local[*, 4]", True)),
        *(("local-cluster[2,1,1024]", False), ("spark://host:7077", False), ("yarn", False)),
        *(("k8s://https://host", False), (None, False)),
    ],
)
def test_only_a_local_master_runs_its_tasks_in_the_process_of_the_driver(
    master: str | None, is_one: bool
) -> None:
    conf = SimpleNamespace(get=lambda name, default: master if name == "spark.master" else default)
    assert is_one_process(cast("SparkSession", SimpleNamespace(conf=conf))) == is_one


@by_each_reader
def test_columns_of_somebody_else_change_nothing_whatever_their_names(store: Store) -> None:
    own = "(`my-col` STRING, `Note` DECIMAL(3, 1), is_changed BOOLEAN, is_without_base BOOLEAN)"
    for table in ("pending", "entries"):
        store.spark.sql(f"ALTER TABLE {store.identifier(table)} ADD COLUMNS {own}")
    store.execute("pending", "UPDATE {table} SET is_changed = true, is_without_base = true")
    assert base_of(store) is None, "somebody has written"
    xautoclaim(store, SWEEP, now_ms=61_012)
    append(store, "groups", {**_GROUP, "stream": "a", "consumer_group": "other"})
    store.execute("entries", "DELETE FROM {table} WHERE stream = 'a' AND id_ms = 19")
    decided = decision(store)
    assert decided.counts["base_run"] == 3
    assert said(rows_of(decided)) == said(rows_of(decision(store, full=True)))


def test_what_only_a_look_at_the_whole_pel_can_say_is_null(store: Store) -> None:
    rows = [row for row in rows_of(decision(store)) if row["kind"] == "swept"]
    assert len(rows) == 3
    assert {row[name] for row in rows for name in _OF_WHOLE_PELS} == {None}
    assert {row["at_boundary"] for row in rows} == {1}  # 20-0


def test_an_incremental_sweep_is_the_base_of_the_next_one(store: Store) -> None:
    first = xautoclaim(store, SWEEP, now_ms=61_015, incremental=True)
    assert first.counts["base_run"] == 2
    assert base_of(store) == first.run_seq == 3


@by_each_reader
def test_a_group_that_is_new_since_is_looked_at_whole(store: Store) -> None:
    append(store, "groups", {**_GROUP, "stream": "a", "consumer_group": "other"})
    rows = rows_of(decision(store))
    assert said(rows) == said(rows_of(decision(store, full=True)))
    swept = (row for row in rows if row["kind"] == "swept" and row["stream"] == "a")
    assert {row["consumer_group"]: row["pending_before"] for row in swept} == {
        "g": None,
        "other": 0,
    }


_GROUP = {"last_delivered_ms": 5, "last_delivered_seq": 0, "snapshot_ms": 5, "run_seq": 0}


@by_each_reader
def test_so_is_one_of_which_very_much_is_pending(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so many entries it is not told apart which are looked for, but where they lie."""
    others = ({**pending_row("a", id_ms), "consumer_group": "other"} for id_ms in (12, 18, 19))
    append(store, "pending", *others)
    store.execute("entries", "DELETE FROM {table} WHERE stream = 'a' AND id_ms = 19")
    assert xautoclaim(store, SWEEP, now_ms=61_012).counts["refused"] == 1
    append(store, "groups", {**_GROUP, "stream": "a", "consumer_group": "other"})
    monkeypatch.setattr("claimlib.commands.sweep_base.MOST_CHANGED", 2)
    decided = decision(store)
    assert decided.counts["base_run"] == 3
    rows = rows_of(decided)
    assert said(rows) == said(rows_of(decision(store, full=True)))
    of_group = [row for row in rows if row["consumer_group"] == "other"]
    assert (ids(of_group, "claimed"), ids(of_group, "deleted")) == ([12, 18], [19])


def test_a_group_whose_proof_of_absence_has_shrunk_is_refused_as_a_full_sweep_does(
    store: Store,
) -> None:
    store.execute("streams", "UPDATE {table} SET complete_from_ms = 12 WHERE stream = 'a'")
    decided = decision(store)
    assert decided.counts["base_run"] == 2
    rows = rows_of(decided)
    assert [row["stream"] for row in rows if row["kind"] == "refused"] == ["a"]
    assert said(rows) == said(rows_of(decision(store, full=True)))


# ---- where nothing can be proven all is looked at, and the run says why ----


def _by_hand(store: Store) -> None:
    append(store, "pending", pending_row("a", 30))


def _by_nobody(store: Store) -> None:
    append(store, "pending", pending_row("a", 30))
    say_nothing_of_the_newest_commit(store, "pending")


def _no_feed(store: Store) -> None:
    name = store.identifier("entries")
    for value in ("false", "true"):
        store.spark.sql(
            f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{value}')"
        )


def _much_deleted(store: Store) -> None:
    store.execute("entries", "DELETE FROM {table} WHERE id_ms > 10")


def _gone_back(store: Store) -> None:
    for name, text in Accepted(2, {"pending": 0}).properties().items():
        set_property(store.spark, store.location, "streams", name, text)


def _nothing(store: Store) -> None:
    del store


OTHERS = SweepRequest(SWEEP.autoclaim, stream_glob="a")
AT_ONCE = SweepRequest(AutoclaimRequest(b"reclaimer", 0))


@pytest.mark.parametrize(
    ("happens", "request_", "reason"),
    [
        (_by_hand, SWEEP, "version 3 of pending (WRITE) was not written by a claimlib run"),
        (
            _by_nobody,
            SWEEP,
            "version 3 of pending (which does not say what was done) was not written by a claim",
        ),
        (_no_feed, SWEEP, "the change data feed of entries since run 2 cannot be read"),
        (_much_deleted, SWEEP, "more than 5 entries were deleted or changed since run 2"),
        (_gone_back, SWEEP, "tables have gone back after run 2, and were accepted by init"),
        (_nothing, AT_ONCE, "a request has no minimum idle time, so every entry may be due"),
    ],
)
def test_where_there_is_no_base_all_is_looked_at_and_it_says_why(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Store], None],
    request_: SweepRequest,
    reason: str,
) -> None:
    monkeypatch.setattr("claimlib.commands.sweep_base.MOST_CHANGED", 5)
    happens(store)
    decided = decision(store, request_, now_ms=61_011)
    assert "base_run" not in decided.counts
    assert decided.remark is not None
    assert decided.remark.startswith(f"full sweep: {reason}")


def test_where_the_feed_cannot_be_read_for_whatever_reason_all_is_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classic PySpark has no class of its own for all that Java says."""

    def gone(*_: object) -> None:
        raise RuntimeError("java.io.FileNotFoundException")

    monkeypatch.setattr(Store, "changes", gone)
    store.execute("entries", "DELETE FROM {table} WHERE stream = 'a' AND id_ms = 19")
    decided = decision(store)
    assert decided.remark == (
        "full sweep: the change data feed of entries since run 2 cannot be read (RuntimeError)"
    )
    assert 19 in ids(rows_of(decided), "deleted")


def test_who_commits_between_two_looks_at_a_history_does_not_hide_another_writer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That writer's commit is the oldest since the base, which changed no row, and neither did
    those behind it."""
    base = xautoclaim(store, SWEEP, now_ms=61_010)
    assert (base.counts.get("claimed"), base.counts.get("deleted")) == (0, 0)
    assert base_of(store) == base.run_seq
    _by_hand(store)
    _set_property(store, "1")
    monkeypatch.setattr("claimlib.runs.claims._RECENT", 1)
    history, others = Store.history, ["2"]

    def look(self: Store, table: str, limit: int | None = None) -> list[Row]:
        commits = history(self, table, limit)
        if table == "pending" and others:
            _set_property(store, others.pop())
        return commits

    monkeypatch.setattr(Store, "history", look)
    assert base_of(store) is None
    assert others == []


def _set_property(store: Store, value: str) -> None:
    name = store.identifier("pending")
    store.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('a' = '{value}')")


def test_a_run_keeps_how_it_was_decided(store: Store) -> None:
    xautoclaim(store, AT_ONCE, now_ms=61_011, incremental=True)
    run = find_run(store, "3")
    assert remark_on(store, run) == (
        "full sweep: a request has no minimum idle time, so every entry may be due"
    )
    xautoclaim(store, SWEEP, now_ms=61_012, incremental=True)
    run = find_run(store, "4")
    assert run.counts["base_run"] == 3
    assert remark_on(store, run) == "incremental sweep, based on run 3"


def test_a_sweep_of_other_groups_is_no_base_and_one_of_all_is(store: Store) -> None:
    assert base_of(store, OTHERS) == 2
    run = xautoclaim(store, OTHERS, now_ms=61_012).run_seq
    assert base_of(store, OTHERS) == run == 3
    assert base_of(store) == 2


def test_a_page_is_no_base_and_has_none(store: Store) -> None:
    page = SweepRequest(AutoclaimRequest(b"reclaimer", MINUTE_MS, count=2))
    assert "base_run" not in xautoclaim(store, page, now_ms=61_015, incremental=True).counts
    assert base_of(store) == 2


def test_guards_weigh_an_incremental_sweep_as_a_full_one(store: Store) -> None:
    guarded = SweepRequest(
        AutoclaimRequest(b"reclaimer", MINUTE_MS, guards=Guards(max_deleted_share=0.01))
    )
    store.execute("entries", "DELETE FROM {table} WHERE stream = 'a' AND id_ms = 19")
    decided = decision(store, guarded)
    assert decided.counts["base_run"] == 2
    rows = rows_of(decided)
    assert [row["stream"] for row in rows if row["kind"] == "refused"] == ["a"]
    assert said(rows) == said(rows_of(decision(store, guarded, full=True)))
