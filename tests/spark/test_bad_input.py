"""Ten thousand rows of a request table, each value told good or bad by a grammar; in one query, by
both engines."""

import random
import re
import time

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from claimlib.commands.xack import NamedAck, ack_table
from claimlib.commands.xclaim import NamedClaim, claim_table
from claimlib.engine.relation import Relation, Rows
from claimlib.engine.spark import SparkEngine, frame_of, relation_of
from claimlib.errors import RequestError
from claimlib.plans.bulk_plan import ACKS, CLAIMS
from claimlib.plans.keys import GROUP, bigint_sql
from claimlib.plans.requests import (
    GUARDS,
    PROVEN_RANGE,
    REQUEST_COLUMNS,
    SWEEPS,
    by_table,
    standing,
)
from claimlib.schema import quote_text
from claimlib.semantics.ids import MAX_U64, StreamId
from claimlib.semantics.model import (
    COUNT_MAX,
    AutoclaimRequest,
    ClaimRequest,
    Guards,
    IdleRule,
    Profile,
)
from claimlib.testing.keyspace_rows import request_table
from tests.bad_inputs import BAD, INPUTS, SEED, TEXT_PIECES, mutant, tally
from tests.grammars import name_spelled
from tests.spark.literal import LiteralStore, with_values

PIECES = [piece for piece in TEXT_PIECES if not "\ud800" <= piece <= "\udfff"]  # none in Spark
BLANKS = "".join(map(chr, (*range(0x21), 0x7F)))  # what Spark's casts pass over at both ends


# ---- what each column takes: null is a value of some ----


def number(text, low=-(2**63), high=2**63 - 1):
    digits = text.strip(BLANKS)
    value = int(digits) if re.fullmatch("[+-]?[0-9]+", digits) else None
    return value if value is not None and low <= value <= high else BAD


def count(text):
    return number(text, 1, COUNT_MAX)


def natural(text):
    return number(text, 0)


def times(text):
    return number(text, 1)


# Which texts Java takes for a fraction is no grammar of ours: these stand for them.
SHARES = {"0": 0.0, "0.5": 0.5, "1": 1.0, "1.01": BAD, "-0.1": BAD, "NaN": BAD, "x": BAD, "": BAD}


def yes_or_no(text):
    word = text.strip(BLANKS).lower()
    if word in {"t", "true", "y", "yes", "1"}:
        return True
    return False if word in {"f", "false", "n", "no", "0"} else BAD


def name(text):
    return BAD if name_spelled(text) is BAD else text


def one_of(choices):
    return lambda text: text if text in map(str, choices) else BAD


def any_text(text):
    return text


NUMBERS = ["0", "5", "1000", str(2**63 - 1), str(-(2**63)), "-5", "007"]
COLUMNS = {
    "consumer": (name, ["c", r"a\\b", r"\xff", "", r"\xc3x"]),
    "min_idle_ms": (number, NUMBERS),
    "start_ms": (number, [None, *NUMBERS]),
    "start_seq": (number, [None, *NUMBERS]),
    "justid": (yes_or_no, ["true", "false", "y", "0"]),
    "idle_rule": (one_of(IdleRule), list(map(str, IdleRule))),
    "profile": (one_of(Profile), list(map(str, Profile))),
    "count": (count, [None, "1", "100", str(COUNT_MAX), str(COUNT_MAX + 1), "0"]),
    "cursor": (any_text, [None, "nightly"]),
    "max_claims": (natural, [None, "0", "5", str(2**63 - 1), str(2**63)]),
    "max_deleted_share": (SHARES.get, [None, *SHARES]),
    "only_from": (any_text, [None, "worker-*"]),
    "only_consumers_idle_ms": (natural, [None, "0", "1000"]),
    "max_deliveries": (times, [None, "1", "5", str(2**63 - 1)]),
    "parking_consumer": (name, [None, "parking"]),
}
NULLABLE = {"start_ms", "start_seq", "count", "cursor", *GUARDS}


def some_row(rng):
    """A row with one or two columns spoilt, or none."""
    row = {column: rng.choice(valid) for column, (_, valid) in COLUMNS.items()}
    # Else most rows would be bad by these two alone.
    row["max_deleted_share"] = rng.choice([*[None] * 9, *SHARES])
    row["parking_consumer"] = None if row["max_deliveries"] is None else "parking"
    for column in rng.choices(list(COLUMNS), k=rng.choice((0, 1, 1, 2))):
        if rng.random() < 0.1:
            row[column] = None
        elif row[column] is not None and column != "max_deleted_share":
            row[column] = mutant(rng, row[column], PIECES)
    return row


def meaning(row):
    """What each value means."""
    values = {
        column: (None if column in NULLABLE else BAD) if row[column] is None else told(row[column])
        for column, (told, _) in COLUMNS.items()
    }
    if (row["start_ms"] is None) != (row["start_seq"] is None):
        values["start_seq"] = BAD
    parking = row["parking_consumer"]
    is_alone = (row["max_deliveries"] is None) != (parking is None)
    if is_alone or (parking is not None and parking == row["consumer"]):
        values["parking_consumer"] = BAD
    return values


@pytest.fixture(scope="module")
def rows():
    rng = random.Random(f"{SEED} requests")
    return [some_row(rng) for _ in range(INPUTS)]


def request_rows(engine, rows):
    """A request table of texts; row n is for the group g of stream sn."""
    values = [{"stream": f"s{n}", "consumer_group": "g", **row} for n, row in rows.items()]
    texts = pa.schema([(name, pa.string()) for name in REQUEST_COLUMNS])
    return Relation(engine, Rows(pa.Table.from_pylist(values, texts)))


def test_the_columns_that_cannot_be_used_are_named_row_by_row(engine, rows):
    begun = time.perf_counter()
    answers = SWEEPS.typed(request_rows(engine, dict(enumerate(rows)))).collect()
    answered = {int(answer["stream"][1:]): answer for answer in answers}
    wrong, good = [], []
    for n, row in enumerate(rows):
        expected, answer = meaning(row), answered[n]
        unusable = [column for column in REQUEST_COLUMNS if expected.get(column) is BAD]
        good.append(not unusable)
        values = {column: answer[column] for column in COLUMNS if column not in unusable}
        if answer["unusable"] != ", ".join(unusable):
            wrong.append(f"{row}: {unusable} expected, {answer['unusable']} found")
        elif any(values[column] != expected[column] for column in values):
            wrong.append(f"{row}: {expected} expected, {values} found")
    tally("rows of request tables", good, begun, wrong)


def test_a_table_of_good_rows_is_taken_and_one_bad_row_in_it_is_named(engine, rows):
    told = {n: meaning(row) for n, row in enumerate(rows[:3000])}
    bad = [n for n, meanings in told.items() if BAD in meanings.values()]
    good = {n: rows[n] for n in told if n not in bad}
    assert SWEEPS.checked(request_rows(engine, good)).count() == len(good) > 500
    for n in bad[:2]:
        with pytest.raises(RequestError, match=f"in the row for s{n}/g: ") as raised:
            SWEEPS.checked(request_rows(engine, good | {n: rows[n]}))
        columns = [name for name in REQUEST_COLUMNS if told[n].get(name) is BAD]
        assert (raised.value.stream, raised.value.columns) == (f"s{n}", columns)


@pytest.fixture(scope="module")
def one_request(engine):
    return request_table(engine, {(b"s", b"g"): AutoclaimRequest(b"c", 5)})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("min_idle_ms", "1.9D"),
        ("min_idle_ms", "CAST(1 AS DECIMAL(20, 1))"),
        ("min_idle_ms", "INTERVAL '15' MINUTE"),
        ("min_idle_ms", "TIMESTAMP'2026-01-01'"),
        ("count", "true"),
        ("start_ms", "array(1)"),
        ("justid", "1"),
        ("consumer", "5"),
        ("cursor", "CAST('c' AS BINARY)"),
    ],
)
def test_a_column_whose_type_a_cast_would_change_is_refused_with_both_types(
    one_request, column, value
):
    with pytest.raises(RequestError, match=f"^column {column} of the request table is ") as raised:
        SWEEPS.checked(with_values(one_request, **{column: value}))
    assert raised.value.message.endswith(f": it must be {REQUEST_COLUMNS[column]}")


@pytest.mark.parametrize("value", ["5S", "5", "CAST(5 AS DECIMAL(20, 0))", "'5'"])
def test_a_column_of_whole_numbers_or_texts_of_them_is_taken(one_request, value):
    checked = SWEEPS.checked(with_values(one_request, count=value))
    assert [row["count"] for row in checked.collect()] == [5]


@pytest.mark.parametrize(
    ("value", "share"),
    [
        *(("CAST(0.3 AS DECIMAL(38, 20))", 0.3), ("CAST(0.5 AS FLOAT)", 0.5), ("1", 1.0)),
        *(("' .5e-1 '", 0.05), ("'+1.'", 1.0)),
        ("CAST(0.123456789012345678 AS DECIMAL(18, 18))", 0.12345678901234568),
    ],
)
def test_a_share_is_the_nearest_fraction_to_what_a_table_has(one_request, value, share):
    checked = SWEEPS.checked(with_values(one_request, max_deleted_share=value))
    assert [row["max_deleted_share"] for row in checked.collect()] == [share]


def test_a_column_of_nulls_may_be_there_or_not(one_request):
    rows = one_request.arrow()
    nulls = rows.set_column(rows.column_names.index("count"), "count", pa.nulls(1))
    for table in (nulls, rows.drop_columns(["count", "cursor", *GUARDS])):
        checked = SWEEPS.checked(Relation(one_request.engine, Rows(table)))
        assert checked.collect() == one_request.collect()


def test_a_consumer_that_spells_no_name_is_refused(one_request):
    for spelled in (r"a\b", r"\xc3\xa9", r"\xFF", r"\x41"):
        with pytest.raises(RequestError, match="invalid consumer in the row for s/g"):
            SWEEPS.checked(with_values(one_request, consumer=quote_text(spelled)))


@pytest.mark.parametrize(
    "blank", ["", " \t\r\n\x0b\x0c", "\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"]
)
def test_a_cursor_of_white_space_alone_is_refused(one_request, blank):
    with pytest.raises(RequestError, match="invalid cursor in the row for s/g"):
        SWEEPS.checked(with_values(one_request, cursor=quote_text(blank)))
    named = with_values(one_request, cursor=quote_text(f"{blank}\u200b"))
    assert SWEEPS.checked(named).count() == 1


def test_a_word_of_a_column_with_a_collation_is_compared_as_it_stands(spark):
    row = request_table(SparkEngine(spark, LiteralStore(spark)), {(b"s", b"g"): PLAIN})
    for column, word in (("idle_rule", "SERVER"), ("profile", "REDIS-7.2")):
        collated = F.lit(word).cast("STRING COLLATE UTF8_LCASE")
        with pytest.raises(RequestError, match=f"invalid {column} in the row for s/g"):
            SWEEPS.checked(relation_of(frame_of(row).withColumn(column, collated)))


PLAIN = AutoclaimRequest(b"c", 5)


def test_a_negative_min_idle_of_a_request_table_is_0(one_request):
    known = one_request.select(
        *(*GROUP, "9L AS snapshot_ms", *(f"0L AS {name}" for name in PROVEN_RANGE)),
        *("CAST(NULL AS STRING) AS repeated_in", "CAST(NULL AS STRING) AS ahead_in"),
        "true AS in_groups",
    )
    negative = SWEEPS.checked(with_values(one_request, min_idle_ms=bigint_sql(-(2**63))))
    target = standing(by_table(known, negative), None).first()
    assert (target["min_idle_ms"], target["now_ms"]) == (0, 9)


# ---- what tells one table from another ----

PARKING = Guards(
    max_claims=5,
    max_deleted_share=0.25,
    only_from="worker-*",
    only_consumers_idle_ms=7,
    max_deliveries=9,
    parking_consumer=b"parking",
)


def sweeps(engine):
    zoe = "Zoë".encode()
    server = {"idle_rule": IdleRule.SERVER, "profile": Profile.REDIS_7_0}
    requests = {
        (b"orders:eu", b"workers"): AutoclaimRequest(
            b"alice", 60_000, start=StreamId(2**63, 1), count=100, guards=PARKING
        ),
        (b"orders:us", b"workers"): AutoclaimRequest(
            b"\xff", 0, justid=True, guards=Guards(max_deleted_share=0.0005)
        ),
        (b"orders:jp", zoe): AutoclaimRequest(
            b"c", 5, guards=Guards(max_deleted_share=1.0), **server
        ),
    }
    return SWEEPS, request_table(engine, requests)


def claims(engine):
    alice = ClaimRequest(
        b"alice",
        60_000,
        (StreamId(1, 0), StreamId(MAX_U64, 2**63)),
        idle_ms=5,
        retrycount=3,
        force=True,
        last_id=StreamId(7, 7),
    )
    other = ClaimRequest(
        b"a\x00b\x7f",
        0,
        (),
        time_ms=9,
        justid=True,
        idle_rule=IdleRule.SERVER,
        profile=Profile.REDIS_7_0,
    )
    zoe = "Zoë😀".encode()
    named = [NamedClaim(b"orders:eu", b"workers", alice), NamedClaim(ODD, zoe, other)]
    return CLAIMS, claim_table(engine, named)


def acks(engine):
    named = [NamedAck(b"orders:eu", b"workers", (StreamId(1, 0),)), NamedAck(ODD, b"g", ())]
    return ACKS, ack_table(engine, named)


ODD = b"\xff\\\n'\""


@pytest.mark.parametrize(
    ("table_of", "hashed"),
    [
        (sweeps, "-7474047942788093610"),
        (claims, "8082919008508132633"),
        (acks, "-5906810776851867319"),
    ],
)
def test_the_fingerprint_of_a_table_is_what_it_was_in_earlier_releases(engine, table_of, hashed):
    """Else a run id that was used before an upgrade would be refused."""
    table, rows = table_of(engine)
    checked = table.checked(rows)
    assert table.fingerprint(checked) == {"rows": rows.count(), "hash": hashed}
    assert table.fingerprint(checked.where("false")) == {"rows": 0, "hash": "0"}
