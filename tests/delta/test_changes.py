"""One statement of what a run changes leaves the same rows, however it is carried out."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from claimlib.engine.changes import Changes
from claimlib.runs import writes
from claimlib.runs.journal import APP_ID
from claimlib.store.local import Token
from claimlib.store.opening import find_embedded
from claimlib.store.spark_writer import SparkWriter
from claimlib.store.tables import Store
from tests.limits import set_limits
from tests.writing import append_rows

RUN_SEQ = 5
COLUMNS = ("name", "stream", "consumer_group", "next_ms", "next_seq", "run_seq")
PENDING = (
    *("stream", "consumer_group", "id_ms", "id_seq", "consumer", "delivery_time_ms"),
    *("delivery_count", "run_seq"),
)


BY_PARTITION = "embedded engine, one partition at a time"


@pytest.fixture(
    params=[
        "embedded engine",
        BY_PARTITION,
        "Spark, few rows",
        pytest.param("Spark, many rows", marks=pytest.mark.long),
    ]
)
def writer(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    store_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    """A new store, and how changes of it are carried out."""
    if request.param == BY_PARTITION:
        set_limits(monkeypatch, partition_rows=0)
    if request.param in {"embedded engine", BY_PARTITION}:
        embedded = find_embedded(lambda: spark, str(store_path), writes=True)
        assert embedded is not None
        return embedded
    if request.param == "Spark, many rows":
        set_limits(monkeypatch, session_rows=0)
    return Store.open(spark, str(store_path))


def run_of(store: Store) -> Any:
    """What a writer needs of a run that has been decided from the tables as they are."""
    return SimpleNamespace(
        run_seq=RUN_SEQ, token=Token(APP_ID, RUN_SEQ), note="claimlib run 5 x:y", pins=store.pin()
    )


def rows_of(store: Store, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in columns) for row in store.relation(table).collect())


def test_rows_of_a_table_without_buckets_are_changed_removed_and_added(writer: Store) -> None:
    there = [
        ("changed", "s", "g", 1, 0, 1),
        ("not due", "s", "g", 7, 0, 1),
        ("of a later run", "s", "g", 1, 0, RUN_SEQ),
        ("removed", "s", "g", 1, 0, 1),
        ("untouched", "s", "g", 1, 0, 1),
    ]
    append_rows(writer, "cursors", writer.rows("cursors", there, COLUMNS))
    wanted = [
        (name, "s", "g", 2, 3) for name in ("changed", "not due", "of a later run", "removed")
    ]
    rows = writer.rows("cursors", wanted, COLUMNS[:-1])
    new = writer.rows("cursors", [*wanted[:1], ("new", "s", "g", 4, 5)], COLUMNS[:-1])
    changes = Changes(
        "cursors",
        RUN_SEQ,
        rows,
        ("name", "stream", "consumer_group"),
        is_due="t.next_ms = 1",
        values={"next_ms": "s.next_ms", "next_seq": "s.next_seq + t.next_ms"},
        is_removed="s.name = 'removed'",
        new=new,
    )
    expected = [
        ("changed", "s", "g", 2, 4, RUN_SEQ),
        ("new", "s", "g", 4, 5, RUN_SEQ),
        ("not due", "s", "g", 7, 0, 1),
        ("of a later run", "s", "g", 1, 0, RUN_SEQ),
        ("untouched", "s", "g", 1, 0, 1),
    ]
    run = run_of(writer)
    for _ in range(2):
        writes.apply(writer, changes, run)
        assert rows_of(writer, "cursors", COLUMNS) == expected


def pending_changes(store: Store, decided: Mapping[tuple[str, int], str]) -> Changes:
    """Rows of pending that were owned by `a` get another owner; `-` stands for removed, and what is
    not there yet is added."""
    values = [(stream, "g", id_ms, 0, owner) for (stream, id_ms), owner in decided.items()]
    rows = store.rows("pending", values, PENDING[:5])
    keyed = rows.select(
        *("stream", "consumer_group", "id_ms", "id_seq", "consumer"),
        "xxhash64(stream) AS stream_key",
        "xxhash64(stream, consumer_group) AS group_key",
    )
    added = rows.where("consumer = 'new'").select(
        "*",
        "9L AS delivery_time_ms",
        "1L AS delivery_count",
        f"CAST(pmod(xxhash64(stream), {store.buckets}) AS INT) AS bucket",
    )
    return Changes(
        "pending",
        RUN_SEQ,
        keyed.where("consumer <> 'new'"),
        ("stream_key", "group_key", "id_ms", "id_seq"),
        is_due="t.consumer <=> 'a'",
        values={"consumer": "s.consumer", "delivery_count": "t.delivery_count + 1"},
        is_removed="s.consumer = '-'",
        new=added,
    )


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_rows_of_a_table_with_buckets_are_as_a_model_says(writer: Store, seed: int) -> None:
    made = random.Random(seed)
    there = {
        (f"s{made.randrange(6)}", made.randrange(40) - 20): made.choice(["a", "b"])
        for _ in range(60)
    }
    values = [(s, "g", n, 0, owner, 1, 1, 0) for (s, n), owner in there.items()]
    append_rows(writer, "pending", writer.rows("pending", values, PENDING))
    keys = [*there, *((f"s{n}", 100 + n) for n in range(9))]
    decided = {key: made.choice(["c", "-", "new"]) for key in made.sample(keys, 30)}
    expected = {key: (owner, 1, 1, 0) for key, owner in there.items()}
    for key, owner in decided.items():
        if owner == "new" and key not in there:
            expected[key] = ("new", 9, 1, RUN_SEQ)
        elif owner == "-" and there.get(key) == "a":
            del expected[key]
        elif owner == "c" and there.get(key) == "a":
            expected[key] = ("c", 1, 2, RUN_SEQ)
    run = run_of(writer)
    for _ in range(2):
        writes.apply(writer, pending_changes(writer, decided), run)
        assert rows_of(writer, "pending", PENDING) == sorted(
            (stream, "g", id_ms, 0, *state) for (stream, id_ms), state in expected.items()
        )


@pytest.mark.long
def test_what_spark_has_begun_the_embedded_engine_finishes(
    spark: SparkSession, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append of new rows has used up the run's token, and a row that somebody has removed since
    does not come back."""
    by_spark = Store.open(spark, str(store_path))
    there = [("s", "g", n, 0, "a", 1, 1, 0) for n in (1, 2, 3)]
    append_rows(by_spark, "pending", by_spark.rows("pending", there, PENDING))
    run = run_of(by_spark)
    decided = {("s", 1): "c", ("s", 2): "-", ("s", 8): "new", ("s", 9): "new"}

    def die(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patched:
        set_limits(patched, session_rows=0)
        patched.setattr(SparkWriter, "_merge", die)
        with pytest.raises(InterruptedError):
            writes.apply(by_spark, pending_changes(by_spark, decided), run)
    spark.sql(f"DELETE FROM {by_spark.identifier('pending')} WHERE id_ms = 9")
    embedded = find_embedded(lambda: spark, str(store_path), writes=True)
    assert embedded is not None
    for _ in range(2):
        writes.apply(embedded, pending_changes(embedded, decided), run)
        assert rows_of(embedded, "pending", PENDING) == [
            ("s", "g", 1, 0, "c", 1, 2, RUN_SEQ),
            ("s", "g", 3, 0, "a", 1, 1, 0),
            ("s", "g", 8, 0, "new", 9, 1, RUN_SEQ),
        ]
