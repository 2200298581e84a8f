"""Lists of ids that are too long for a command line: a table, or a file with an id per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from claimlib.commands.input_tables import place_of, read_input
from claimlib.errors import IdError, InputError
from claimlib.local_rows import frame_of
from claimlib.plans.bulk import id_bits
from claimlib.plans.keys import id_text, unsigned
from claimlib.semantics.ids import StreamId, parse_id
from claimlib.terminal import number_of

# So that no row holds more than a few megabytes.
_IDS_PER_REQUEST = 100_000
_COLUMNS = "request BIGINT, ids ARRAY<STRING>"
# The lines of a file pass through the driver.
_MOST_LINES = 2_000_000
_LONGEST_SHOWN = 100


def ids_from(spark: SparkSession, place: str) -> DataFrame:
    """The ids of a list, as requests: one row per request (at least one) with `request` (from 1)
    and `ids`, some 100,000 of them each.

    Args:
        place: a text file or a pipe of this machine, an id (`ms-seq`, or `ms`) per line, two
            million at most, in the order in which they are requested; or a table (see `place_of`)
            with a text column `id`, or with id_ms and id_seq as the store's own tables hold them,
            in the order of ids.

    Raises:
        InputError: there is no such file or table, it cannot be read, it has no such column, a line
            or row of it is no id, or the file is too long.
    """
    ids = _ids_of_file(place)
    if ids is not None:
        starts = range(0, max(1, len(ids)), _IDS_PER_REQUEST)
        rows = [(n, ids[at : at + _IDS_PER_REQUEST]) for n, at in enumerate(starts, start=1)]
        return frame_of(spark, rows, _COLUMNS)
    try:
        table = read_input(spark, place_of(place))
    except InputError as error:
        raise InputError(
            f"{place} is neither a text file nor a table that can be read: {error.message}",
            table=place,
        ) from error
    return _of_table(table, place)


def _ids_of_file(place: str) -> list[str] | None:
    """The ids of a text file, or of a pipe; null: there is none of that name, or it is a table."""
    path = Path(place)
    try:
        is_text = not S_ISDIR(path.stat().st_mode) and path.suffix != ".parquet"
        return list(map(str, _lines(path))) if is_text else None
    except (FileNotFoundError, NotADirectoryError, ValueError):  # that: a null character in a name
        return None
    except OSError as error:
        name = place if len(place) <= _LONGEST_SHOWN else f"{place[:_LONGEST_SHOWN]}…"
        raise InputError(
            f"the file of ids {name} cannot be read ({error.strerror}): give the path of a file"
            " that this user may read, not the ids themselves",
            file=place,
        ) from error


def _lines(path: Path) -> Iterator[StreamId]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number > _MOST_LINES:
                raise InputError(
                    f"{path} has more than {_MOST_LINES:,} lines: give it as a table",
                    file=str(path),
                )
            if line.strip():
                try:
                    yield parse_id(line.strip())
                except IdError as error:
                    raise InputError(
                        f"{path}, line {number}: {error.message}", file=str(path), line=number
                    ) from error


def _of_table(table: DataFrame, name: str) -> DataFrame:
    ids = _bits_of(table, name)
    is_bad = F.col("id_ms").isNull() | F.col("id_seq").isNull()
    (summary,) = ids.agg(
        F.count("*").alias("rows"),
        F.count_if(is_bad).alias("bad"),
        F.min(F.when(is_bad, F.coalesce("shown", F.lit("null")))).alias("example"),
    ).collect()
    if summary["bad"]:
        raise InputError(
            f"{name}: {number_of(summary['bad'], 'row has', 'rows have')} no valid id, for example"
            f" {summary['example']}; nothing was done",
            table=name,
        )
    if not summary["rows"]:
        return frame_of(table.sparkSession, [(1, [])], _COLUMNS)
    requests = -(-summary["rows"] // _IDS_PER_REQUEST)
    chunk = F.pmod(F.xxhash64("id_ms", "id_seq"), F.lit(requests)) + 1
    order = F.struct(unsigned("id_ms").alias("ms"), unsigned("id_seq").alias("seq"))
    both = F.struct(order.alias("order"), id_text().alias("id"))
    in_order = F.sort_array(F.collect_list(both))
    return ids.groupBy(chunk.cast("BIGINT").alias("request")).agg(in_order["id"].alias("ids"))


def _bits_of(table: DataFrame, name: str) -> DataFrame:
    """id_ms and id_seq as the store's tables hold them, and the row's id as it was given."""
    types = dict(table.dtypes)
    if types.get("id") == "string":
        bits = id_bits(F.col("id"))
        return table.select(
            bits["ms"].alias("id_ms"), bits["seq"].alias("id_seq"), F.col("id").alias("shown")
        )
    if types.get("id_ms") == types.get("id_seq") == "bigint":
        return table.select("id_ms", "id_seq", F.lit("null").alias("shown"))
    raise InputError(
        f"{name} has no column id (STRING, ms-seq), and no id_ms and id_seq (BIGINT): it has"
        f" {', '.join(f'{column} {type_}' for column, type_ in table.dtypes)}",
        table=name,
    )
