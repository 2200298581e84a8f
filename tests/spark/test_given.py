"""Given tables: every form of one row is the same row, and what cannot be used is a fault of it."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from claimlib.errors import ConfigError, IdError, NameSpellingError
from claimlib.plans.input_tables import TableMap, conformed, faults
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
# The pending entries above: their columns, how a row is written, and how it is read.
ROW_FORMS = {
    "text, bytes, timestamp": (
        "stream BINARY, consumer_group STRING, id STRING, consumer BINARY",
        "delivery_time_ms TIMESTAMP, delivery_count INT",
        lambda s, c, i, t, n: (bytearray(s), "g", str(i), bytearray(c), _instant(t), n),
        TableMap(TEXT_ID),
    ),
    "decimals, spellings, zoneless": (
        "stream STRING, consumer_group BINARY, ms DECIMAL(20,0), seq DECIMAL(20,0)",
        "consumer STRING, delivery_time_ms TIMESTAMP_NTZ, delivery_count DECIMAL(5,0)",
        lambda s, c, i, t, n: (
            *(spell(s), bytearray(b"g"), Decimal(i.ms), Decimal(i.seq), spell(c)),
            *(_instant(t).replace(tzinfo=None), Decimal(n)),
        ),
        TableMap(TWO_NUMBERS),
    ),
    "bits, milliseconds": (
        "stream STRING, consumer_group STRING, ms BIGINT, seq BIGINT, consumer STRING",
        "delivery_time_ms BIGINT, delivery_count BIGINT",
        lambda s, c, i, t, n: (
            *(spell(s), "g", to_bigint(i.ms), to_bigint(i.seq), spell(c), t, n),
        ),
        TableMap(TWO_NUMBERS, id_bits=True),
    ),
}


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000 + 999)


@pytest.fixture
def in_berlin(spark: SparkSession):
    """A session whose clocks go forward between two and three in the night of one instant above."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("form", ROW_FORMS)
def test_every_form_of_a_row_is_the_same_row_whatever_the_session_s_zone(
    in_berlin: SparkSession, form: str
) -> None:
    *columns, written, table_map = ROW_FORMS[form]
    frame = in_berlin.createDataFrame([written(*row) for row in ROWS], ", ".join(columns))
    rows = conformed("pending", frame, table_map).drop("shown").collect()
    assert [tuple(row) for row in rows] == [
        (
            *(spell(stream), "g", to_bigint(id_.ms), to_bigint(id_.seq), spell(consumer)),
            *(at_ms, count, None, None),
        )
        for stream, consumer, id_, at_ms, count in ROWS
    ]


def test_an_id_that_is_one_text_of_the_map_s_name_needs_no_entry(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 's' AS stream, 'g' AS consumer_group, '5-1' AS last_delivered")
    groups = conformed("groups", frame, TableMap())
    halves = ("last_delivered_ms", "last_delivered_seq")
    assert [tuple(row[name] for name in (*halves, "fault")) for row in groups.collect()] == [
        (5, 1, None)
    ]
    # Ours come first; and a number is no text, whatever its name.
    both = frame.selectExpr("*", "6L AS last_delivered_ms", "2L AS last_delivered_seq")
    assert [
        row["last_delivered_ms"] for row in conformed("groups", both, TableMap()).collect()
    ] == [6]
    number = frame.withColumn("last_delivered", F.lit(5))
    with pytest.raises(ConfigError, match="last_delivered int, but must be one STRING"):
        conformed("groups", number, TableMap())
    half = both.drop("last_delivered_ms")
    with pytest.raises(ConfigError, match="no column last_delivered_ms, and the map assigns"):
        conformed("groups", half, TableMap())


def test_fields_are_the_same_pairs_in_every_form(spark: SparkSession) -> None:
    pairs = [("a", "é"), ("a", "\\"), ("", "")]
    sql = [("'a'", "'é'"), ("'a'", r"r'\'"), ("''", "''")]
    array = f"array({', '.join(f'struct({name} AS name, {text} AS value)' for name, text in sql)})"
    of_array = [[name.encode(), value.encode()] for name, value in pairs]
    expressions = {
        array: of_array,
        f"transform({array}, x -> struct(CAST(x.value AS BINARY) AS value, x.name))": of_array,
        "map('a', 'é')": of_array[:1],
        "map(x'ff', 'é')": [[b"\xff", "é".encode()]],
        "CAST(NULL AS MAP<STRING, STRING>)": None,
    }
    for expression, expected in expressions.items():
        frame = spark.sql(f"SELECT 's' AS stream, '5-1' AS id, {expression} AS fields")
        row = conformed("entries", frame, TableMap(TEXT_ID)).first()
        shown = row["fields"] and [[bytes(f["name"]), bytes(f["value"])] for f in row["fields"]]
        assert (row["fault"], shown) == (None, expected), expression


def _id_texts() -> list[str]:
    """Ids, sound ones and ones that a character more, less or other makes something else."""
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


def test_a_text_is_an_id_if_it_is_written_as_a_server_writes_it(spark: SparkSession) -> None:
    texts = _id_texts()
    expected = list(map(_canonical, texts))
    assert min(sum(id_ is None for id_ in expected), sum(map(bool, expected))) >= 1000
    frame = spark.createDataFrame([("s", text) for text in texts], "stream STRING, id STRING")
    rows = conformed("entries", frame, TableMap(TEXT_ID)).collect()
    for text, id_, row in zip(texts, expected, rows, strict=True):
        bits = (None, None) if id_ is None else (to_bigint(id_.ms), to_bigint(id_.seq))
        assert (row["id_ms"], row["id_seq"]) == bits, text
        assert (row["fault"] is None) == (id_ is not None), text


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
    spark: SparkSession,
) -> None:
    names = _names()
    texts = [*map(spell, names), *(name.decode("utf-8", "replace") for name in names)]
    expected = list(map(_is_spelling, texts))
    assert min(expected.count(True), expected.count(False)) >= 1000
    frame = spark.createDataFrame(
        [(bytearray(name), "1-1") for name in names], "n BINARY, id STRING"
    )
    by_bytes = TableMap({**TEXT_ID, "stream": ("n",)})
    spelled = conformed("entries", frame, by_bytes).select("stream").collect()
    assert [row["stream"] for row in spelled] == list(map(spell, names))
    frame = spark.createDataFrame([(text, "1-1") for text in texts], "stream STRING, id STRING")
    rows = conformed("entries", frame, TableMap(TEXT_ID)).collect()
    for text, is_one, row in zip(texts, expected, rows, strict=True):
        assert row["stream"] == (text if is_one else None), text


@pytest.fixture(scope="module")
def sound(spark: SparkSession) -> DataFrame:
    """A sound row of pending."""
    return spark.sql(
        "SELECT 's' AS stream, 'g' AS consumer_group, 1L AS id_ms, 0L AS id_seq, 'c' AS consumer,"
        " 5L AS delivery_time_ms, 1L AS delivery_count"
    )


FAULTS = {
    "stream": ["CAST(NULL AS STRING)", r"r'a\b'", "CAST(x'ff' AS STRING)"],
    "consumer_group": ["CAST(NULL AS BINARY)"],
    "id_ms": ["-1L", "-1Y"],
    "id_seq": ["CAST(NULL AS BIGINT)", "CAST(18446744073709551616 AS DECIMAL(20,0))"],
    "consumer": [r"r'\x41'"],
    "delivery_time_ms": [
        *("-1", "CAST(NULL AS BIGINT)", "TIMESTAMP'1969-12-31 23:59:59.999Z'"),
        "CAST(9223372036854775808 AS DECIMAL(20,0))",
    ],
    "delivery_count": ["-1", "CAST(NULL AS INT)"],
}


def test_a_value_that_no_store_can_hold_is_a_fault_of_its_column(sound: DataFrame) -> None:
    cases = [(column, text) for column, texts in FAULTS.items() for text in texts]
    tables = {
        f"{column} {text}": conformed("pending", sound.withColumn(column, F.expr(text)), TableMap())
        for column, text in cases
    }
    by_table = {row["table"]: row for row in faults(tables).collect()}
    for column, text in cases:
        row = by_table[f"{column} {text}"]
        assert column in row["fault_column"], text
        assert row["rows"] == 1
    assert faults({"pending": conformed("pending", sound, TableMap())}).first()["fault"] is None


def test_a_range_that_is_half_or_ends_before_it_begins_is_a_fault(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT 's' AS stream, low, high FROM VALUES ('5-1', '5-1'), (NULL, NULL), ('5-1', NULL),"
        " (NULL, '5-1'), ('5-2', '5-1'), ('9223372036854775808-0', '9223372036854775807-0')"
        " AS v(low, high)"
    )
    by_text = TableMap({"complete_from": ("low",), "complete_to": ("high",)})
    said = [row["fault"] for row in conformed("streams", frame, by_text).collect()]
    assert said[:2] == [None, None]
    assert ["only one end of a range" in fault for fault in said[2:]] == [True, True, False, False]
    assert all("ends before it begins" in fault for fault in said[4:])


@pytest.mark.parametrize(
    ("column", "type_", "says"),
    [
        ("stream", "INT", "must be one STRING or BINARY"),
        ("id_ms", "DOUBLE", "two whole numbers"),
        ("delivery_time_ms", "DATE", "must be one whole number (ms) or TIMESTAMP"),
        ("delivery_count", "STRING", "must be one whole number"),
        ("delivery_count", "DECIMAL(5,1)", "must be one whole number"),
    ],
)
def test_a_column_of_a_type_that_says_something_else_is_refused(
    sound: DataFrame, column: str, type_: str, says: str
) -> None:
    frame = sound.withColumn(column, F.lit(None).cast(type_))
    with pytest.raises(ConfigError) as raised:
        conformed("pending", frame, TableMap())
    assert f"{column} {type_.lower()}" in raised.value.message
    assert says in raised.value.message


def test_a_column_that_is_not_there_is_named_with_the_map_s_line_and_those_that_are(
    sound: DataFrame,
) -> None:
    mapped = TableMap({"consumer": ("nobody",)}, said_at={"consumer": "m.toml, line 3"})
    with pytest.raises(ConfigError, match=r"m\.toml, line 3: .*no column nobody; the table's"):
        conformed("pending", sound, mapped)
    with pytest.raises(ConfigError, match="no column consumer, and the map assigns"):
        conformed("pending", sound.drop("consumer"), TableMap())
    with pytest.raises(ConfigError, match="no column id_ms, id_seq and none named id, and the map"):
        conformed("pending", sound.drop("id_ms", "id_seq"), TableMap())
    decimals = sound.withColumn("id_ms", F.col("id_ms").cast("DECIMAL(20,0)"))
    with pytest.raises(ConfigError, match=r"which are BIGINT if id_bits is true"):
        conformed("pending", decimals, TableMap(id_bits=True))
