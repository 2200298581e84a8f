"""Both engines compute the same rows of the same statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.relation import DESCENDING, Node, Record, Relation, Rows
from claimlib.engine.spark import SparkEngine, frame_of, relation_of
from claimlib.plans.column_readers import id_bits_sql, is_spelling_sql
from claimlib.plans.keys import ID_ORDER, bigint_sql, glob_sql, id_at_least, id_at_most, id_text_sql
from claimlib.schema import BUCKET_SQL, ENTRIES, quote_text
from tests.limits import set_limits
from tests.spark.literal import LiteralStore

ENDS = (0, 1, 5, 2**53 + 1, 2**63 - 1, -(2**63), -1)
NAMES = (None, "", "a", "Zoë", "{this}", "a'b\\", "x\u0000y", "%", "orders:eu", "\U0001f600")
ID_TEXTS = (
    *("0-0", "5-18446744073709551615", "9223372036854775808-9223372036854775807", None, "5"),
    *("18446744073709551616-0", "0-99999999999999999999", "01-1", "1-0\n", "-1-0", " 1-0", "1-٣"),
)
VALUES = pa.table(
    {
        "n": pa.array(range(len(NAMES) * len(ENDS)), pa.int64()),
        "name": pa.array([name for name in NAMES for _ in ENDS], pa.string()),
        "id_ms": pa.array([end for _ in NAMES for end in ENDS], pa.int64()),
        "id_seq": pa.array([ENDS[-1 - n % len(ENDS)] for n in range(70)], pa.int64()),
        "maybe": pa.array([None if n % 3 == 0 else n for n in range(70)], pa.int64()),
        "id_text": pa.array([ID_TEXTS[n % len(ID_TEXTS)] for n in range(70)], pa.string()),
    }
)
STATEMENTS = {
    "hashes of one and of two names": "xxhash64(name), xxhash64(name, CAST(n AS STRING))",
    "hashes of numbers": "xxhash64(CAST(id_ms AS BIGINT), CAST(maybe AS BIGINT), name)",
    "halves of a hash": "shiftright(id_ms, 32), id_ms & 4294967295L",
    "the bucket of a stream": BUCKET_SQL.format(buckets=16).replace("stream", "name"),
    "ids as text": id_text_sql("id_ms", "id_seq"),
    "unsigned halves": ", ".join(ID_ORDER),
    "ids that are compared": ", ".join(
        (
            id_at_least("id_ms", "id_seq", "id_seq", "id_ms"),
            id_at_most("id_ms", "id_seq", bigint_sql(-(2**63)), bigint_sql(5)),
        )
    ),
    "differences that leave 64 bits": "try_subtract(id_ms, id_seq), try_subtract(maybe, 5)",
    "globs": ", ".join(
        glob_sql("name", glob) for glob in ("*", "a*", "[^a]*", "orders:?u", "*\\\\*", "Zo?*", "??")
    ),
    "texts that are data": ", ".join(
        f"name = {quote_text(name)} AS is_{n}" for n, name in enumerate(NAMES[1:])
    ),
    "values instead of a null": (
        "coalesce(maybe, xxhash64(name)),"
        " coalesce(name, CAST(try_subtract(id_ms, maybe) AS STRING), 'none')"
    ),
    "numbers of nulls": "coalesce(maybe > 5, false), maybe IS NULL, greatest(maybe, 3L)",
    "shares": "CAST(maybe AS DOUBLE) / 3, maybe % 4",
    "JSON, in which a null is left out": (
        "to_json(struct(name, maybe, id_ms, n > 5 AS is_late, array(name, 'e\":0.0001') AS names))"
    ),
    "fractions in JSON": "to_json(struct(n / 10000D AS small, -n / 70D AS n, n * 1e6D AS large))",
    "ids of texts": ", ".join(
        f"{half} AS of_{text}_{n}"
        for text in ("name", "id_text")
        for n, half in enumerate(id_bits_sql(text))
    ),
    "names that are spelled": is_spelling_sql("name"),
}
AGGREGATES = {
    "sums and ends": "sum(maybe), min(id_ms), max(id_ms), count(*), count(maybe)",
    "counts by a condition": "count_if(maybe > 5), sum(CAST(maybe > 5 AS BIGINT))",
    "counts of nulls alone": "count_if(CAST(NULL AS BIGINT) > 5)",
    "largest structs": f"max(CASE WHEN maybe > 5 THEN struct({ID_ORDER[0]} AS ms, n AS n) END)",
    "distinct structs": (
        "count(DISTINCT CASE WHEN maybe > 5 THEN struct(id_ms AS ms, id_seq AS seq) END)"
    ),
    "values at an end": "min_by(maybe, n), max_by(maybe, n), max_by(name, n)",
    "values at an end of a struct": (
        f"min_by(n, struct({ID_ORDER[0]} AS ms, {ID_ORDER[1]} AS seq, n AS n))"
    ),
    "filters": "count(*) FILTER (WHERE maybe > 5)",
    "sums beyond 64 bits": "CAST(sum(CAST(id_ms AS DECIMAL(38, 0))) AS STRING)",
}


@pytest.fixture(scope="module")
def rows_on(spark: SparkSession) -> Callable[[str], Relation]:
    """The values as a relation of an engine."""
    store = LiteralStore(spark)
    engines = {"spark": SparkEngine(spark, store), "embedded": EmbeddedEngine()}
    return lambda engine: Relation(engines[engine], Rows(VALUES))


def named(expressions: str) -> str:
    return f"struct({expressions}) AS all_of_them"


@pytest.mark.parametrize("what", STATEMENTS)
def test_an_expression_has_the_same_value_on_both_engines(rows_on, what: str) -> None:
    spark, embedded = (
        rows_on(engine).select(named(STATEMENTS[what]), "n").order_by("n").collect()
        for engine in ("spark", "embedded")
    )
    assert values(spark) == values(embedded)
    assert len(spark) == len(NAMES) * len(ENDS)


@pytest.mark.parametrize("what", AGGREGATES)
def test_an_aggregate_has_the_same_value_on_both_engines(rows_on, what: str) -> None:
    text = f"SELECT name, {named(AGGREGATES[what])} FROM {{this}} AS this GROUP BY name"
    spark, embedded = (
        rows_on(engine).sql(text).order_by("name").collect() for engine in ("spark", "embedded")
    )
    assert values(spark) == values(embedded)
    assert [row["name"] for row in spark] == sorted(NAMES, key=lambda name: (name or "").encode())


def test_the_payload_of_an_entry_has_the_same_hash_on_both_engines(rows_on) -> None:
    fields = [None, [], [(b"a", b"1")], [(b"", b"\xff\x00" * 40), (b"b", b""), (b"b", b"2")]]
    schema = ENTRIES.arrow_schema(["fields"])
    payloads = [
        item and [{"name": name, "value": value} for name, value in item] for item in fields
    ]
    table = pa.table({"fields": pa.array(payloads, schema.field("fields").type), "n": range(4)})
    spark, embedded = (
        Relation(rows_on(engine).engine, Rows(table))
        .select("xxhash64(fields) AS hash", "n")
        .order_by("n")
        .collect()
        for engine in ("spark", "embedded")
    )
    assert spark == embedded
    assert len({row["hash"] for row in spark}) == 3, "null and an empty list leave the seed"


def test_an_existing_key_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a name was hashed")

    monkeypatch.setattr("claimlib.engine.functions._hashes", refused)
    keyed = Relation(EmbeddedEngine(), Rows(VALUES)).where("maybe IS NOT NULL")
    key = "coalesce(maybe, xxhash64(name)) AS key"
    bucket = "coalesce(n, pmod(xxhash64(name), 8)) AS bucket"
    assert keyed.select(key, bucket).arrow().num_rows == 46
    with pytest.raises(Exception, match="a name was hashed"):
        Relation(EmbeddedEngine(), Rows(VALUES)).select(key, bucket).arrow()


def values(rows: list[Record]) -> list[list[object]]:
    """The values of rows, without the names that an engine gives to columns without one."""
    return [list(row["all_of_them"].values()) for row in rows]


@pytest.fixture(params=["spark", "embedded"])
def rows(request, rows_on) -> Relation:
    return rows_on(request.param)


def test_null_comes_first_and_in_a_descending_order_last(rows: Relation) -> None:
    up = [row["maybe"] for row in rows.order_by("maybe", "n").collect()]
    assert up == sorted(up, key=lambda number: (number is not None, number))
    down = [row["maybe"] for row in rows.order_by(f"maybe{DESCENDING}", "n").collect()]
    assert down == sorted(up, key=lambda number: (number is None, -(number or 0)))
    assert up[0] is None is down[-1]


def test_the_first_rows_of_an_order_are_those_of_the_order(rows: Relation) -> None:
    ordered = rows.order_by(f"n{DESCENDING}")
    assert [row["n"] for row in ordered.limit(3).collect()] == [69, 68, 67]
    assert [row["n"] for row in ordered.limit(3).order_by("n").limit(1).collect()] == [67]
    assert rows.limit(0).collect() == []
    assert ordered.first() == {**ordered.limit(1).collect()[0]}
    assert rows.where("n > 1000").first() is None


def test_rows_are_counted_and_named(rows: Relation) -> None:
    assert (rows.count(), rows.where("n < 5").count()) == (70, 5)
    assert not rows.is_empty()
    assert rows.where("false").is_empty()
    assert rows.where("false").fetched().is_empty()
    assert rows.columns == ("n", "name", "id_ms", "id_seq", "maybe", "id_text")
    assert rows.select("n", "n + 1 AS m").columns == ("n", "m")
    assert sorted(row["name"] or "" for row in rows.distinct("name").collect()) == sorted(
        name or "" for name in NAMES
    )


def test_types_have_the_names_that_spark_gives_them(rows: Relation) -> None:
    values = {
        **{type_: f"CAST(1 AS {type_})" for type_ in ("tinyint", "smallint", "int", "bigint")},
        **{type_: f"CAST(1 AS {type_})" for type_ in ("float", "double", "decimal(20,0)")},
        "boolean": "n > 5",
        "string": "name",
        "binary": "CAST(name AS BINARY)",
        "array<string>": "array(name)",
        "map<string,bigint>": "map(name, n)",
    }
    typed = rows.select(*(f"{value} AS c{n}" for n, value in enumerate(values.values())))
    assert typed.types == {f"c{n}": type_ for n, type_ in enumerate(values)}
    nulls = pa.table({"null": pa.nulls(1), "nulls": pa.array([[None]], pa.list_(pa.null()))})
    types = Relation(rows.engine, Rows(nulls)).types
    assert types == {"null": "void", "nulls": "array<void>"}


def test_a_list_is_taken_apart_with_the_positions_of_its_values(rows: Relation) -> None:
    lists = rows.where("n < 3").select("n", "sequence(n, 2 * n) AS numbers")
    unfolded = lists.select("n", "posexplode(numbers) AS (position, number)")
    assert [tuple(row.values()) for row in unfolded.order_by("n", "position").collect()] == [
        (n, position, n + position) for n in range(3) for position in range(n + 1)
    ]


def test_a_statement_may_use_a_relation_twice_and_begin_with_a_clause_of_its_own(
    rows: Relation,
) -> None:
    doubled = rows.select("n", "n * 2 AS double")
    joined = doubled.sql(
        "WITH few AS (SELECT * FROM {this} AS this WHERE n < 4)"
        " SELECT few.n, other.double FROM few JOIN {other} AS other ON few.double = other.n",
        other=doubled,
    )
    expected = [{"n": n, "double": n * 4} for n in range(4)]
    assert joined.order_by("n").collect() == expected
    assert joined.reused().order_by("n").collect() == expected
    assert joined.fetched().order_by("n").collect() == expected


def test_streamed_rows_come_in_order_however_many_parts_they_have(
    rows: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, stream_rows=7)
    monkeypatch.setattr("claimlib.engine.embedded.BATCH_ROWS", 7)
    ordered = rows.order_by(f"maybe{DESCENDING}", "n")
    expected = ordered.collect()
    assert list(ordered.stream(70)) == expected
    assert list(ordered.limit(20).stream(20)) == expected[:20]


def test_many_rows_are_not_kept_for_several_statements(
    rows: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = rows.where("n < 5").reused()
    assert isinstance(few.node, Rows)
    set_limits(monkeypatch, embedded_rows=4)
    set_limits(monkeypatch, fetched_rows=4)
    many = rows.where("n < 5").reused()
    assert not isinstance(many.node, Rows)
    assert many.count() == few.count() == 5


def test_a_frame_is_a_relation_and_a_relation_of_spark_is_a_frame(spark: SparkSession) -> None:
    relation = relation_of(spark.range(5)).where("id > 2")
    assert [row["id"] for row in frame_of(relation).orderBy("id").collect()] == [3, 4]
    with pytest.raises(TypeError, match="of the embedded engine"):
        frame_of(Relation(EmbeddedEngine(), Rows(VALUES)))


class _WithoutTypes(EmbeddedEngine):
    """An engine that must not be asked for columns."""

    def types_of(self, node: Node) -> Mapping[str, str]:
        raise AssertionError(node)


def test_the_types_of_a_statement_depend_on_what_it_reads_not_on_its_numbers() -> None:
    columns = {"number": pa.array([1]), "text": pa.array(["a"]), "other": pa.array([None, True])}
    for _ in range(2):
        for type_, column in zip(("bigint", "string", "boolean"), columns.values(), strict=True):
            rows = Relation(EmbeddedEngine(), Rows(pa.table({"c": column})))
            for number in (1, 2):
                counted = rows.sql(f"SELECT c, {number}L AS n, 1.5 AS d FROM {{this}} AS this")
                assert counted.types == {"c": type_, "n": "bigint", "d": "decimal(2,1)"}


def test_the_types_of_kept_rows_are_those_of_their_own_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_limits(monkeypatch, embedded_rows=0)
    kept = [
        Relation(EmbeddedEngine(), Rows(pa.table({"c": column}))).sql("SELECT * FROM {this}").kept()
        for column in (pa.array([1]), pa.array(["a"]))
    ]
    types = [rows.sql("SELECT c FROM {this} AS this").types["c"] for rows in kept]
    assert types == ["bigint", "string"]


@pytest.mark.parametrize(
    ("expressions", "is_known"),
    [
        (["n", "id_ms AS x", "coalesce(maybe, greatest(n, 2)) AS y"], True),
        (["n", "CASE WHEN name = 'it, (' THEN 'a\\\\' ELSE name END AS text"], True),
        (["1 AS a, 2 AS b"], False),
        (["*", "n AS m"], False),
        (["this.n"], False),
        (["CASE WHEN n > 1 THEN n END"], False),
        (["n + 1"], False),
    ],
)
def test_the_names_of_a_selection_are_those_that_an_engine_gives(expressions, is_known) -> None:
    selected, without = (
        Relation(engine, Rows(VALUES)).select(*expressions)
        for engine in (EmbeddedEngine(), _WithoutTypes())
    )
    assert selected.columns == tuple(selected.types)
    if is_known:
        assert without.columns == selected.columns
    else:
        with pytest.raises(AssertionError):
            _ = without.columns
