"""Test the forms of given rows: sound ones are read alike, and others are faults."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.relation import Executor, Record, Relation
from claimlib.engine.spark import SparkEngine, relation_of
from claimlib.errors import ConfigError, IdError, NameSpellingError
from claimlib.plans.input_tables_plan import TableMap, conformed, faults
from claimlib.semantics.ids import MAX_U64, StreamId, parse_id, to_bigint
from claimlib.semantics.names import spell, unspell
from tests.delta.edge_cases import IDS, NAMES

AT_MS = [0, 1, 1_743_301_800_123, 253_402_300_799_999]  # up to the year 9999
ROWS = [
    (NAMES[n % len(NAMES)], NAMES[5 * n % len(NAMES)], IDS[n % len(IDS)], AT_MS[n % len(AT_MS)], n)
    for n in range(1, 40)
]
TEXT_ID = {"id": ("id",)}
TWO_NUMBERS = {"id": ("ms", "seq")}
# By form of the rows above: the types of the columns, the written row, and the map.
_TEXT, _BYTES, _NUMBER = pa.string(), pa.binary(), pa.int64()
_INSTANT = pa.timestamp("us", tz="UTC")
ROW_FORMS = {
    "text, bytes, timestamp": (
        {"stream": _BYTES, "consumer_group": _TEXT, "id": _TEXT, "consumer": _BYTES}
        | {"delivery_time_ms": _INSTANT, "delivery_count": pa.int32()},
        lambda s, c, i, t, n: (s, "g", str(i), c, _instant(t), n),
        TableMap(TEXT_ID),
    ),
    "decimals, spellings, zoneless": (
        {
            "stream": _TEXT,
            "consumer_group": _BYTES,
            "ms": pa.decimal128(20),
            "seq": pa.decimal128(20),
        }
        | {"consumer": _TEXT, "delivery_time_ms": pa.timestamp("us")}
        | {"delivery_count": pa.decimal128(5)},
        lambda s, c, i, t, n: (
            *(spell(s), b"g", Decimal(i.ms), Decimal(i.seq), spell(c)),
            *(_instant(t).replace(tzinfo=None), Decimal(n)),
        ),
        TableMap(TWO_NUMBERS),
    ),
    "bits, milliseconds": (
        {"stream": _TEXT, "consumer_group": _TEXT, "ms": _NUMBER, "seq": _NUMBER, "consumer": _TEXT}
        | {"delivery_time_ms": _NUMBER, "delivery_count": _NUMBER},
        lambda s, c, i, t, n: (
            *(spell(s), "g", to_bigint(i.ms), to_bigint(i.seq), spell(c), t, n),
        ),
        TableMap(TWO_NUMBERS, id_bits=True),
    ),
}


RowsOf = Callable[[pa.Table], Relation]


@pytest.fixture
def rows_of(engine: Executor, tmp_path: Path) -> RowsOf:
    """Return a function that reads a table from a file with each engine."""

    def read(table: pa.Table) -> Relation:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pq.write_table(table, file)
        return Relation(engine, engine.open_input(str(file)).node)

    return read


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000 + 999)


@pytest.fixture
def in_berlin(engine: Executor, request: pytest.FixtureRequest):
    """Set a time zone of Spark whose clocks change in the night of one of `AT_MS`."""
    if not isinstance(engine, SparkEngine):
        yield
        return
    spark: SparkSession = request.getfixturevalue("spark")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("form", ROW_FORMS)
def test_every_form_of_a_row_is_the_same_row_whatever_the_session_s_zone(
    rows_of: RowsOf, form: str
) -> None:
    types, written, table_map = ROW_FORMS[form]
    values = zip(*(written(*row) for row in ROWS), strict=True)
    arrays = {
        name: pa.array(column, type_)
        for (name, type_), column in zip(types.items(), values, strict=True)
    }
    rows = conformed("pending", rows_of(pa.table(arrays)), table_map)
    by_number = {row["delivery_count"]: row for row in rows.collect()}
    assert [tuple(by_number[row[-1]].values())[:-1] for row in ROWS] == [
        (
            *(spell(stream), "g", to_bigint(id_.ms), to_bigint(id_.seq), spell(consumer)),
            *(at_ms, count, None, None),
        )
        for stream, consumer, id_, at_ms, count in ROWS
    ]


GROUP = pa.table({"stream": ["s"], "consumer_group": ["g"], "last_delivered": ["5-1"]})


def test_an_id_that_is_one_text_of_the_map_s_name_needs_no_entry(rows_of: RowsOf) -> None:
    (row,) = conformed("groups", rows_of(GROUP), TableMap()).collect()
    names = ("last_delivered_ms", "last_delivered_seq", "fault")
    assert [row[name] for name in names] == [5, 1, None]
    # Ours come first; and a number is no text, whatever its name.
    half = GROUP.append_column("last_delivered_seq", pa.array([2]))
    both = half.append_column("last_delivered_ms", pa.array([6]))
    (row,) = conformed("groups", rows_of(both), TableMap()).collect()
    assert row["last_delivered_ms"] == 6
    number = GROUP.set_column(2, "last_delivered", pa.array([5], pa.int32()))
    with pytest.raises(ConfigError, match="last_delivered int, but must be one STRING"):
        conformed("groups", rows_of(number), TableMap())
    with pytest.raises(ConfigError, match="no column last_delivered_ms, and the map assigns"):
        conformed("groups", rows_of(half), TableMap())


def test_fields_are_the_same_pairs_in_every_form(rows_of: RowsOf) -> None:
    pairs = [("a", "é"), ("a", "\\x41"), ("", "")]
    as_bytes = [{"name": name.encode(), "value": value.encode()} for name, value in pairs]

    def pairs_of(name: pa.DataType, value: pa.DataType, order: int = 1) -> pa.DataType:
        return pa.list_(pa.struct([("name", name), ("value", value)][::order]))

    texts = [{"name": name, "value": value} for name, value in pairs]
    cases = [
        (texts, pairs_of(_TEXT, _TEXT), as_bytes),
        (as_bytes, pairs_of(_BYTES, _BYTES), as_bytes),
        (
            [{**of, "value": of["value"].encode()} for of in texts],
            pairs_of(_TEXT, _BYTES, -1),
            as_bytes,
        ),
        ([("a", "é")], pa.map_(_TEXT, _TEXT), as_bytes[:1]),
        ([(b"\xff", "é")], pa.map_(_BYTES, _TEXT), [{"name": b"\xff", "value": "é".encode()}]),
        ([], pa.map_(_TEXT, _TEXT), []),
        (None, pa.map_(_TEXT, _TEXT), None),
    ]
    for value, type_, expected in cases:
        table = pa.table({"stream": ["s"], "id": ["5-1"], "fields": pa.array([value], type_)})
        (row,) = conformed("entries", rows_of(table), TableMap(TEXT_ID)).collect()
        assert (row["fault"], row["fields"]) == (None, expected), type_
    for value in ([{"name": "a", "value": None}], [None]):
        halves = pa.array([value], pairs_of(_TEXT, _TEXT))
        table = pa.table({"stream": ["s"], "id": ["5-1"], "fields": halves})
        (row,) = conformed("entries", rows_of(table), TableMap(TEXT_ID)).collect()
        assert (row["fault_column"], row["fault"]) == ("fields", "contains a null")


def _id_texts() -> list[str]:
    """Return texts of ids, some of them with one character added, removed or changed."""
    chance = random.Random(7)
    halves = [0, 1, 9, 10, 2**31, 2**53, 2**63 - 1, 2**63, MAX_U64, MAX_U64 + 1, 10**20]
    texts = ["", "-", "+", "5", "5-", "-5", "5-*", "0x5-1", "\uff15-1", "5-1\n", "\x005-1", "5-1-1"]
    for _ in range(4000):
        ms, seq = (
            chance.choice([*halves, chance.randrange(MAX_U64), chance.randrange(2**44)])
            for _ in range(2)
        )
        text = f"{ms}-{seq}"
        if chance.random() < 0.4:
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(["0", "-", " ", "+", "a", ".", ""]) + text[at + 1 :]
        texts.append(text)
    return texts


def _canonical(text: str) -> StreamId | None:
    try:
        stream_id = parse_id(text)
    except IdError:
        return None
    return stream_id if str(stream_id) == text else None


def by_id(rows: Relation, column: str) -> dict[str, Record]:
    """Return conformed rows by the text that they show of a column."""
    return {json.loads(row["shown"])[column]: row for row in rows.collect()}


def test_a_text_is_an_id_if_it_is_written_as_a_server_writes_it(rows_of: RowsOf) -> None:
    texts = _id_texts()
    expected = list(map(_canonical, texts))
    assert min(sum(id_ is None for id_ in expected), sum(map(bool, expected))) >= 1000
    table = pa.table({"stream": ["s"] * len(texts), "id": texts})
    rows = by_id(conformed("entries", rows_of(table), TableMap(TEXT_ID)), "id")
    for text, id_ in zip(texts, expected, strict=True):
        bits = (None, None) if id_ is None else (to_bigint(id_.ms), to_bigint(id_.seq))
        assert (rows[text]["id_ms"], rows[text]["id_seq"]) == bits, text
        assert (rows[text]["fault"] is None) == (id_ is not None), text


def _names() -> list[bytes]:
    chance = random.Random(8)
    pieces = [
        *(b"a", b"\\", b"\\x", b"\\xff", b"\xc3", b"\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80"),
        *(b"\xed\xa0\x80", b"\xff", b"\n", b"\0", b"\xf4\x90", b"\xc0\x80", b"\xc3\xa9", b"\x80"),
    ]
    random_ones = (b"".join(chance.choices(pieces, k=chance.randrange(7))) for _ in range(4500))
    return [*NAMES, *random_ones, "é".encode() * 50_000]


def _is_spelling(text: str) -> bool:
    try:
        unspell(text)
    except NameSpellingError:
        return False
    return True


def test_bytes_are_spelled_as_everywhere_and_a_text_must_be_such_a_spelling(
    rows_of: RowsOf,
) -> None:
    names = _names()
    texts = [*map(spell, names), *(name.decode("utf-8", "replace") for name in names)]
    expected = list(map(_is_spelling, texts))
    assert min(expected.count(True), expected.count(False)) >= 1000
    table = pa.table({"n": names, "id": [f"{n}-0" for n in range(len(names))]})
    rows = conformed("entries", rows_of(table), TableMap({**TEXT_ID, "stream": ("n",)}))
    spelled = {row["id_ms"]: row["stream"] for row in rows.collect()}
    assert [spelled[n] for n in range(len(names))] == list(map(spell, names))
    table = pa.table({"stream": texts, "id": [f"{n}-0" for n in range(len(texts))]})
    rows = conformed("entries", rows_of(table), TableMap(TEXT_ID))
    streams = {row["id_ms"]: row["stream"] for row in rows.collect()}
    for n, (text, is_one) in enumerate(zip(texts, expected, strict=True)):
        assert streams[n] == (text if is_one else None), text


SOUND = pa.table(
    {
        "stream": ["s"],
        "consumer_group": ["g"],
        "id_ms": [1],
        "id_seq": [0],
        "consumer": ["c"],
        "delivery_time_ms": [5],
        "delivery_count": [1],
    }
)


def sound_but(column: str, value: object, type_: pa.DataType) -> pa.Table:
    at = SOUND.column_names.index(column)
    return SOUND.set_column(at, column, pa.array([value], type_))


_DECIMAL = pa.decimal128(20)
FAULTS = [
    *(("stream", None, _TEXT), ("stream", r"a\b", _TEXT), ("consumer_group", None, _BYTES)),
    *(("id_ms", -1, _NUMBER), ("id_ms", -1, pa.int8()), ("id_seq", None, _NUMBER)),
    *(("id_seq", Decimal(2**64), _DECIMAL), ("id_ms", Decimal(10**30), pa.decimal128(38))),
    *(("id_ms", Decimal(-1), _DECIMAL), ("consumer", r"\x41", _TEXT)),
    *(("delivery_time_ms", -1, _NUMBER), ("delivery_time_ms", None, _NUMBER)),
    *(("delivery_time_ms", -1, _INSTANT), ("delivery_time_ms", -1, pa.timestamp("us"))),
    ("delivery_time_ms", Decimal(2**63), _DECIMAL),
    *(("delivery_count", -1, pa.int32()), ("delivery_count", None, pa.int32())),
]


def test_a_value_that_no_store_can_hold_is_a_fault_of_its_column(rows_of: RowsOf) -> None:
    tables = {
        f"{n}": conformed("pending", rows_of(sound_but(*case)), TableMap())
        for n, case in enumerate(FAULTS)
    }
    by_table = {row["table"]: row for row in faults(tables).collect()}
    for n, (column, *case) in enumerate(FAULTS):
        row = by_table[f"{n}"]
        assert column in (row["fault_column"] or "").split(", "), (column, case)
        assert row["rows"] == 1
    (row,) = faults({"pending": conformed("pending", rows_of(SOUND), TableMap())}).collect()
    ends = [{"name": "delivery_time_ms", "low": 5, "high": 5}]
    assert (row["fault"], row["times"]) == (None, ends)


def test_a_text_that_is_not_utf_8_is_a_fault(spark: SparkSession) -> None:
    columns = (*SOUND.column_names[1:3], "0L AS id_seq", *SOUND.column_names[4:])
    frame = spark.createDataFrame(SOUND).selectExpr("CAST(x'ff' AS STRING) AS stream", *columns)
    (row,) = conformed("pending", relation_of(frame), TableMap()).collect()
    assert (row["fault_column"], "is not a valid name" in row["fault"]) == ("stream", True)


def test_a_range_that_is_half_or_ends_before_it_begins_is_a_fault(rows_of: RowsOf) -> None:
    low = ["5-1", None, "5-1", None, "5-2", "9223372036854775808-0"]
    high = ["5-1", None, None, "5-1", "5-1", "9223372036854775807-0"]
    table = pa.table({"stream": [f"{n}" for n in range(6)], "low": low, "high": high})
    by_text = TableMap({"complete_from": ("low",), "complete_to": ("high",)})
    rows = conformed("streams", rows_of(table), by_text).order_by("stream").collect()
    said = [row["fault"] for row in rows]
    assert said[:2] == [None, None]
    assert ["only one end of a range" in fault for fault in said[2:]] == [True, True, False, False]
    assert all("ends before it begins" in fault for fault in said[4:])


@pytest.mark.parametrize(
    ("column", "type_", "called", "says"),
    [
        ("stream", pa.int32(), "int", "must be one STRING or BINARY"),
        ("id_ms", pa.float64(), "double", "two whole numbers"),
        ("delivery_time_ms", pa.date32(), "date", "must be one whole number (ms) or TIMESTAMP"),
        ("delivery_count", pa.string(), "string", "must be one whole number"),
        ("delivery_count", pa.decimal128(5, 1), "decimal(5,1)", "must be one whole number"),
    ],
)
def test_a_column_of_a_type_that_says_something_else_is_refused(
    rows_of: RowsOf, column: str, type_: pa.DataType, called: str, says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        conformed("pending", rows_of(sound_but(column, None, type_)), TableMap())
    assert f"{column} {called}" in raised.value.message
    assert says in raised.value.message


def test_a_column_that_is_not_there_is_named_with_the_map_s_line_and_those_that_are(
    rows_of: RowsOf,
) -> None:
    mapped = TableMap({"consumer": ("absent",)}, assigned_at={"consumer": "m.toml, line 3"})
    with pytest.raises(ConfigError, match=r"m\.toml, line 3: .*no column absent; the table's"):
        conformed("pending", rows_of(SOUND), mapped)
    without = SOUND.drop_columns(["consumer"])
    with pytest.raises(ConfigError, match="no column consumer, and the map assigns"):
        conformed("pending", rows_of(without), TableMap())
    without = SOUND.drop_columns(["id_ms", "id_seq"])
    with pytest.raises(ConfigError, match="no column id_ms, id_seq and none named id, and the map"):
        conformed("pending", rows_of(without), TableMap())
    decimals = rows_of(sound_but("id_ms", Decimal(1), _DECIMAL))
    with pytest.raises(ConfigError, match=r"which are BIGINT if id_bits is true"):
        conformed("pending", decimals, TableMap(id_bits=True))


def test_a_column_may_have_any_name(rows_of: RowsOf) -> None:
    names = ["claimlib_x", "it's", "{this}", 'q"', "a.b", "back`tick", "Zoë \u2028"]
    odd = SOUND.rename_columns(names)
    keys = ("stream", "consumer_group", "id", "consumer", "delivery_time_ms", "delivery_count")
    columns = [(names[0],), (names[1],), (names[2], names[3]), *((name,) for name in names[4:])]
    table_map = TableMap(dict(zip(keys, columns, strict=True)))
    (row,) = conformed("pending", rows_of(odd), table_map).collect()
    assert list(row.values())[:-1] == ["s", "g", 1, 0, "c", 5, 1, None, None]
    assert json.loads(row["shown"]) == dict(zip(names[:4], ("s", "g", 1, 0), strict=True))


HOSTILE_NAMES = [*NAMES, b"\\", b"\\x41", b"\xff\xc3", b"\x00", b"\xed\xa0\x80", None]
HALVES = [0, 1, 2**53 + 1, 2**63 - 1, 2**63, MAX_U64, None]
MOMENTS = [-(10**15), -1001, -1000, -999, -1, 0, 1, 999, 1000, 1_743_301_800_123_456, None]
NUMBERS = [-(2**63), -1, 0, 1, 2**31, 2**53 + 1, 2**63 - 1, None]


def random_pending(seed: int, number: int) -> pa.Table:
    """Return pending entries in random forms, some with values that no store can hold."""
    chance = random.Random(seed)

    def column(values: Sequence[object], *types: pa.DataType) -> pa.Array:
        return pa.array(chance.choices(values, k=number), chance.choice(types))

    texts = [
        None if name is None else name.decode("utf-8", "backslashreplace") for name in HOSTILE_NAMES
    ]

    def names() -> pa.Array:
        return chance.choice([column(HOSTILE_NAMES, _BYTES), column(texts, _TEXT)])

    decimals = [None if half is None else Decimal(half) for half in HALVES]
    bits = [None if half is None else to_bigint(half) for half in HALVES]
    halves = chance.choice([(decimals, _DECIMAL, pa.decimal128(38)), (bits, _NUMBER)])
    times = [(MOMENTS, _INSTANT, pa.timestamp("us")), (NUMBERS, _NUMBER)]
    return pa.table(
        {
            "stream": names(),
            "consumer_group": names(),
            "id_ms": column(*halves),
            "id_seq": column(*halves),
            "consumer": names(),
            "delivery_time_ms": column(*chance.choice(times)),
            "delivery_count": column(NUMBERS, _NUMBER),
        }
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_random_tables_conform_alike_on_both_engines(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    file = tmp_path / "pending.parquet"
    pq.write_table(random_pending(seed, 3000), file)
    results = []
    for engine in (SparkEngine(spark), EmbeddedEngine()):
        rows = Relation(engine, engine.open_input(str(file)).node)
        rows = conformed("pending", rows, TableMap(id_bits=rows.types["id_ms"] == "bigint"))
        results.append(Counter(tuple(row.values()) for row in rows.collect()))
        summary = faults({"pending": rows}).order_by("fault_column", "fault").collect()
        results[-1].update([json.dumps(summary)])
    assert results[0] == results[1]
    assert {row[-2] for row in results[0] if len(row) == 10} > {None}
