"""A check finds what a store lacks, all of it, and nothing in a sound store."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from claimlib.commands.check import Problem, check
from claimlib.engine.relation import Relation, TableScan
from claimlib.engine.spark import SparkEngine
from claimlib.errors import DamagedTableError
from claimlib.plans.check_plan import TABLES_READ, problems
from claimlib.plans.survey import NO_PROOF, NO_SNAPSHOT_TIME, UNKNOWN_GROUP
from claimlib.report.report_model import as_text
from claimlib.report.store import report_of_check
from claimlib.schema import TABLES
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, PEL, keyspace
from tests.delta.test_settings import SETTINGS, TOGETHER, settings
from tests.writing import append_rows

SOUND = keyspace(b"sound", b"\\ \xff")


@pytest.fixture
def store(spark_store: Store) -> Store:
    """A new store, open in Spark."""
    return spark_store


def entry(ms: int) -> PendingEntry:
    return PendingEntry(StreamId(ms, 2**64 - 1), b"dead", NOW_MS - 1, 1)


def problems_of(store: Store, spark: SparkSession) -> tuple[Problem, ...]:
    """What a check finds in a session, and without one; and its query on Spark, however that is
    set up."""
    in_session = check(store)
    assert check(open_folder(_refused, store.where)) == in_session
    engine = SparkEngine(spark, store.logs)
    columns = {name: [column.name for column in TABLES[name].columns] for name in TABLES_READ}
    tables = {
        name: Relation(engine, TableScan(name, None, tuple(of_table)))
        for name, of_table in columns.items()
    }
    unusual = {key: value for name in TOGETHER for key, value in SETTINGS[name].items()}
    with settings(spark, unusual):
        by_spark = problems(tables, 1).collect()
    assert by_spark == problems({name: store.relation(name) for name in TABLES_READ}, 1).collect()
    assert [(row["table"], row["what"], row["count"], row["example"]) for row in by_spark] == [
        (problem.table, problem.what, problem.count, problem.example)
        for problem in in_session
        if problem.table != "journal"
    ]
    return in_session


def _refused() -> SparkSession:
    raise AssertionError("Spark was started")


@pytest.mark.long
def test_a_sound_store_has_no_problems_and_an_empty_one_neither(
    spark: SparkSession, store: Store
) -> None:
    assert problems_of(store, spark) == ()
    write_keyspace(store, SOUND, NOW_MS)
    assert problems_of(store, spark) == ()
    assert as_text(report_of_check("s", ())).splitlines()[-1] == "no problems found"


@pytest.mark.long
def test_a_name_that_no_request_can_give_is_found(spark: SparkSession, store: Store) -> None:
    write_keyspace(store, SOUND, NOW_MS)
    for table in ("groups", "streams", "consumers"):
        rows = store.read(table).where("stream = 'sound'")
        append_rows(store, table, rows.withColumn("stream", F.lit("a\\b")))
    append_rows(
        store,
        "consumers",
        store.rows("consumers", [("sound", "g", "\\xFF", 1, None, 0)], _CONSUMERS),
    )
    listed = problems_of(store, spark)
    said = [(problem.table, problem.count, problem.example, problem.refuses) for problem in listed]
    assert said == [
        ("consumers", 2, '{"stream":"a\\\\b","consumer_group":"g","consumer":"dead"}', False),
        ("groups", 1, '{"stream":"a\\\\b","consumer_group":"g"}', False),
        ("streams", 1, '{"stream":"a\\\\b"}', False),
    ]
    assert "a backslash twice" in listed[0].what


@pytest.mark.long
def test_a_text_that_is_not_utf_8_is_left_to_spark(spark: SparkSession, store: Store) -> None:
    """DuckDB refuses to read a file with such a text."""
    write_keyspace(store, SOUND, NOW_MS)
    rows = store.read("consumers").withColumn("consumer", F.expr("CAST(unhex('ff41') AS STRING)"))
    append_rows(store, "consumers", rows.limit(1))
    by_files = open_folder(lambda: spark, store.where)
    assert by_files.is_embedded
    with pytest.raises(DamagedTableError, match="not UTF-8: claimlib check STORE --engine spark"):
        by_files.relation("consumers").collect()
    (problem,) = check(by_files)
    assert (problem.table, problem.count) == ("consumers", 1)
    assert check(store) == (problem,)


def group(*pending: PendingEntry, consumers: tuple[Consumer, ...] = PEL.consumers) -> Group:
    return Group(StreamId(9, 0), pending, consumers)


# Over Connect, Spark warns of a setting that is deprecated.
@pytest.mark.filterwarnings("ignore:The SQL config .* has been deprecated:UserWarning")
def test_every_fault_is_found_counted_and_shown_by_one_that_has_it_the_worst_first(
    spark: SparkSession,
    store: Store,
) -> None:
    write_keyspace(store, SOUND, NOW_MS)
    write_keyspace(store, {b"open": Stream({}, {b"g": group(entry(1))})}, NOW_MS, proven=None)
    narrow = (StreamId(2, 0), StreamId(3, 0))
    two = {b"g": group(entry(1), entry(3)), b"h": group(entry(2))}
    write_keyspace(store, {b"narrow": Stream({}, two)}, NOW_MS, narrow)
    strange = {b"g": group(entry(1), consumers=())}
    write_keyspace(store, {b"strange": Stream({}, strange)}, NOW_MS)
    write_keyspace(store, {b"late": Stream({}, {b"g": group(entry(1), entry(2))})}, NOW_MS - 2)
    write_keyspace(store, {b"timeless": Stream({}, {b"g": group()})}, None)
    write_keyspace(store, {b"before": Stream({}, {b"g": group()})}, -1)
    # What no run and no model makes: rows of one key, of no group, of no time.
    pending = store.read("pending").where("stream = 'sound'").orderBy("id_ms")
    for table in ("streams", "entries", "groups", "consumers"):
        append_rows(store, table, store.read(table).where("stream = 'sound'"))
    append_rows(store, "pending", pending.where("id_ms IN (1, 2)"))
    append_rows(store, "cursors", store.rows("cursors", [("c", "s", "g", 1, 0, 0)] * 2, _CURSORS))
    negative = pending.where("id_ms IN (3, 4, 5)").withColumn("consumer_group", F.lit("n"))
    append_rows(
        store,
        "groups",
        store.read("groups").where("stream = 'late'").withColumn("consumer_group", F.lit("n")),
    )
    in_late = negative.where("id_ms < 5").withColumn("stream", F.lit("late")).drop("bucket")
    append_rows(
        store, "pending", in_late.where("id_ms = 3").withColumn("delivery_time_ms", F.lit(-1))
    )
    append_rows(
        store, "pending", in_late.where("id_ms = 4").withColumn("delivery_count", F.lit(-1))
    )
    append_rows(store, "pending", negative.withColumn("consumer_group", F.lit("nobody")))
    bob = ("late", "nobody", "bob", -1, None, 0)
    append_rows(store, "consumers", store.rows("consumers", [bob], _CONSUMERS))
    decided = [(1, "run", "xautoclaim", "half", "a", "{}", "h", _INPUTS)]
    append_rows(store, "journal", store.rows("journal", decided, _JOURNAL))

    assert problems_of(store, spark) == (
        _twice("cursors", 1, '"name":"c","stream":"s","consumer_group":"g"'),
        _twice("groups", 1, '"stream":"sound","consumer_group":"g"'),
        _twice("pending", 2, '"stream":"sound","consumer_group":"g","id":"1-0"'),
        _twice("streams", 1, '"stream":"sound"'),
        Problem(
            "pending",
            "rows with a negative delivery_time_ms or delivery_count",
            True,
            2,
            '{"stream":"late","consumer_group":"n","id":"3-0"}',
        ),
        Problem("pending", UNKNOWN_GROUP, True, 1, '{"stream":"sound","consumer_group":"nobody"}'),
        Problem("groups", NO_SNAPSHOT_TIME, True, 2, '{"stream":"before","consumer_group":"g"}'),
        Problem(
            "pending",
            f"groups with {NO_PROOF}",
            True,
            2,
            '{"stream":"narrow","consumer_group":"g"}',
        ),
        _twice(
            "consumers",
            1,
            '"stream":"sound","consumer_group":"g","consumer":"dead"',
            refuses=False,
        ),
        _twice("entries", 9, '"stream":"sound","id":"1-0"', refuses=False),
        Problem(
            "streams",
            "streams that may be incomplete: without complete_from and complete_to",
            False,
            1,
            '{"stream":"open"}',
        ),
        Problem(
            "consumers",
            "rows with a negative seen_time_ms or active_time_ms",
            False,
            1,
            '{"stream":"late","consumer_group":"nobody","consumer":"bob"}',
        ),
        Problem(
            "consumers",
            UNKNOWN_GROUP,
            False,
            1,
            '{"stream":"late","consumer_group":"nobody","consumer":"bob"}',
        ),
        Problem(
            "pending",
            "consumers that own entries but are missing from the table consumers",
            False,
            3,
            '{"stream":"late","consumer_group":"n","consumer":"dead"}',
        ),
        Problem(
            "pending",
            "rows delivered after the snapshot time of their group",
            False,
            2,
            '{"stream":"late","consumer_group":"g","id":"1-18446744073709551615"}',
        ),
        Problem(
            "journal",
            "runs are decided and not finished: the next run finishes them first",
            False,
            1,
            "xautoclaim:half",
        ),
    )


def _twice(table: str, count: int, example: str, *, refuses: bool = True) -> Problem:
    return Problem(table, "keys with more than one row", refuses, count, f"{{{example}}}")


_CURSORS = ["name", "stream", "consumer_group", "next_ms", "next_seq", "run_seq"]
_CONSUMERS = [
    *("stream", "consumer_group", "consumer", "seen_time_ms", "active_time_ms", "run_seq"),
]
_JOURNAL = [
    *("run_seq", "kind", "command", "run_id", "attempt", "request", "request_hash", "inputs"),
]
_INPUTS = '{"versions": {}, "table_ids": {}, "counts": {}, "server": {}}'
