"""What is imported is what the given tables hold: at one moment, all of their files and columns, in
their units; or nothing is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from claimlib.commands import imports, input_tables
from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.inputs import Input
from claimlib.engine.relation import Executor, Relation
from claimlib.engine.spark import SparkEngine
from claimlib.errors import GuardError, InputError
from claimlib.semantics.model import RemovalLimits
from claimlib.store.tables import Store, reading_order
from tests.delta.pels import NOW_MS, REQUEST
from tests.delta.reading import query

AT_MS = 1_767_225_600_000


def entries(*ids: str) -> pa.Table:
    return pa.table({"stream": ["s"] * len(ids), "id": list(ids)})


def pending(*ids: str, owner: str = "bob", at: int = AT_MS) -> pa.Table:
    return pa.table(
        {
            "stream": ["s"] * len(ids),
            "consumer_group": ["g"] * len(ids),
            "id": list(ids),
            "consumer": [owner] * len(ids),
            "delivery_time_ms": [at] * len(ids),
            "delivery_count": [1] * len(ids),
        }
    )


def parquet(file: Path, rows: pa.Table) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)


def ids(store: Store, table: str) -> list[int]:
    return [row["id_ms"] for row in query(store.where, table, "SELECT id_ms FROM t ORDER BY id_ms")]


def is_empty(store: Store) -> bool:
    tables = ("entries", "pending", "entry_landing", "pel_snapshots", "journal")
    return not any(query(store.where, table, "SELECT 1 AS one FROM t") for table in tables)


def test_tables_that_are_written_meanwhile_are_read_in_their_order() -> None:
    tables = ("entries", "pending", "groups", "consumers", "streams")
    assert reading_order(tables) == (["pending"], ["groups", "consumers", "streams"], ["entries"])
    assert reading_order(["entries"]) == ([], [], ["entries"])


def test_an_entry_that_is_appended_before_its_pending_row_is_never_taken_for_one_that_is_gone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two looks of the import the pipeline appends both, the entry first."""
    places = {"entries": str(tmp_path / "entries"), "pending": str(tmp_path / "pending")}
    write_deltalake(places["entries"], entries("1-0"))
    write_deltalake(places["pending"], pending("1-0"))
    open_input = input_tables.open_input
    entries_seen = Event()

    def slowly(store: Store, place: str) -> Input:
        if place == places["pending"]:
            # Where both are read at once, or the entries first, they have been seen by now.
            entries_seen.wait(2)
            write_deltalake(places["entries"], entries("2-0"), mode="append")
            write_deltalake(places["pending"], pending("2-0"), mode="append")
        table = open_input(store, place)
        if place == places["entries"]:
            entries_seen.set()
        return table

    monkeypatch.setattr(input_tables, "open_input", slowly)
    import_tables(store, ImportRequest(**places, entries_complete=True))
    assert (ids(store, "pending"), ids(store, "entries")) == ([1, 2], [1, 2])
    assert xautoclaim(store, SweepRequest(REQUEST), now_ms=NOW_MS).counts["deleted"] == 0


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (("a.parquet", "2025/b.parquet"), "2025"),
        (("a.parquet", "day=1/b.parquet"), "day=1"),
        (("day=1/a.parquet", "hour=2/b.parquet"), "hour=2"),
        (("day=1/a.parquet", "day=2/hour=1/b.parquet"), "day=2/hour=1"),
    ],
)
def test_a_folder_of_which_some_files_would_be_passed_over_is_refused(
    store: Store, tmp_path: Path, files: tuple[str, ...], named: str
) -> None:
    where = tmp_path / "lake 100% é"
    for number, file in enumerate(files, start=1):
        parquet(where / "entries" / file, entries(f"{number}-0"))
    parquet(where / "pending" / "p.parquet", pending("1-0", "2-0"))
    request = ImportRequest(str(where / "entries"), str(where / "pending"), entries_complete=True)
    with pytest.raises(InputError) as refused:
        import_tables(store, request)
    assert str(where / "entries") in refused.value.message
    assert named in refused.value.message
    assert "not all of its files would be read" in refused.value.message
    assert is_empty(store)


@pytest.mark.parametrize(
    "files",
    [
        ("a.parquet", "b.parquet"),
        ("day=1/a.parquet", "day=2/b.parquet"),
        ("k=é/a.parquet",),
        ("day=1/a.parquet", "day=2/sub/b.parquet"),
        ("day=1/x/a.parquet", "day=1/y/b.parquet"),
        ("Day=1/a.parquet", "day=2/b.parquet"),
    ],
)
def test_a_folder_whose_files_are_all_read_is_imported_with_all_of_them(
    store: Store, tmp_path: Path, files: tuple[str, ...]
) -> None:
    where = tmp_path / "lake 100% é"
    for number, file in enumerate(files, start=1):
        parquet(where / "entries" / file, entries(f"{number}-0"))
    (where / "entries" / "_SUCCESS").touch()
    pq.write_metadata(entries("1-0").schema, where / "entries" / "_common_metadata")
    parquet(where / "pending.parquet", pending("1-0"))
    import_tables(store, ImportRequest(str(where / "entries"), str(where / "pending.parquet")))
    assert ids(store, "entries") == list(range(1, len(files) + 1))


def opened(engine: Executor, place: Path) -> Relation:
    return Relation(engine, engine.open_input(str(place)).node)


def test_a_column_that_only_some_files_have_is_read(engine: Executor, tmp_path: Path) -> None:
    parquet(tmp_path / "t" / "a.parquet", entries("1-0"))
    parquet(tmp_path / "t" / "b.parquet", entries("2-0").append_column("fields", pa.array(["x"])))
    rows = opened(engine, tmp_path / "t").order_by("id").collect()
    assert [(row["id"], row["fields"]) for row in rows] == [("1-0", None), ("2-0", "x")]
    parquet(tmp_path / "t" / "c.parquet", entries("3-0").append_column("fields", pa.array([1])))
    with pytest.raises(InputError, match=r"of different types \(\"?STRING\"? and \"?BIGINT\"?\)"):
        opened(engine, tmp_path / "t").collect()


@pytest.fixture
def in_tokyo(spark: SparkSession):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_a_time_that_is_the_name_of_a_folder_is_utc(in_tokyo: SparkSession, tmp_path: Path) -> None:
    parquet(tmp_path / "t" / "taken_at=2026-01-01 00%3A00%3A00" / "a.parquet", entries("1-0"))
    for engine in (SparkEngine(in_tokyo), EmbeddedEngine()):
        rows = opened(engine, tmp_path / "t").select("unix_millis(taken_at) AS ms")
        assert rows.collect() == [{"ms": AT_MS}]


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ((AT_MS // 1000, AT_MS // 1000 - 1), "seconds"),
        ((AT_MS * 1000, AT_MS * 1000 + 1), "microseconds or nanoseconds"),
        ((AT_MS * 10**6, 0), "microseconds or nanoseconds"),
    ],
)
def test_times_that_are_all_in_another_unit_are_refused_and_nothing_is_imported(
    store: Store, tmp_path: Path, times: tuple[int, int], unit: str
) -> None:
    parquet(tmp_path / "e.parquet", entries("1-0", "2-0"))
    rows = [pending(f"{n}-0", at=at) for n, at in enumerate(times, start=1)]
    parquet(tmp_path / "p.parquet", pa.concat_tables(rows))
    request = ImportRequest(str(tmp_path / "e.parquet"), str(tmp_path / "p.parquet"))
    said = rf"column delivery_time_ms \(or what the map assigns to it\): .* look like {unit},"
    with pytest.raises(InputError, match=said):
        import_tables(store, request)
    assert is_empty(store)


def test_a_single_time_that_no_clock_has_told_is_imported_as_it_is(
    store: Store, tmp_path: Path
) -> None:
    parquet(tmp_path / "e.parquet", entries("1-0", "2-0"))
    odd = pa.concat_tables([pending("1-0", at=AT_MS // 1000), pending("2-0")])
    parquet(tmp_path / "p.parquet", odd)
    import_tables(store, ImportRequest(str(tmp_path / "e.parquet"), str(tmp_path / "p.parquet")))
    assert ids(store, "pending") == [1, 2]


@pytest.fixture
def views(spark: SparkSession, tmp_path: Path):
    """The request to import two views."""
    write_deltalake(tmp_path / "entries", entries("1-0"))
    write_deltalake(tmp_path / "pending", pending("1-0"))
    for name in ("entries", "pending"):
        spark.sql(f"CREATE TEMP VIEW v_{name} AS SELECT * FROM delta.`{tmp_path / name}`")
    yield ImportRequest("v_entries", "v_pending", entries_complete=True)
    for name in ("entries", "pending"):
        spark.catalog.dropTempView(f"v_{name}")


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("pending", pending("1-0", owner="eve")),
        pytest.param("entries", entries("2-0"), marks=pytest.mark.long),
    ],
)
def test_a_view_that_changes_after_it_was_checked_is_refused_and_nothing_is_imported(
    store: Store,
    tmp_path: Path,
    views: ImportRequest,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    rows: pa.Table,
) -> None:
    write: Callable[..., None] = imports._stage

    def late(*words: object) -> None:
        write_deltalake(tmp_path / table, rows, mode="append")
        write(*words)

    monkeypatch.setattr(imports, "_stage", late)
    with pytest.raises(InputError, match=rf"^{table} \(v_{table}\) changed while the import read"):
        import_tables(store, views)
    assert is_empty(store)
    monkeypatch.undo()
    if table == "entries":
        import_tables(store, views)
        assert ids(store, "entries") == [1, 2]


@pytest.mark.long
def test_a_view_of_pending_entries_is_looked_at_before_the_entries_are(
    store: Store, tmp_path: Path, views: ImportRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as the entries stand fast, the pipeline appends an entry and its pending row."""
    open_input = input_tables.open_input

    def slowly(store: Store, place: str) -> Input:
        table = open_input(store, place)
        if place.endswith("/entries"):
            write_deltalake(tmp_path / "entries", entries("2-0"), mode="append")
            write_deltalake(tmp_path / "pending", pending("2-0"), mode="append")
        return table

    monkeypatch.setattr(input_tables, "open_input", slowly)
    request = replace(views, entries=str(tmp_path / "entries"))
    with pytest.raises(InputError, match=r"^pending \(v_pending\) changed while the import read"):
        import_tables(store, request)
    assert is_empty(store)


@pytest.mark.long
def test_a_view_that_stays_as_it_is_is_imported(store: Store, views: ImportRequest) -> None:
    import_tables(store, views)
    assert (ids(store, "pending"), ids(store, "entries")) == ([1], [1])


@pytest.mark.long
def test_names_of_a_column_with_a_collation_are_compared_as_they_stand(
    spark: SparkSession, spark_store: Store, tmp_path: Path
) -> None:
    store = spark_store
    collated = "'%s' COLLATE UTF8_LCASE AS stream, '1-0' COLLATE UTF8_LCASE AS id"
    both = " UNION ALL ".join(f"SELECT {collated % name}" for name in ("s", "S"))
    spark.sql(both).write.parquet(str(tmp_path / "entries"))
    of_group = "'g' AS consumer_group, 'bob' AS consumer"
    state = f"{AT_MS}L AS delivery_time_ms, 1L AS delivery_count"
    row = f"SELECT {collated % 's'}, {of_group}, {state}"
    spark.sql(row).write.parquet(str(tmp_path / "pending"))
    last = "'s' AS stream, 'g' AS consumer_group, '1-0' AS last_delivered"
    spark.sql(f"SELECT {last}").write.parquet(str(tmp_path / "groups"))
    places = (str(tmp_path / name) for name in ("entries", "pending", "groups"))
    import_tables(store, ImportRequest(*places))
    rows = query(store.where, "entries", "SELECT stream FROM t ORDER BY stream")
    assert [row["stream"] for row in rows] == ["S", "s"]


@pytest.mark.long
def test_an_import_needs_no_word_that_a_session_may_reserve(
    spark: SparkSession, spark_store: Store, tmp_path: Path
) -> None:
    store = spark_store
    parquet(tmp_path / "e.parquet", entries("1-0"))
    parquet(tmp_path / "p.parquet", pending("1-0"))
    reserve = "spark.sql.ansi.enforceReservedKeywords"
    spark.conf.set(reserve, "true")
    try:
        request = ImportRequest(str(tmp_path / "e.parquet"), str(tmp_path / "p.parquet"))
        import_tables(store, request)
    finally:
        spark.conf.unset(reserve)
    assert ids(store, "pending") == [1]


def test_what_the_largest_pending_id_cannot_explain_is_said_with_the_table_that_can(
    store: Store, tmp_path: Path
) -> None:
    names = [f"{number}-0" for number in range(1, 11)]
    places = (str(tmp_path / "e.parquet"), str(tmp_path / "p.parquet"))
    parquet(tmp_path / "e.parquet", entries(*names))
    parquet(tmp_path / "p.parquet", pending(*names))
    import_tables(store, ImportRequest(*places))
    parquet(tmp_path / "p.parquet", pending(*names[:4]))
    with pytest.raises(GuardError, match="--groups, with the last delivered ids"):
        import_tables(store, ImportRequest(*places, limits=RemovalLimits()))
