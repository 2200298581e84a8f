"""Read the given tables as they are now.

They are names of a catalog, or folders or files of Delta or Parquet.  Tables with faulty rows are
refused.  The message shows the first of these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from claimlib.engine.embedded_inputs import why_spark
from claimlib.engine.inputs import Input, is_path
from claimlib.engine.relation import Record, Relation, Rows, union_all
from claimlib.engine.spark import SparkEngine
from claimlib.errors import DuplicateRowsError, InputError, RequestError
from claimlib.places import check_no_secret, check_storage
from claimlib.plans import input_tables
from claimlib.plans.checks import repeated_keys
from claimlib.plans.differences import Digest, digest
from claimlib.plans.input_tables import TableMap
from claimlib.schema import TABLES, quote_text
from claimlib.store.opening import in_session
from claimlib.store.tables import Store, reading_order
from claimlib.store.threads import concurrently
from claimlib.store.writer import completed_rows
from claimlib.terminal import number_of
from claimlib.times import unit_of

Tables = Mapping[str, Relation]
_SHOWN = 3


def place_of(text: str, what: str = "a table's location") -> str:
    """Return an input table as it is stored with a run.

    A name stays as it is.  A relative path becomes absolute.  `catalog.schema.table`, or a part of
    it, is a name.  Anything else is a path.  A folder in the working directory is written `./name`.

    Args:
        what: what the place belongs to, for messages.

    Raises:
        RequestError: it is empty, which would be the working directory.  Also if it contains a
            secret.
    """
    if not text.strip():
        raise RequestError.of_empty(what, "give a table")
    check_no_secret(text, "a table's location")
    check_storage(text, "a table's location")
    return str(Path(text).absolute()) if is_path(text) else text


def able_to_read(store: Store, places: Iterable[str]) -> Store:
    """Return the store, opened with an engine that can read given tables.

    The engine is Spark if only Spark can read one of them.

    Args:
        places: see `place_of`.
    """
    if store.is_embedded and any(why_spark(place) is not None for place in places):
        return in_session(store)
    return store


def read_input(store: Store, place: str) -> Relation:
    """Return the rows of a given table, for statements of a store.

    A Delta table is fixed at its current version.  A Parquet table is fixed at its current files.
    If only Spark can read the table and the store is open without Spark, the rows are fetched.
    Other tables of Spark are read each time that the relation is computed.

    Args:
        place: see `place_of`.

    Raises:
        InputError: the table does not exist, cannot be read, or would not be read completely.
    """
    if store.is_embedded and why_spark(place) is not None:
        engine = SparkEngine(store.spark)
        rows = Relation(engine, engine.open_input(place).node).arrow()
        return Relation(store.engine, Rows(rows))
    return Relation(store.engine, open_input(store, place).node)


def open_input(store: Store, place: str) -> Input:
    """Open a given table with the engine of a store."""
    return store.engine.open_input(place)


@dataclass(frozen=True, slots=True)
class Sound:
    """Hold given tables whose rows are all sound.

    Attributes:
        tables: by name, with the columns of a store (`plans.input_tables.conformed`).
        digests: by name, of `pending` and `entries` before they were checked, if Spark cannot fix
            them (views, for example).  The written rows must have the same digests.
        payload_columns: columns of the table of entries that may hold payloads, but are not read.
    """

    tables: Tables
    digests: Mapping[str, Digest]
    payload_columns: tuple[str, ...]


def read_sound(
    store: Store, places: Mapping[str, str], maps: Mapping[str, TableMap], *, allow_empty: bool
) -> Sound:
    """Return the given tables if all of their rows are sound.

    This takes five queries at most, and one for each table that cannot be fixed.

    Raises:
        InputError, ConfigError, DuplicateRowsError: see `imports.import_tables`.
    """
    inputs: dict[str, Relation] = {}
    fetched: dict[str, Relation] = {}
    digests: dict[str, Digest] = {}

    def conformed(table: str) -> Relation:
        return input_tables.conformed(table, inputs[table], maps.get(table, TableMap()))

    for stage in reading_order(places):
        calls = (partial(open_input, store, places[table]) for table in stage)
        opened = dict(zip(stage, concurrently(calls), strict=True))
        inputs |= {table: Relation(store.engine, of.node) for table, of in opened.items()}
        # Tables that are not fixed are read before the next stage is opened.
        for table in (table for table, of in opened.items() if not of.is_fixed):
            if table in _GROWING:
                digests[table] = _digest(store, table, conformed(table))
            else:  # small, so the rows that are checked are also used
                fetched[table] = conformed(table).fetched()
    tables = {table: fetched.get(table) or conformed(table) for table in places}
    _refuse_faults(tables, places, allow_empty=allow_empty)
    _refuse_repeated(tables, places)
    _refuse_unknown_groups(tables, places)
    payload_columns = input_tables.payload_columns(
        inputs["entries"], maps.get("entries", TableMap())
    )
    return Sound(tables, digests, payload_columns)


_GROWING = ("pending", "entries")


def _digest(store: Store, table: str, rows: Relation) -> Digest:
    keyed = completed_rows(TABLES[table], rows, store.buckets)
    (row,) = digest(table, keyed).collect()
    return Digest(**row["digest"])


def refuse_changed(sound: Sound, places: Mapping[str, str], written: Mapping[str, Digest]) -> None:
    """Raise InputError if the staged rows differ from the rows that were checked.

    Raises:
        InputError: the message names the tables.
    """
    changed = [table for table, before in sound.digests.items() if written[table] != before]
    if changed:
        said = " and ".join(_called(table, places) for table in changed)
        raise InputError(
            f"{said} changed while the import read it; nothing was imported. Write it"
            " to a Delta table and import that (needed for a view that depends on the clock), or"
            " import again while no process writes to it",
            table=changed[0],
        )


def _refuse_faults(tables: Tables, places: Mapping[str, str], *, allow_empty: bool) -> None:
    summaries = input_tables.faults(tables).collect()
    bad = [row for row in summaries if row["fault"] is not None]
    if bad:
        said = [
            f"{_called(row['table'], places)}: column {row['fault_column']} {row['fault']} in"
            f" {_rows(row['rows'])}: {_examples(tables[row['table']], row)}"
            for row in sorted(bad, key=partial(_position, list(places)))
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


def _position(places: Sequence[str], fault: Record) -> tuple[int, str, str]:
    return places.index(fault["table"]), fault["fault_column"], fault["fault"]


def _refuse_units(summaries: Sequence[Record], places: Mapping[str, str]) -> None:
    """Raise InputError if all times of a column look like seconds, or like microseconds.

    With such times each entry, or none, has been idle for a long time.  A single such time is
    allowed, because a server may have it.
    """
    known = [
        (row["table"], *of.values())
        for row in summaries
        for of in row["times"]
        if of["low"] is not None
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


def _examples(table: Relation, fault: Record) -> str:
    """Return the first rows with a fault, by their key as it was given."""
    same = (f"{name} = {quote_text(fault[name])}" for name in ("fault_column", "fault"))
    shown = table.where(" AND ".join(same)).select("shown").order_by("shown")
    rows = shown.limit(_SHOWN).collect()
    more = " …" if fault["rows"] > len(rows) else ""
    return ", ".join(row["shown"] for row in rows) + more


def _refuse_repeated(tables: Tables, places: Mapping[str, str]) -> None:
    repeated = repeated_keys(tables).collect()
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
    """Raise InputError if tables have rows of groups that are missing from `groups`.

    Without a table `groups`, raise it for consumers of groups that are missing from `pending`.
    """
    groups = tables.get("groups", tables["pending"])
    known = "groups" if "groups" in tables else "pending"
    parts = [
        input_tables.rows_of_unknown_groups(name, tables[name], groups)
        for name in ("pending", "consumers")
        if name in tables and name != known
    ]
    if not parts:
        return
    unknown = union_all(parts).sql(
        "SELECT `table`, sum(`rows`) AS `rows`, min(example) AS example FROM {this} AS this"
        " GROUP BY `table`"
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
