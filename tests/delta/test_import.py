"""An import makes the store what somebody's tables say, writes the differences only, and refuses
what no store can hold before it writes anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.commands.input_tables import place_of, read_input
from claimlib.commands.runs import find_run
from claimlib.commands.sources import check_source, mirrored
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.relation import Executor, Relation
from claimlib.errors import (
    ConfigError,
    DuplicateRowsError,
    InputError,
    RequestError,
    RunKeyConflictError,
    SourceMismatchError,
)
from claimlib.plans.input_tables_plan import TableMap
from claimlib.report.mirror_report import report_of_import
from claimlib.report.runs_report import report_of_run
from claimlib.runs import Begun
from claimlib.schema import TABLES
from claimlib.semantics import scan
from claimlib.semantics.model import RemovalLimits
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups
from tests.delta.edge_cases import KEYSPACE
from tests.delta.given_files import (
    consumers,
    entries,
    groups,
    of_keyspace,
    pending,
    request,
    streams,
)
from tests.delta.pels import NOW_MS, REQUEST
from tests.delta.reading import count, query
from tests.writing import append_rows

FIELDS = [(b"f", b"v")]
ANY = RemovalLimits(max_removed_share=1)  # whatever the tables lack may go
LAST_OF_9 = "9-18446744073709551615"
PAYLOAD = [{"name": b"f", "value": b"v"}]
FIRST = {
    "entries": entries([(b"s", f"{n}-0", FIELDS) for n in (1, 2, 3)] + [(b"gone", "1-0", None)]),
    "pending": pending(
        [(b"s", b"g", f"{n}-0", b"bob", 1000 + n, 1) for n in (1, 2, 3)]
        + [
            (b"gone", b"g", "1-0", None, 1000, 0),
            (b"s", b"h", "9-18446744073709551615", b"x", 5, 1),
        ]
    ),
}
SECOND = {
    "entries": entries([(b"s", "2-0", None), (b"s", "4-0", FIELDS)]),
    "pending": pending(
        [(b"s", b"g", f"{n}-0", owner, 1002, 1) for n, owner in ((2, b"bob"), (4, b"new"))]
        + [(b"s", b"h", LAST_OF_9, b"y", 5, 1)]
    ),
    "groups": groups([(b"s", b"g", "7-0", NOW_MS), (b"s", b"h", "9-0", None)]),
    "streams": streams([(b"s", "2-0", "4-0"), (b"t", None, None)]),
    "consumers": consumers([(b"s", b"g", b"bob", 5, None)]),
}


def rows(store: Store, table: str, *columns: str) -> list[tuple[object, ...]]:
    wanted = ", ".join(columns)
    selected = query(store.where, table, f"SELECT {wanted} FROM t ORDER BY {wanted}")
    return [tuple(row.values()) for row in selected]


def versions(store: Store) -> dict[str, int]:
    return {table: store.version(table) for table in TABLES}


def test_a_second_import_writes_what_differs_and_the_same_run_id_again_changes_nothing(
    each_store: Store, tmp_path: Path
) -> None:
    store = each_store
    seen = [("s", "g", "bob", 7, None, 0), ("s", "away", "bob", 7, None, 0)]
    names = [column.name for column in TABLES["consumers"].written]
    append_rows(store, "consumers", store.rows("consumers", seen, names))
    first = request(tmp_path / "one", FIRST, entries_complete=True)
    reply = import_tables(store, first, run_id="r")
    assert rows(store, "consumers", "consumer_group", "seen_time_ms", "run_seq") == [("g", 7, 0)]
    assert reply.source == "import"
    assert (reply.counts["pending_read"], reply.counts["pending_written"]) == (5, 5)
    assert rows(
        store, "groups", "stream", "consumer_group", "last_delivered_ms", "snapshot_ms"
    ) == [
        ("gone", "g", 1, None),
        ("s", "g", 3, None),
        ("s", "h", 9, None),
    ]
    whole = (0, 0, -1, -1)
    proof = ("complete_from_ms", "complete_from_seq", "complete_to_ms", "complete_to_seq")
    assert rows(store, "streams", "stream", "length", "source", *proof) == [
        ("gone", 1, "import", *whole),
        ("s", 3, "import", *whole),
    ]
    assert any("3 groups have no snapshot time" in note for note in report_of_import(reply).notes)
    options = report_of_run(find_run(store, "import:r")).document["request"]
    assert options["entries_complete"] is True
    assert options["tables"]["pending"] == str(tmp_path / "one" / "pending")

    before = versions(store)
    assert import_tables(store, first, run_id="r") == replace(reply, is_repeat=True)
    with pytest.raises(RunKeyConflictError):
        import_tables(store, replace(first, entries_complete=False), run_id="r")
    assert versions(store) == before

    reply = import_tables(store, request(tmp_path / "two", SECOND, limits=ANY))
    assert reply.counts["pending_written"] == 2, "one is new, one has another owner"
    pel = ("consumer_group", "id_ms", "id_seq", "consumer", "delivery_time_ms", "run_seq")
    assert rows(store, "pending", *pel) == [
        ("g", 2, 0, "bob", 1002, 1),
        ("g", 4, 0, "new", 1002, 2),
        ("h", 9, -1, "y", 5, 2),
    ]
    assert rows(store, "entries", "stream", "id_ms", "run_seq") == [("s", 2, 1), ("s", 4, 2)]
    payloads = query(store.where, "entries", "SELECT fields FROM t")
    assert [row["fields"] for row in payloads] == [PAYLOAD, PAYLOAD], "a kept payload stays"
    assert rows(store, "groups", "consumer_group", "last_delivered_ms", "snapshot_ms") == [
        ("g", 7, NOW_MS),
        ("h", 9, None),
    ]
    assert rows(store, "streams", "stream", *proof) == [
        ("s", 2, 0, 4, 0),
        ("t", None, None, None, None),
    ]
    assert rows(store, "consumers", "consumer", "seen_time_ms", "active_time_ms") == [
        ("bob", 5, None)
    ]
    assert count(store.where, "entry_landing") == 0
    assert any("1 stream may be incomplete" in note for note in report_of_import(reply).notes)


def test_columns_that_may_hold_payloads_and_are_not_mapped_are_named(
    store: Store, tmp_path: Path
) -> None:
    columns = {
        "stream": [b"s"],
        "id": ["1-0"],
        "body": ["text"],
        "raw": [b"bytes"],
        "partition": [1],
        "read_at": [1.5],
        "parts": [{"a": "b"}],
    }
    tables = {"entries": pa.table(columns), "pending": FIRST["pending"].slice(0, 1)}
    reply = import_tables(store, request(tmp_path, tables), run_id="r")
    assert reply.payload_columns == ("body", "raw", "parts")
    (note,) = [note for note in report_of_import(reply).notes if "payload" in note]
    assert "3 columns that may hold them are not mapped: body, raw, parts" in note
    assert 'write fields = "body" below [entries]' in note
    assert report_of_import(reply).document["payload_columns"] == ["body", "raw", "parts"]
    tables["entries"] = FIRST["entries"].slice(0, 1).append_column("body", pa.array(["text"]))
    mapped = import_tables(store, request(tmp_path, tables), run_id="with payloads")
    assert mapped.payload_columns == ()


def test_an_imported_store_is_swept_as_the_reference_does_at_the_given_instant(
    store: Store, tmp_path: Path
) -> None:
    tables = of_keyspace(KEYSPACE, NOW_MS)
    import_tables(store, request(tmp_path, tables, entries_complete=True))
    assert read_groups(store) == {key: state.groups for key, state in KEYSPACE.items()}
    swept = xautoclaim(store, SweepRequest(REQUEST), now_ms=NOW_MS + 500)
    expected = {
        stream: {
            name: scan.xautoclaim(group, REQUEST, NOW_MS + 500, state.entries)[0]
            for name, group in state.groups.items()
        }
        for stream, state in KEYSPACE.items()
    }
    assert read_groups(store) == expected
    assert swept.counts["claimed"] > 0 < swept.counts["deleted"]
    assert swept.counts["refused"] == 0


# One row per fault: what it is, and the row that has it.
FAULTY = {
    "entries": entries([(b"s", "1-0", None), (b"s", "18446744073709551616-0", None)]),
    "pending": pending(
        [
            (b"s", b"g", "1-0", b"bob", 5, 1),
            (None, b"g", "1-0", b"bob", 5, 1),
            *((b"s", b"g", f"0{n}-0", b"bob", 5, 1) for n in range(5)),
            (b"s", b"g", "2-0", b"bob", -5, 1),
            (b"s", b"g", "3-0", b"bob", 5, -1),
            (b"s", b"g", "4-0", b"bob", None, 1),
        ]
    ),
    "groups": groups([(b"s", b"g", None, 1), (b"s", b"h", "5-0", -1)]),
    "streams": streams([(b"s", "5-0", "4-0"), (b"t", "5-0", None)]),
    "consumers": consumers([(b"s", b"g", b"bob", -5, 1), (b"s", b"\\", b"bob", 5, -1)]),
}
NO_ID = "is not a valid id (two unsigned 64-bit numbers; as a text ms-seq, without leading zeros)"
NO_TIME = "is not a valid time (0 to 2^63-1 ms since 1970)"
S_G = '{"stream":"s","consumer_group":"g"'
FIRST_THREE = ", ".join(f'{S_G},"id":"0{n}-0"}}' for n in range(3))
SAID = [
    f'column id {NO_ID} in 1 row: {{"stream":"s","id":"18446744073709551616-0"}};',
    'column stream is null in 1 row: {"stream":null,"consumer_group":"g","id":"1-0"};',
    f"column id {NO_ID} in 5 rows: {FIRST_THREE} …;",
    f'column delivery_time_ms {NO_TIME} in 1 row: {S_G},"id":"2-0"}};',
    f'column delivery_count is not a valid count (0 to 2^63-1) in 1 row: {S_G},"id":"3-0"}};',
    f'column delivery_time_ms is null in 1 row: {S_G},"id":"4-0"}};',
    f"column last is null in 1 row: {S_G}}};",
    f"column snapshot_ms {NO_TIME} in 1 row: ",
    "complete_from, complete_to is a range that ends before it begins in 1 row: ",
    "complete_from, complete_to is only one end of a range: give both, or neither in 1 row: ",
    f'column seen_time_ms {NO_TIME} in 1 row: {S_G},"consumer":"bob"}};',
    rf'column active_time_ms {NO_TIME} in 1 row: {{"stream":"s","consumer_group":"\\\\",',
    "; nothing was imported",
]


def test_what_no_store_can_hold_is_refused_with_its_rows_and_nothing_is_written(
    each_store: Store, tmp_path: Path
) -> None:
    store = each_store
    before = versions(store)

    def refused(error: type[Exception], name: str, tables: object, **options: object) -> str:
        with pytest.raises(error) as raised:
            import_tables(store, request(tmp_path / name, tables, **options))
        return str(raised.value)

    said = refused(InputError, "faulty", FAULTY)
    for part in SAID:
        assert part in said
    assert f"pending ({tmp_path}/faulty/pending): column" in said

    def twice(table):
        return table.take([0, 0, *range(len(table))])

    said = refused(
        DuplicateRowsError, "twice", {name: twice(table) for name, table in SECOND.items()}
    )
    for name in SECOND:
        assert f"{name} ({tmp_path}/twice/{name}): 1 key has more than one row" in said
    assert '{"stream":"s","consumer_group":"g","id":"2-0"}' in said

    only_g = {**SECOND, "groups": groups([(b"s", b"g", "7-0", None)])}
    said = refused(InputError, "strange", only_g)
    assert (
        f"pending ({tmp_path}/strange/pending): 1 row of groups that are missing from groups"
        in said
    )
    assert '{"stream":"s","consumer_group":"h"}' in said
    others = {**FIRST, "consumers": consumers([(b"s", b"nobody", b"c", 5, None)])}
    assert '{"stream":"s","consumer_group":"nobody"}' in refused(InputError, "others", others)

    for name in ("entries", "pending"):
        empty = {**FIRST, name: FIRST[name].slice(0, 0)}
        said = refused(InputError, f"no {name}", empty)
        assert said.startswith(name)
        assert "--allow-empty" in said

    misfit = request(tmp_path / "misfit", FIRST)
    for table_map, says in (
        (
            TableMap({"id": ("nothing",)}, assigned_at={"id": "m.toml, line 9"}),
            r"m\.toml, line 9: .*",
        ),
        (TableMap({"id": ("delivery_count",)}), "delivery_count int"),
        (TableMap({"consumer": ("nobody",)}), "no column nobody"),
    ):
        with pytest.raises(ConfigError, match=says):
            import_tables(store, replace(misfit, maps={**misfit.maps, "pending": table_map}))
    for absent in (str(tmp_path / "absent"), "no.such.table"):
        with pytest.raises(InputError, match=absent):
            import_tables(store, replace(misfit, entries=absent))
    assert versions(store) == before


def test_a_request_that_contradicts_itself_is_refused_before_anything_is_read() -> None:
    with pytest.raises(RequestError, match="give one of them"):
        ImportRequest("e", "p", streams="s", entries_complete=True)
    with pytest.raises(RequestError, match=r"section \[groups\], but --groups is not given"):
        ImportRequest("e", "p", maps={"groups": TableMap()})


def test_a_store_that_mirrors_a_server_refuses_an_import_naming_both(
    spark: SparkSession, spark_store: Store, store_path: Path, tmp_path: Path
) -> None:
    store = spark_store
    server = "server:6379/0"
    append_rows(
        store, "streams", spark.sql(f"SELECT 's' AS stream, '{server}' AS source, 0 AS run_seq")
    )
    import_request = request(tmp_path, FIRST)
    with pytest.raises(SourceMismatchError, match=f"is filled from {server}, not from import"):
        import_tables(store, import_request)
    spark.sql(
        f"ALTER TABLE {store.identifier('streams')}"
        f" SET TBLPROPERTIES ('claimlib.sourceHex' = '{server.encode().hex()}')"
    )
    declared = Store.open(spark, str(store_path))
    begun = Begun(declared, 2, declared.pin())
    check_source(begun, mirrored(begun), server, "snapshot")
    ran = {
        "run_seq": 1,
        "run_id": "r",
        "command": "snapshot",
        "source": server,
        **dict.fromkeys(("request", "request_hash", "software_version"), ""),
        **{key: {} for key in ("input_versions", "output_versions", "counts", "phase_ms")},
    }
    append_rows(declared, "runs", declared.rows("runs", [tuple(ran.values())], list(ran)))
    begun = Begun(declared, 2, declared.pin())
    with pytest.raises(SourceMismatchError, match=f"{server} .by claimlib snapshot., not"):
        check_source(begun, mirrored(begun), server, "snapshot")


def opened(engine: Executor, place: str) -> Relation:
    return Relation(engine, engine.open_input(place).node)


def test_a_given_table_stays_at_its_version(engine: Executor, tmp_path: Path) -> None:
    where = request(tmp_path, FIRST)
    pending = opened(engine, where.pending)
    request(tmp_path, SECOND)
    assert pending.count() == len(FIRST["pending"])
    assert opened(engine, where.pending).count() == len(SECOND["pending"])


def test_a_given_table_may_be_a_name_of_the_catalog(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    where = request(tmp_path, FIRST)
    spark.sql(f"SELECT * FROM delta.`{where.pending}`").createOrReplaceTempView("given_pending")
    assert read_input(store, "given_pending").count() == len(FIRST["pending"])
    by_name = replace(where, pending="given_pending")
    assert import_tables(store, by_name).counts["pending_read"] == len(FIRST["pending"])
    spark.catalog.dropTempView("given_pending")


def test_a_delta_table_whose_log_cannot_be_read_is_not_taken_for_its_files(
    store: Store, tmp_path: Path
) -> None:
    where = request(tmp_path, FIRST)
    request(tmp_path, SECOND)
    (tmp_path / "pending" / "_delta_log" / "00000000000000000000.json").unlink()
    with pytest.raises(RequestError, match="delta-rs cannot open it"):
        EmbeddedEngine().open_input(where.pending)
    with pytest.raises(Exception, match="DELTA_TRUNCATED_TRANSACTION_LOG"):
        import_tables(store, where)


def test_timestamps_as_pandas_writes_them_are_refused_with_what_to_do(
    engine: Executor, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"at": pd.to_datetime([1], unit="ms").astype("datetime64[ns]")})
    frame.to_parquet(tmp_path / "ns.parquet")
    with pytest.raises(InputError, match=r"in microseconds: to_parquet\(\.\.\., (.+)\)$") as raised:
        opened(engine, f"{tmp_path}/ns.parquet")
    advice = raised.value.message.partition("to_parquet(..., ")[2].removesuffix(")")
    name, _, value = advice.partition("=")
    frame.to_parquet(tmp_path / "us.parquet", **{name: value.strip("'")})
    (row,) = opened(engine, f"{tmp_path}/us.parquet").collect()
    assert row["at"].microsecond == 1000


@pytest.mark.parametrize(
    "name", ["e{a,b}", "e[ab]", "e?", "e*", "{ea}", "e\\a", "e,a", "e%61", "e'a", "é a"]
)
def test_a_folder_is_read_whose_path_was_given_and_none_that_a_glob_would_match(
    engine: Executor, tmp_path: Path, name: str
) -> None:
    def written(folder: str, rows: list[int]) -> None:
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"n": rows}), tmp_path / folder / "one.parquet")

    written("ea", [1])
    place = place_of(f"{tmp_path}/{name}")
    with pytest.raises(InputError, match="no such file or folder"):
        opened(engine, place).collect()
    written(name, [2, 3])
    assert sorted(row["n"] for row in opened(engine, place).collect()) == [2, 3]
