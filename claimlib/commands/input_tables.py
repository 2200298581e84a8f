"""Read the tables that a user gives, as they are now.

A table is given by its name in a catalog, or as a folder or file of Delta or Parquet.  Tables with
faulty rows are refused.  The message shows the first faulty rows.
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
from claimlib.plans import input_tables_plan as input_tables
from claimlib.plans.check_plan import repeated_keys
from claimlib.plans.differences import Digest, digest
from claimlib.plans.input_tables_plan import TableMap
from claimlib.schema import TABLES, quote_text
from claimlib.store.opening import in_session
from claimlib.store.tables import Store, reading_order
from claimlib.store.threads import concurrently
from claimlib.store.writer import completed_rows
from claimlib.terminal import number_of
from claimlib.times import suspected_unit

Tables = Mapping[str, Relation]
_MOST_EXAMPLES = 3


def place_of(text: str, what: str = "a table's location") -> str:
    """Return the place of an input table in the form that is stored with a run.

    - A name in a catalog (`catalog.schema.table`, or its last parts) and a URL stay as they are.
    - Any other text is a path, and becomes absolute.  A folder in the working directory must be
      given as `./name`, because `name` is a name in the catalog.

    Args:
        text: the place as the user gave it.
        what: names the place in the message about an empty text.

    Raises:
        RequestError: the text is empty, which would mean the working directory.  Or it contains a
            secret, or it is the address of a server without tables.
    """
    if not text.strip():
        raise RequestError.of_empty(what, "give a table")
    check_no_secret(text, "a table's location")
    check_storage(text, "a table's location")
    return str(Path(text).absolute()) if is_path(text) else text


def opened_to_read(store: Store, places: Iterable[str]) -> Store:
    """Return the store, opened with an engine that can read the given tables.

    The engine becomes Spark if only Spark can read one of these tables.

    Args:
        places: see `place_of`.
    """
    if store.is_embedded and any(why_spark(place) is not None for place in places):
        return in_session(store)
    return store


def read_input(store: Store, place: str) -> Relation:
    """Return the rows of a given table, for statements of a store.

    A Delta table is fixed at its current version.  A Parquet table is fixed at its current files.
    If only Spark can read the table and the store is open without Spark, the rows are fetched into
    memory.  Any other table of Spark is read each time that the relation is computed.

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
        tables: by name, with the columns of a store (`plans.input_tables_plan.conformed`).
        digests: by name, the digests of `pending` and `entries` before they were checked.  Only
            tables that cannot be fixed at a version have one (views, for example).  The staged rows
            must have the same digests.
        payload_columns: columns of the table of entries that may hold payloads, but are not read.
    """

    tables: Tables
    digests: Mapping[str, Digest]
    payload_columns: tuple[str, ...]


def read_checked_tables(
    store: Store, places: Mapping[str, str], maps: Mapping[str, TableMap], *, allow_empty: bool
) -> Sound:
    """Return the given tables if all of their rows are sound.

    This takes five queries at most, and one more for each table that cannot be fixed.

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
        inputs |= {table: Relation(store.engine, input_.node) for table, input_ in opened.items()}
        # Tables that are not fixed are read before the next stage is opened.
        for table in (table for table, input_ in opened.items() if not input_.is_fixed):
            if table in _LARGE_TABLES:
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


_LARGE_TABLES = ("pending", "entries")


def _digest(store: Store, table: str, rows: Relation) -> Digest:
    keyed = completed_rows(TABLES[table], rows, store.buckets)
    (row,) = digest(table, keyed).collect()
    return Digest(**row["digest"])


def refuse_changed(sound: Sound, places: Mapping[str, str], written: Mapping[str, Digest]) -> None:
    """Raise InputError if the staged rows differ from the rows that were checked."""
    changed = [table for table, before in sound.digests.items() if written[table] != before]
    if changed:
        names = " and ".join(_label(table, places) for table in changed)
        raise InputError(
            f"{names} changed while the import read it; nothing was imported. Write it"
            " to a Delta table and import that (needed for a view that depends on the clock), or"
            " import again while no process writes to it",
            table=changed[0],
        )


def _refuse_faults(tables: Tables, places: Mapping[str, str], *, allow_empty: bool) -> None:
    summaries = input_tables.faults(tables).collect()
    bad = [row for row in summaries if row["fault"] is not None]
    if bad:
        texts = [
            f"{_label(row['table'], places)}: column {row['fault_column']} {row['fault']} in"
            f" {_row_count(row['rows'])}: {_examples(tables[row['table']], row)}"
            for row in sorted(bad, key=partial(_fault_order, list(places)))
        ]
        raise InputError(
            "; ".join(texts) + "; nothing was imported",
            table=bad[0]["table"],
            rows=sum(row["rows"] for row in bad),
        )
    _refuse_units(summaries, places)
    filled = {row["table"] for row in summaries}
    empty = [table for table in ("entries", "pending") if table not in filled]
    if empty and not allow_empty:
        raise InputError(
            f"{' and '.join(_label(table, places) for table in empty)}: no rows; the import would"
            " remove all rows from the store. If that is intended, add --allow-empty",
            table=empty[0],
        )


def _fault_order(places: Sequence[str], fault: Record) -> tuple[int, str, str]:
    return places.index(fault["table"]), fault["fault_column"], fault["fault"]


def _refuse_units(summaries: Sequence[Record], places: Mapping[str, str]) -> None:
    """Raise InputError if all times of a column look like seconds, microseconds or nanoseconds.

    By such times, either every entry or no entry would be idle for long.  If only some times of a
    column look so, they are allowed, because a server may have them.
    """
    ranges = [
        (row["table"], *times.values())
        for row in summaries
        for times in row["times"]
        if times["low"] is not None
    ]
    for table, column, low, high in ranges:
        unit = suspected_unit(low, high)
        if unit is not None:
            raise InputError(
                f"{_label(table, places)}: column {column} (or what the map assigns to it): its"
                f" times must be milliseconds since 1970, but all of them look like {unit}, for"
                f" example {high}: convert them; nothing was imported",
                table=table,
            )


def _examples(table: Relation, fault: Record) -> str:
    """Return the keys of the first rows with a fault, as the user gave them."""
    conditions = (f"{name} = {quote_text(fault[name])}" for name in ("fault_column", "fault"))
    keys = table.where(" AND ".join(conditions)).select("shown").order_by("shown")
    rows = keys.limit(_MOST_EXAMPLES).collect()
    more = " …" if fault["rows"] > len(rows) else ""
    return ", ".join(row["shown"] for row in rows) + more


def _refuse_repeated(tables: Tables, places: Mapping[str, str]) -> None:
    repeated = repeated_keys(tables).collect()
    if repeated:
        texts = [
            f"{_label(row['table'], places)}: {number_of(row['count'], 'key has', 'keys have')}"
            f" more than one row, for example {row['example']}"
            for row in repeated
        ]
        raise DuplicateRowsError(
            "; ".join(texts) + "; each key must have one row; nothing was imported",
            table=repeated[0]["table"],
        )


def _refuse_unknown_groups(tables: Tables, places: Mapping[str, str]) -> None:
    """Raise InputError if tables have rows of groups that are missing from `groups`.

    Without a table `groups`, the groups are those of `pending`.
    """
    groups = tables.get("groups", tables["pending"])
    groups_table = "groups" if "groups" in tables else "pending"
    parts = [
        input_tables.rows_of_unknown_groups(name, tables[name], groups)
        for name in ("pending", "consumers")
        if name in tables and name != groups_table
    ]
    if not parts:
        return
    unknown = union_all(parts).sql(
        "SELECT `table`, sum(`rows`) AS `rows`, min(example) AS example FROM {this} AS this"
        " GROUP BY `table`"
    )
    texts = [
        f"{_label(row['table'], places)}: {_row_count(row['rows'])} of groups that are missing from"
        f" {_label(groups_table, places)}, for example {row['example']}"
        for row in unknown.collect()
    ]
    if texts:
        raise InputError(f"{'; '.join(texts)}; nothing was imported", table=groups_table)


def _label(table: str, places: Mapping[str, str]) -> str:
    return f"{table} ({places[table]})"


def _row_count(count: int) -> str:
    return number_of(count, "row")
