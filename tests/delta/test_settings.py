"""Unusual settings of a user's session give the rows of the default ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claimlib import AutoclaimRequest, Store, SweepRequest, xautoclaim
from claimlib.commands.check import check
from claimlib.commands.retire import Retirement, retire
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.commands.xpending import pending_overview, read_store
from claimlib.schema import TABLES
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import ClaimRequest
from tests.delta.reading import query
from tests.delta.snapshots import ANY, source, stream
from tests.limits import set_limits

NOW_MS = 1_750_000_000_000
SETTINGS: Mapping[str, Mapping[str, str]] = {
    name: dict(setting.split("=", 1) for setting in settings.split(" "))
    for name, settings in {
        "no implicit cross joins": "spark.sql.crossJoin.enabled=false",
        "time zone": "spark.sql.session.timeZone=Asia/Kathmandu",
        "without ANSI": "spark.sql.ansi.enabled=false",
        "case matters": "spark.sql.caseSensitive=true",
        "one row per Arrow batch": "spark.sql.execution.arrow.maxRecordsPerBatch=1",
        "one partition": "spark.sql.shuffle.partitions=1",
        "301 partitions": "spark.sql.shuffle.partitions=301",
        "strict assignment": "spark.sql.storeAssignmentPolicy=STRICT",
        "legacy assignment": "spark.sql.storeAssignmentPolicy=LEGACY",
        "schema evolution": "spark.databricks.delta.schema.autoMerge.enabled=true",
        "columns by name": (
            "spark.databricks.delta.properties.defaults.columnMapping.mode=name"
            " spark.databricks.delta.properties.defaults.minReaderVersion=2"
            " spark.databricks.delta.properties.defaults.minWriterVersion=5"
        ),
        "double quotes are identifiers": (
            "spark.sql.ansi.doubleQuotedIdentifiers=true spark.sql.ansi.enabled=true"
        ),
        "literals are not escaped": "spark.sql.parser.escapedStringLiterals=true",
        "reserved keywords": (
            "spark.sql.ansi.enforceReservedKeywords=true spark.sql.ansi.enabled=true"
        ),
        "no adaptive plans": "spark.sql.adaptive.enabled=false",
        "adaptive plans": "spark.sql.adaptive.enabled=true",
        "no broadcast": "spark.sql.autoBroadcastJoinThreshold=-1",
        "everything is broadcast": "spark.sql.autoBroadcastJoinThreshold=1000000000",
        "hash joins": "spark.sql.join.preferSortMergeJoin=false",
        "no code generation": "spark.sql.codegen.wholeStage=false",
        "legacy rows": "spark.sql.legacy.timeParserPolicy=LEGACY",
        "no vectors": "spark.sql.parquet.enableVectorizedReader=false",
        "integers of legacy": "spark.sql.legacy.literal.pickMinimumPrecision=false",
        "maps keep duplicates": "spark.sql.mapKeyDedupPolicy=LAST_WIN",
        "no Arrow": "spark.sql.execution.arrow.pyspark.enabled=false",
        "nulls first": "spark.sql.orderByOrdinal=false",
        "no predicate pushdown": "spark.sql.parquet.filterPushdown=false",
        "no constraint propagation": "spark.sql.constraintPropagation.enabled=false",
        "no deletion vectors by default": (
            "spark.databricks.delta.properties.defaults.enableDeletionVectors=false"
        ),
        "append only by default": "spark.databricks.delta.properties.defaults.appendOnly=true",
        "optimized writes": "spark.databricks.delta.optimizeWrite.enabled=true",
        "automatic compaction": "spark.databricks.delta.autoCompact.enabled=true",
        "small files": "spark.sql.files.maxRecordsPerFile=1",
        "dynamic overwrite": "spark.sql.sources.partitionOverwriteMode=dynamic",
        "bushy unions": "spark.sql.unionOutputPartitioning=false",
    }.items()
}
# Together they would contradict each other, or take minutes.
ALONE = ("301 partitions", "legacy assignment", "adaptive plans", "everything is broadcast")
TOGETHER = tuple(name for name in SETTINGS if name not in ALONE)


@contextmanager
def settings(spark: SparkSession, chosen: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in chosen}
    try:
        for key, value in chosen.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def play(spark: SparkSession, where: Path) -> dict[str, list[tuple]]:
    """Run every command once on a new store.  Return the rows of its tables and of some reports."""
    store = Store.init(spark, str(where))
    name, owners = b"a\\b'`\"$\xff", {1: b"bob", 2: b"bob", 3: b"x\\", 2**64 - 1: b"bob"}
    first = stream(name, owners, {1, 3, 2**64 - 1}, NOW_MS)
    snapshot(store, ANY, lambda _: source(first, stream(b"t", {1: b"bob"}, {1}, NOW_MS)))
    page = AutoclaimRequest(b"r\\", 60_000, count=1)
    xautoclaim(store, SweepRequest(page, cursor="c\\x"), run_id="page")
    sweep = xautoclaim(store, SweepRequest(AutoclaimRequest(b"r\\", 60_000)), run_id="sweep")
    ids = (StreamId(1, 0), StreamId(3, 0), StreamId(3, 0), StreamId(9, 0))
    claim = ClaimRequest(b"z", 0, ids, force=True, retrycount=7)
    claimed = xclaim(store, [NamedClaim(name, b"g", claim)], run_id="claim")
    retire(store, Retirement(name, b"g", b"z", recipients=(b"r\\",)), run_id="retire")
    second = stream(name, {3: b"y", 7: b"bob"}, {3, 7}, NOW_MS + 1)
    snapshot(store, ANY, lambda _: source(second), run_id="again")
    rows = {
        table: sorted(
            map(_comparable, query(store.where, table, f"SELECT {_columns(table)} FROM t"))
        )
        for table in TABLES
    }
    shown = {
        "groups": sweep.groups,
        "claimed": sweep.claimed,
        "ids": claimed.ids,
        "overview": pending_overview(read_store(store)),
    }
    return {
        **rows,
        **{key: sorted(map(str, frame.collect())) for key, frame in shown.items()},
        "problems": [(problem.table, problem.count) for problem in check(store)],
    }


def _columns(table: str) -> str:
    """Return the columns that do not depend on the store or the time."""
    own = {"attempt", "landing", "inputs", "request_hash", "run_id", "began_ms", "ended_ms"}
    own |= {"phase_ms", "input_versions", "output_versions", "server_run_id", "replication_id"}
    return ", ".join(column.name for column in TABLES[table].columns if column.name not in own)


def _comparable(row: Mapping[str, object]) -> str:
    return str([sorted(value) if isinstance(value, list) else value for value in row.values()])


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict:
    return play(spark, tmp_path_factory.mktemp("default") / "store")


Play = Callable[[Mapping[str, str]], None]


@pytest.fixture(params=["few rows", "many rows"])
def same(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    expected: dict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Play:
    if request.param == "many rows":
        set_limits(monkeypatch, session_rows=0)

    def check_same(chosen: Mapping[str, str]) -> None:
        with settings(spark, chosen):
            rows = play(spark, tmp_path / "store")
        for key, value in expected.items():
            assert rows[key] == value, key

    return check_same


@pytest.mark.long
def test_unusual_settings_together_give_the_rows_of_the_default(same: Play) -> None:
    same({key: value for name in TOGETHER for key, value in SETTINGS[name].items()})


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_an_unusual_setting_gives_the_rows_of_the_default(same: Play, name: str) -> None:
    same(SETTINGS[name])
