"""Ten thousand rows of a request table, each value told good or bad by a grammar; in one query."""

import random
import re
import time

import pytest
from pyspark.sql import functions as F

from claimlib.errors import RequestError
from claimlib.plans.requests import (
    GUARDS,
    REQUEST_COLUMNS,
    SWEEPS,
    by_table,
    known_groups,
    standing,
)
from claimlib.semantics.model import COUNT_MAX, AutoclaimRequest, IdleRule, Profile
from claimlib.testing.tables import request_table
from tests.bad_inputs import BAD, INPUTS, SEED, TEXT_PIECES, mutant, tally
from tests.grammars import name_spelled

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


def request_rows(spark, rows):
    """A request table of texts; row n is for the group g of stream sn."""
    names = list(REQUEST_COLUMNS)
    values = [
        tuple({"stream": f"s{n}", "consumer_group": "g", **row}[name] for name in names)
        for n, row in rows.items()
    ]
    return spark.createDataFrame(values, ", ".join(f"{name} STRING" for name in names))


def test_the_columns_that_cannot_be_used_are_named_row_by_row(spark, rows):
    begun = time.perf_counter()
    table = request_rows(spark, dict(enumerate(rows)))
    typed = [F.col(name).try_cast(REQUEST_COLUMNS[name]).alias(name) for name in COLUMNS]
    answers = table.select(*typed, SWEEPS.unusable().alias("unusable"), "stream").collect()
    answered = {int(answer["stream"][1:]): answer for answer in answers}
    wrong, good = [], []
    for n, row in enumerate(rows):
        expected = meaning(row)
        unusable = {column for column in COLUMNS if expected[column] is BAD}
        good.append(not unusable)
        values = {column: answered[n][column] for column in COLUMNS if column not in unusable}
        if set(answered[n]["unusable"]) != unusable:
            wrong.append(f"{row}: {unusable} expected, {answered[n]['unusable']} found")
        elif any(values[column] != expected[column] for column in values):
            wrong.append(f"{row}: {expected} expected, {values} found")
    tally("rows of request tables", good, begun, wrong)


def test_a_table_of_good_rows_is_taken_and_one_bad_row_in_it_is_named(spark, rows):
    told = {n: meaning(row) for n, row in enumerate(rows[:3000])}
    bad = [n for n, meanings in told.items() if BAD in meanings.values()]
    good = {n: rows[n] for n in told if n not in bad}
    assert SWEEPS.checked(request_rows(spark, good)).count() == len(good) > 500
    for n in bad[:2]:
        with pytest.raises(RequestError, match=f"in the row for s{n}/g: ") as raised:
            SWEEPS.checked(request_rows(spark, good | {n: rows[n]}))
        columns = [name for name in REQUEST_COLUMNS if told[n].get(name) is BAD]
        assert (raised.value.stream, raised.value.columns) == (f"s{n}", columns)


@pytest.fixture(scope="module")
def one_request(spark):
    return request_table(spark, {(b"s", b"g"): AutoclaimRequest(b"c", 5)})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("min_idle_ms", "1.9D"),
        ("min_idle_ms", "1.0BD"),
        ("min_idle_ms", "INTERVAL '15' MINUTE"),
        ("min_idle_ms", "TIMESTAMP'2026-01-01'"),
        ("count", "true"),
        ("start_ms", "array(1)"),
        ("justid", "1"),
        ("consumer", "5"),
        ("cursor", "binary('c')"),
    ],
)
def test_a_column_whose_type_a_cast_would_change_is_refused_with_both_types(
    one_request, column, value
):
    with pytest.raises(RequestError, match=f"^column {column} of the request table is ") as raised:
        SWEEPS.checked(one_request.withColumn(column, F.expr(value)))
    assert raised.value.message.endswith(f": it must be {REQUEST_COLUMNS[column]}")


@pytest.mark.parametrize("value", ["5S", "5", "CAST(5 AS DECIMAL(20, 0))", "'5'"])
def test_a_column_of_whole_numbers_or_texts_of_them_is_taken(one_request, value):
    checked = SWEEPS.checked(one_request.withColumn("count", F.expr(value)))
    assert checked.select("count").first()["count"] == 5


def test_a_consumer_that_spells_no_name_is_refused(one_request):
    for spelled in (r"a\b", r"\xc3\xa9", r"\xFF", r"\x41"):
        with pytest.raises(RequestError, match="invalid consumer in the row for s/g"):
            SWEEPS.checked(one_request.withColumn("consumer", F.lit(spelled)))


def test_a_word_of_a_column_with_a_collation_is_compared_as_it_stands(one_request):
    for column, word in (("idle_rule", "SERVER"), ("profile", "REDIS-7.2")):
        collated = F.lit(word).cast("STRING COLLATE UTF8_LCASE")
        with pytest.raises(RequestError, match=f"invalid {column} in the row for s/g"):
            SWEEPS.checked(one_request.withColumn(column, collated))


def test_a_negative_min_idle_of_a_request_table_is_0(spark, one_request):
    groups = spark.sql(
        "SELECT 's' AS stream, 'g' AS consumer_group, 9L AS snapshot_ms, 0L AS run_seq"
    )
    proven = "complete_from_ms, complete_from_seq, complete_to_ms, complete_to_seq"
    streams = spark.sql(
        f"SELECT * FROM VALUES ('s', 0L, 0L, 9L, 0L, 0L) t(stream, {proven}, run_seq)"
    )
    negative = SWEEPS.checked(one_request.withColumn("min_idle_ms", F.lit(-(2**63))))
    target = standing(by_table(known_groups(groups, streams, 1), negative), None).first()
    assert (target["min_idle_ms"], target["now_ms"]) == (0, 9)
