"""The rules, unsigned ids and globs, as SQL: each table of cases in one action."""

from __future__ import annotations

import random
from operator import attrgetter

import pytest
from pyspark.sql import functions as F

from claimlib.plans.keys import glob_sql, id_at_least, id_at_most, id_text_sql, unsigned_sql
from claimlib.plans.sql_terms import Term, terms
from claimlib.semantics import names, rules
from claimlib.semantics.ids import from_bigint, to_bigint
from claimlib.semantics.names import spell
from tests.unit.rule_cases import ANSWERS, FREE_CASES, RULE_CASES, answers

INPUT_TYPES = {
    "name": "STRING",
    "present": "BOOLEAN",
    "now_ms": "BIGINT",
    "delivery_time_ms": "BIGINT",
    "min_idle_ms": "BIGINT",
    "equal_counts": "BOOLEAN",
    "is_spared": "BOOLEAN",
    "is_parking": "BOOLEAN",
    "delivery_count": "BIGINT",
    "park_above": "BIGINT",
}


@pytest.mark.smoke
def test_terms_of_sql_give_what_the_table_of_rules_says(spark):
    cases = spark.createDataFrame(
        list(map(attrgetter(*INPUT_TYPES), RULE_CASES)),
        ", ".join(f"{name} {type_}" for name, type_ in INPUT_TYPES.items()),
    )

    rows = cases.selectExpr("name", *(term.sql for term in answers(Term))).collect()

    assert {row[0]: tuple(row[1:]) for row in rows} == {
        case.name: attrgetter(*ANSWERS)(case) for case in RULE_CASES
    }


def test_terms_of_sql_say_of_each_named_id_whether_it_is_free(spark):
    inputs = ["pending", "owned", "idle_enough", "force"]
    cases = spark.createDataFrame(FREE_CASES, [*inputs, "free"])
    rows = cases.selectExpr(
        f"{rules.goes_to_caller(*terms(*inputs)).sql} AS found", "free"
    ).collect()
    assert [row["found"] for row in rows] == [row["free"] for row in rows]


# ---- unsigned numbers ----

NUMBERS = [
    *(0, 1, 2, 9, 10, 1_750_000_000_000),
    *(2**53 - 1, 2**53, 2**53 + 1),
    *(2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1),
    *(2**64 - 2, 2**64 - 1),
]
PAIRS = [(ms, seq) for ms in (0, 2**53, *range(2**63 - 1, 2**63 + 2), 2**64 - 1) for seq in NUMBERS]


def test_bigints_sort_and_read_as_the_unsigned_numbers_that_they_hold(spark):
    shuffled = random.Random(1).sample(NUMBERS, len(NUMBERS))
    frame = spark.createDataFrame([(to_bigint(number),) for number in shuffled], "bits BIGINT")

    ordered = frame.orderBy(F.expr(unsigned_sql("bits")))
    rows = ordered.selectExpr("bits", id_text_sql("bits", "bits")).collect()

    assert [(from_bigint(bits), text) for bits, text in rows] == [
        (number, f"{number}-{number}") for number in sorted(NUMBERS)
    ]


def test_ids_are_compared_as_pairs_of_unsigned_numbers(spark):
    columns = "ms BIGINT, seq BIGINT"
    ids = spark.createDataFrame([tuple(map(to_bigint, pair)) for pair in PAIRS], columns)
    bounds = ids.toDF("bound_ms", "bound_seq")
    bound = ("bound_ms", "bound_seq")

    compared = ids.crossJoin(bounds).selectExpr(
        "*", id_at_least("ms", "seq", *bound), id_at_most("ms", "seq", *bound)
    )

    rows = [(*map(from_bigint, row[:4]), *row[4:]) for row in compared.collect()]
    assert len(rows) == len(PAIRS) ** 2
    assert all(
        (at_least, at_most) == ((ms, seq) >= (low_ms, low_seq), (ms, seq) <= (low_ms, low_seq))
        for ms, seq, low_ms, low_seq, at_least, at_most in rows
    )


# ---- globs ----

UNITS = [
    *(b"a", b"b", b"z", b"0", b"-", b"^", b"]", b"[", b"*", b"?", b".", b"$", b"(", b"'", b'"'),
    *(b"\\", b"\\x", b"ff", b"\n", b"\r", b"\t", b"\x00", b"\x7f", b" "),
    *(b"\x80", b"\xff", b"\xc3", b"\xc3\xa9", "日本".encode(), "😀".encode(), "\u2028".encode()),
]
WILD = [b"*", b"**", b"?", b"[^a]", b"[a-z]", b"[\\]\\\\]", b"[^]", b"[\x80-\xff]", b"[\xc3\xa9]"]
SPECIAL = b"*?[]\\"


def some_names(rnd):
    chosen = {b"", b"\\xff", b"\xff", b"orders:eu", b"a" * 2000}
    while len(chosen) < 60:
        chosen.add(b"".join(rnd.choices(UNITS, k=rnd.randint(1, 6))))
    return sorted(chosen)


def some_globs(rnd, of):
    """Globs made of beginnings of names: bytes as they are, escaped, or a wildcard instead."""
    chosen = {b"*", b"**", b"?", b"[]", b"[^]", b"\\\\xff", b"\\\xff", b"*a*a*a*a*b"}
    while len(chosen) < 300:
        name = rnd.choice(of)[: rnd.randint(1, 6)]
        parts = [
            rnd.choice(WILD) if rnd.random() < 0.4 else escaped(bytes([byte]), rnd) for byte in name
        ]
        chosen.add(b"".join(parts) + rnd.choice([b"", b"*", b"*", b"?*"]))
    return sorted(chosen - {b""})


def escaped(byte, rnd):
    return b"\\" + byte if byte in SPECIAL or rnd.random() < 0.2 else byte


def test_java_matches_globs_on_the_bytes_of_names_as_python_does(spark):
    rnd = random.Random(20)
    all_names = some_names(rnd)
    globs = some_globs(rnd, all_names)
    frame = spark.createDataFrame([(spell(name),) for name in all_names], "name STRING")

    by_java = frame.select("name", F.array(*(F.expr(glob_sql("name", glob)) for glob in globs)))

    answers = {name: dict(zip(globs, matched, strict=True)) for name, matched in by_java.collect()}
    expected = {(glob, name): names.matches(glob, name) for glob in globs for name in all_names}
    print(f"{len(globs)} globs, {len(all_names)} names, {sum(expected.values())} matches")
    assert len(expected) >= 17_000
    assert sum(expected.values()) > 1000
    assert [
        (glob, name)
        for (glob, name), matched in expected.items()
        if answers[spell(name)][glob] is not matched
    ] == []
