"""Read lists of ids that are too long for a command line.

A list is a table, or a text with one id per line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import BinaryIO

import pyarrow as pa

from claimlib.commands.input_tables import place_of, read_input
from claimlib.engine.relation import Relation, Rows
from claimlib.errors import IdError, InputError
from claimlib.places import shown_path
from claimlib.plans.column_readers import id_bits_sql
from claimlib.plans.keys import ID_ORDER, id_text_sql
from claimlib.semantics.ids import StreamId, parse_id
from claimlib.store.tables import Store
from claimlib.terminal import number_of

# With this limit a row has a few megabytes at most.
_IDS_PER_REQUEST = 100_000
# The lines of a file are read into the memory of this process.
_MOST_LINES = 2_000_000
_MOST_CHARACTERS_SHOWN = 100
_STANDARD_INPUT = "-"
# The first line of the output of `claimlib runs … --columns id --output csv`.
_CSV_HEADER = b"id"


@dataclass(frozen=True, slots=True)
class IdList:
    """Hold a list of ids that a user gave.

    Attributes:
        place: the location, as the user wrote it.
        ids: the ids of a text.  None if the list is a table.
    """

    place: str
    ids: tuple[str, ...] | None

    def requests(self, store: Store) -> Relation:
        """Return the ids as requests, one row per request.

        A list without ids is one request.  The columns are `request`, a number from 1, and `ids`,
        about 100,000 per row.

        Args:
            store: the store whose engine computes the rows.

        Raises:
            InputError: the table does not exist or cannot be read, lacks the columns, or has a row
                without a valid id.
        """
        if self.ids is not None:
            starts = range(0, max(1, len(self.ids)), _IDS_PER_REQUEST)
            lists = [self.ids[start : start + _IDS_PER_REQUEST] for start in starts]
            numbers = pa.array(range(1, len(lists) + 1), pa.int64())
            columns = {"request": numbers, "ids": pa.array(lists, pa.list_(pa.string()))}
            return Relation(store.engine, Rows(pa.table(columns)))
        # If Spark reads the table, it builds the lists, which may exceed this process's memory.
        return _requests_of_table(read_input(store, place_of(self.place)), self.place)


def read_ids(place: str) -> IdList:
    """Read a list of ids without Spark.  The rows of a table are not read yet.

    Args:
        place: one of these:
            - A text file or a pipe of this machine, or `-` for standard input.  It has one id
              (`ms-seq`, or `ms`) per line, in the order of the requests, and at most two million
              lines.  Its first line may be `id`, the header of a CSV.
            - A table (see `place_of`) with a text column `id`, or with the columns id_ms and id_seq
              of a store.  It is read in the order of ids.

    Raises:
        InputError: the file cannot be read, is too long, or has a line without a valid id.
    """
    ids = _ids_of_text(place)
    return IdList(place, None if ids is None else tuple(ids))


def _ids_of_text(place: str) -> list[str] | None:
    """Return the ids of a text, or None if the place is a table, or no such file exists."""
    try:
        opened = _opened_text(place)
        if opened is None:
            return None
        with opened as lines:
            return list(map(str, _parsed(lines, shown_place(place))))
    except OSError as error:
        raise InputError(
            f"the file of ids {shown_place(place)} cannot be read ({error.strerror}): give the path"
            " of a file that this user may read, not the ids themselves",
            file=place,
        ) from error


def _opened_text(place: str) -> BinaryIO | None:
    """Open standard input, a text file or a pipe.

    Return None if the place is a table, or if no such file exists.
    """
    if place == _STANDARD_INPUT:
        return open(0, "rb", closefd=False)
    path = Path(place)
    return path.open("rb") if _is_text(path) else None


def _is_text(path: Path) -> bool:
    try:
        return not S_ISDIR(path.stat().st_mode) and path.suffix != ".parquet"
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: null character
        return False


def shown_place(place: str) -> str:
    """Return the place of a list as messages show it."""
    if place == _STANDARD_INPUT:
        return "standard input"
    if len(place) > _MOST_CHARACTERS_SHOWN:  # it may be the ids themselves
        return f"{place[:_MOST_CHARACTERS_SHOWN]}…"
    return str(shown_path(Path(place)))


def _parsed(lines: Iterable[bytes], name: str) -> Iterator[StreamId]:
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if number > _MOST_LINES:
            raise InputError(
                f"{name} has more than {_MOST_LINES:,} lines: give it as a table", file=name
            )
        if text and (number, text) != (1, _CSV_HEADER):
            try:
                yield parse_id(text)
            except IdError as error:
                hint = "; of a CSV, give only the column id (--columns id)" if b"," in text else ""
                raise InputError(
                    f"{name}, line {number}: {error.message}{hint}", file=name, line=number
                ) from error


def _requests_of_table(table: Relation, name: str) -> Relation:
    ids = _id_columns(table, name)
    is_bad = "id_ms IS NULL OR id_seq IS NULL"
    (summary,) = ids.select(
        "count(*) AS number",
        f"count_if({is_bad}) AS bad",
        f"min(CASE WHEN {is_bad} THEN coalesce(shown, 'null') END) AS example",
    ).collect()
    if summary["bad"]:
        raise InputError(
            f"{name}: {number_of(summary['bad'], 'row has', 'rows have')} no valid id, for example"
            f" {summary['example']}; nothing was done",
            table=name,
        )
    if not summary["number"]:
        return ids.sql("SELECT 1L AS request, CAST(array() AS ARRAY<STRING>) AS ids")
    request_count = -(-summary["number"] // _IDS_PER_REQUEST)  # rounded up
    hashed = "xxhash64(CAST(id_ms AS BIGINT), CAST(id_seq AS BIGINT))"
    sortable = f"struct({ID_ORDER[0]} AS ms, {ID_ORDER[1]} AS seq, {id_text_sql()} AS id)"
    return ids.sql(
        f"""
        SELECT pmod({hashed}, {request_count:d}L) + 1 AS request,
            transform(sort_array(collect_list({sortable})), entry -> entry.id) AS ids
        FROM {{this}} AS this GROUP BY 1
        """
    )


def _id_columns(table: Relation, name: str) -> Relation:
    """Return id_ms and id_seq as in the store's tables, and `shown`, the id for messages."""
    types = table.types
    if types.get("id") == "string":
        ms, seq = id_bits_sql("id")
        return table.select(f"{ms} AS id_ms", f"{seq} AS id_seq", "id AS shown")
    if types.get("id_ms") == types.get("id_seq") == "bigint":
        return table.select("id_ms", "id_seq", "'null' AS shown")
    raise InputError(
        f"{name} has no column id (STRING, ms-seq), and no id_ms and id_seq (BIGINT): it has"
        f" {', '.join(f'{column} {type_}' for column, type_ in types.items())}",
        table=name,
    )
