"""Given tables: a name of the catalog each, or a folder or file of Delta or Parquet, as it is now;
refused, with the first rows that are wrong, unless all of them are sound."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from claimlib.commands.parquet_folder import read_parquet
from claimlib.engine.spark import frame_of, relation_of
from claimlib.errors import DuplicateRowsError, InputError, RequestError
from claimlib.places import check_no_secret, check_storage
from claimlib.plans import input_tables
from claimlib.plans.checks import repeated_keys
from claimlib.plans.differences import Digest, digest
from claimlib.plans.input_tables import TableMap
from claimlib.schema import TABLES, generated, quote_identifier
from claimlib.session import check_file_names
from claimlib.store.tables import Store, reading_order
from claimlib.store.threads import concurrently
from claimlib.terminal import number_of
from claimlib.times import unit_of

Tables = Mapping[str, DataFrame]
_SHOWN = 3
# What Delta says of a folder that has no log of it.
_NO_DELTA = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_ONLY_OPERATION",
)
_NAME = re.compile(r"[\w-]+(\.[\w-]+){0,2}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://?")


def place_of(text: str, what: str = "a table's location") -> str:
    """An input table as it is kept with a run: a name as it is, a relative path made absolute.

    `catalog.schema.table` (or less of it) is a name, anything else a path: a folder of this very
    place is written `./name`.

    Args:
        what: whose place it is, for messages.

    Raises:
        RequestError: it is empty, which would be the working directory; or a secret stands in it.
    """
    if not text.strip():
        raise RequestError.of_empty(what, "give a table")
    check_no_secret(text, "a table's location")
    check_storage(text, "a table's location")
    if _NAME.fullmatch(text) or _URL.match(text):
        return text
    return str(Path(text).absolute())


@dataclass(frozen=True, slots=True)
class _Input:
    """A table that was given.

    Attributes:
        is_fixed: whether its rows are the same whenever the frame is run.
    """

    rows: DataFrame
    is_fixed: bool


def read_input(spark: SparkSession, place: str) -> DataFrame:
    """A table that was given (see `place_of`).  Of a Delta table it is the current version, fixed
    from then on; of Parquet the files that are there now; of a view or another kind of table, which
    cannot be held, what Spark finds whenever the frame is run.

    Raises:
        InputError: there is no table, or Spark cannot read it, or would not read all of it.
    """
    return _read(spark, place).rows


def _read(spark: SparkSession, place: str) -> _Input:
    is_name = _NAME.fullmatch(place) is not None
    check_file_names(spark, place)
    name = ".".join(map(quote_identifier, place.split("."))) if is_name else None
    identifier = name or f"delta.{quote_identifier(place)}"
    try:
        version = _delta_version(spark, identifier, is_name=is_name)
        if version is not None:
            frame = spark.sql(f"SELECT * FROM {identifier} VERSION AS OF {version:d}")
        elif name is not None:
            frame = spark.table(name)
        else:
            frame = read_parquet(spark, place)
        # Over Spark Connect a table is first looked for when its columns are.
        _ = frame.schema
    except PySparkException as error:
        hint = f" (taken as a catalog name; write a path as ./{place})" if is_name else ""
        condition = error.getCondition()
        why = _REASONS.get(condition or "") or condition or str(error).partition("\n")[0]
        raise InputError(f"{place}{hint} cannot be read as a table: {why}", table=place) from error
    return _Input(frame, is_fixed=version is not None or name is None)


_REASONS = {
    "PARQUET_TYPE_ILLEGAL": (
        "a column has a type that Spark does not read. If these are timestamps in nanoseconds, as"
        " pandas writes them, write them in microseconds: to_parquet(..., coerce_timestamps='us')"
    ),
    "PATH_NOT_FOUND": "nothing exists at this location",
    "TABLE_OR_VIEW_NOT_FOUND": "the catalog has no such table",
    "REQUIRES_SINGLE_PART_NAMESPACE": "Spark has no such catalog",
    "UNABLE_TO_INFER_SCHEMA": "it is neither a Delta table nor a folder with Parquet files",
}
"""What Spark's conditions mean here."""


def _delta_version(spark: SparkSession, identifier: str, *, is_name: bool) -> int | None:
    """The table's version; null: it is no Delta table."""
    try:
        newest = spark.sql(f"DESCRIBE HISTORY {identifier} LIMIT 1").first()
    except PySparkException as error:
        # A folder of Delta that cannot be read now must not be taken for Parquet: its files hold
        # rows that were deleted.  What a name is, the catalog knows.
        if not is_name and error.getCondition() not in _NO_DELTA:
            raise
        return None
    return int(newest["version"]) if newest is not None else None


@dataclass(frozen=True, slots=True)
class Sound:
    """Given tables that were found sound.

    Attributes:
        tables: by name, with our columns (`plans.input_tables.conformed`).
        digests: of `pending` and `entries`, where they are views, or other tables that cannot be
            held: what they had before they were checked.  What is written down must be the same.
        payload_columns: columns of the table of entries that may hold payloads, but are not read.
    """

    tables: Tables
    digests: Mapping[str, Digest]
    payload_columns: tuple[str, ...]


def read_sound(
    store: Store, places: Mapping[str, str], maps: Mapping[str, TableMap], *, allow_empty: bool
) -> Sound:
    """Given tables, once all of them are seen to be sound.  Five queries at most, and one for each
    table that cannot be held.

    Raises:
        InputError, ConfigError, DuplicateRowsError: see `imports.import_tables`.
    """
    inputs: dict[str, _Input] = {}
    held: dict[str, DataFrame] = {}
    digests: dict[str, Digest] = {}

    def conformed(table: str) -> DataFrame:
        return input_tables.conformed(table, inputs[table].rows, maps.get(table, TableMap()))

    for stage in reading_order(places):
        calls = (partial(_read, store.spark, places[table]) for table in stage)
        inputs |= zip(stage, concurrently(calls), strict=True)
        # What is not fixed is looked at before the next stage is.
        for table in (table for table in stage if not inputs[table].is_fixed):
            if table in _GROWING:
                digests[table] = _digest(store, table, conformed(table))
            else:  # small: what is checked is what is used
                held[table] = frame_of(relation_of(conformed(table)).fetched())
    tables = {table: held[table] if table in held else conformed(table) for table in places}
    _refuse_faults(tables, places, allow_empty=allow_empty)
    _refuse_repeated(tables, places)
    _refuse_unknown_groups(tables, places)
    payload_columns = input_tables.payload_columns(
        inputs["entries"].rows, maps.get("entries", TableMap())
    )
    return Sound(tables, digests, payload_columns)


_GROWING = ("pending", "entries")


def _digest(store: Store, table: str, rows: DataFrame) -> Digest:
    keyed = generated(rows, TABLES[table], store.buckets)
    (row,) = digest(table, relation_of(keyed)).collect()
    return Digest(**row["digest"])


def refuse_changed(sound: Sound, places: Mapping[str, str], written: Mapping[str, Digest]) -> None:
    """Refuse what was written down where it is not what was checked.

    Raises:
        InputError: naming the tables.
    """
    changed = [table for table, before in sound.digests.items() if written[table] != before]
    if changed:
        said = " and ".join(_called(table, places) for table in changed)
        raise InputError(
            f"{said} changed while the import read it; nothing was imported. Write it"
            " to a Delta table and import that (needed for a view that depends on the clock), or"
            " import again while nobody writes to it",
            table=changed[0],
        )


def _refuse_faults(tables: Tables, places: Mapping[str, str], *, allow_empty: bool) -> None:
    summaries = input_tables.faults(tables).collect()
    bad = [row for row in summaries if row["fault"] is not None]
    if bad:
        said = [
            f"{_called(row['table'], places)}: column {row['fault_column']} {row['fault']} in"
            f" {_rows(row['rows'])}: {_examples(tables[row['table']], row)}"
            for row in sorted(bad, key=lambda row: (list(places).index(row["table"]), *row[1:3]))
        ]
        raise InputError(
            "; ".join(said) + "; nothing was imported",
            table=bad[0]["table"],
            rows=sum(row["rows"] for row in bad),
        )
    _refuse_units(summaries, places)
    filled = {row["table"] for row in summaries}
    empty = [table for table in ("entries", "pending") if table not in filled]
    if empty and not allow_empty:
        raise InputError(
            f"{' and '.join(_called(table, places) for table in empty)}: no rows; the import would"
            " remove all rows from the store. If that is intended, add --allow-empty",
            table=empty[0],
        )


def _refuse_units(summaries: Sequence[Row], places: Mapping[str, str]) -> None:
    """Refuse a column of times that all look like seconds, or like microseconds: by such times each
    entry, or none, has been idle for long.  A single one of them a server may have."""
    known = [
        (row["table"], *of) for row in summaries for of in row["times"] if of["low"] is not None
    ]
    for table, column, low, high in known:
        unit = unit_of(low, high)
        if unit is not None:
            raise InputError(
                f"{_called(table, places)}: column {column} (or what the map assigns to it): its"
                f" times must be milliseconds since 1970, but all of them look like {unit}, for"
                f" example {high}: convert them; nothing was imported",
                table=table,
            )


def _examples(table: DataFrame, fault: Row) -> str:
    """The first rows with a fault, by their key as it was given."""
    same = F.col("fault_column").eqNullSafe(fault["fault_column"]) & F.col("fault").eqNullSafe(
        fault["fault"]
    )
    rows = table.where(same).select("shown").orderBy("shown").limit(_SHOWN).collect()
    more = " …" if fault["rows"] > len(rows) else ""
    return ", ".join(row["shown"] for row in rows) + more


def _refuse_repeated(tables: Tables, places: Mapping[str, str]) -> None:
    relations = {name: relation_of(frame) for name, frame in tables.items()}
    repeated = repeated_keys(relations).collect()
    if repeated:
        said = [
            f"{_called(row['table'], places)}: {number_of(row['count'], 'key has', 'keys have')}"
            f" more than one row, for example {row['example']}"
            for row in repeated
        ]
        raise DuplicateRowsError(
            "; ".join(said) + "; each key must have one row; nothing was imported",
            table=repeated[0]["table"],
        )


def _refuse_unknown_groups(tables: Tables, places: Mapping[str, str]) -> None:
    """Rows of groups that `groups` lacks, or without it: consumers of groups that pending lacks."""
    groups = tables.get("groups", tables["pending"])
    known = "groups" if "groups" in tables else "pending"
    parts = [
        input_tables.rows_of_unknown_groups(name, tables[name], groups)
        for name in ("pending", "consumers")
        if name in tables and name != known
    ]
    if not parts:
        return
    unknown = (
        reduce(DataFrame.union, parts)
        .groupBy("table")
        .agg(F.sum("rows").alias("rows"), F.min("example").alias("example"))
    )
    said = [
        f"{_called(row['table'], places)}: {_rows(row['rows'])} of groups that are missing from"
        f" {_called(known, places)}, for example {row['example']}"
        for row in unknown.collect()
    ]
    if said:
        raise InputError(
            f"{'; '.join(said)}; nothing was imported",
            table=known,
        )


def _called(table: str, places: Mapping[str, str]) -> str:
    return f"{table} ({places[table]})"


def _rows(count: int) -> str:
    return number_of(count, "row")
