"""A store works wherever a file system or a catalog lets it be, whatever its name is made of."""

from __future__ import annotations

import re
import shlex
import shutil
import string
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from claimlib.commands import stores
from claimlib.commands.runs import abandon, find_run
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import pending_overview, read_store
from claimlib.errors import RequestError, StoreNotFoundError
from claimlib.runs import claims
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import Opener, init
from tests.delta.pels import CLAIMED, DELETED, NOW_MS, REQUEST, keyspace
from tests.delta.reading import count
from tests.delta.snapshots import ALL, owners, source, stream
from tests.limits import set_limits

# Every printable character of ASCII that a name of a folder may have, and some beyond it.
PUNCTUATION = string.punctuation.replace("/", "")
NAMES = (
    f"a{PUNCTUATION[:10]}",
    f"{{b}} {{}}{{{{c}} {PUNCTUATION[10:21]}",
    f"{PUNCTUATION[21:]}d {string.digits}{string.ascii_letters}",
    "%20%7B50% é €\u00a0\U0001f600 .e.",
)
# Spark reads the paths with the other characters, because the embedded engine does not.
PLAIN_NAMES = tuple(re.sub(r"[%\\{}\[\]*?^|]", "", name) for name in NAMES)


def use(store: Store) -> Store:
    """Snapshot a server into a store, sweep the store and read it."""
    for _ in range(2):
        snapshot(store, ALL, lambda _: source(stream(b"s", {1: b"x", 2: b"x"}, {1}, NOW_MS)))
    reply = xautoclaim(store, SweepRequest(REQUEST), run_id="r")
    assert (reply.counts["claimed"], reply.counts["deleted"]) == (1, 1)
    assert [row["payload"] for row in reply.claimed.collect()] == ["present"]
    assert owners(store) == {(b"s", 1): b"alice"}
    assert pending_overview(read_store(store)).count() == 1
    assert pending_overview(read_store(store, "2")).first()["pending"] == 2
    return store


def test_a_command_that_an_error_names_can_be_pasted_wherever_the_store_is(
    open_store: Opener, empty_store: Path, tmp_path: Path
) -> None:
    store = open_store(shutil.copytree(empty_store, tmp_path / "it's a; store"))
    lists = f"claimlib runs {shlex.quote(store.where)} lists the runs"
    for ask in (
        lambda: find_run(store, "7"),
        lambda: abandon(store, "7"),
        lambda: read_store(store, "2020-01-01T00:00:00Z"),
    ):
        with pytest.raises(RequestError, match=re.escape(lists)):
            ask()
    missing = str(tmp_path / "it's none")
    creates = re.escape(f"claimlib init {shlex.quote(missing)}")
    with pytest.raises(StoreNotFoundError, match=creates):
        stores.open_store(missing)
    row = SimpleNamespace(key="snapshot:a b")
    command = shlex.split(claims.abandon_command(store, row))
    assert command == ["claimlib", "abandon", store.where, "snapshot:a b"]


@pytest.mark.parametrize(
    ("names", "engine"),
    [
        pytest.param(NAMES[::3], "spark", marks=pytest.mark.long),
        pytest.param(NAMES[1:3], "spark", marks=pytest.mark.long),
        (PLAIN_NAMES, "embedded"),
    ],
    ids=["with a percent sign", "without", "embedded"],
)
def test_a_store_in_a_folder_of_any_printable_characters_works(
    request: pytest.FixtureRequest, tmp_path: Path, names: tuple[str, ...], engine: str
) -> None:
    """Use two paths of Spark, with and without a percent sign, and one of the embedded engine.

    Only Spark reads a path with a percent sign, so the other characters need a second path.
    """
    assert set("".join(NAMES)) >= set(PUNCTUATION + string.digits + string.ascii_letters + " ")
    start = request.getfixturevalue("spark_if_needed")
    store = use(init(start, str(tmp_path.joinpath(*names, "store")), engine))
    place = tmp_path
    for name in names:
        (place,) = place.iterdir()  # nothing was written beside it
        assert place.name == name
    assert store.relation("runs").count() == 3  # delta-rs reads other paths for some names


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "many_rows", "operation"),
    [("select", 0, "WRITE"), pytest.param("2024_01", 1000, "MERGE", marks=pytest.mark.long)],
)
def test_a_store_in_a_catalog_s_schema_works_also_where_its_name_must_be_quoted(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    many_rows: int,
    operation: str,
) -> None:
    """Also where buckets are rewritten: a catalog's table stays what it is."""
    set_limits(monkeypatch, merged_rows=many_rows)
    if operation == "MERGE":  # as where the table has many rows
        set_limits(monkeypatch, fetched_rows=0)
    spark.sql(f"CREATE SCHEMA spark_catalog.`{name}` LOCATION '{tmp_path}/fleet'")
    try:
        store = use(Store.init(spark, f"spark_catalog.{name}"))
        assert store.logs.history("pending")[0]["operation"] == operation
        Store.open(spark, f"spark_catalog.{name}")
        assert spark.table(f"spark_catalog.`{name}`.pending").count() == 1
        assert count(tmp_path / "fleet", "tombstones") == 1
    finally:
        spark.sql(f"DROP SCHEMA spark_catalog.`{name}` CASCADE")


@pytest.mark.long
def test_own_rows_in_such_a_folder_are_swept(spark: SparkSession, tmp_path: Path) -> None:
    store = Store.init(spark, str(tmp_path / "{own} `rows`"))
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    reply = xautoclaim(store, SweepRequest(REQUEST))
    assert (reply.counts["claimed"], reply.counts["deleted"]) == (CLAIMED, DELETED)
