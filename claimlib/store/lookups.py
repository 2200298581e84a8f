"""Read a few rows of a store's tables as they are now.

This needs no query if this process can read the tables' files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from claimlib.engine import limits
from claimlib.engine.relation import DESCENDING, Relation
from claimlib.engine.spark import SparkEngine, frame_of
from claimlib.errors import VersionExpiredError
from claimlib.store.delta_errors import says_expired
from claimlib.store.local import Condition
from claimlib.store.replaced_tables import Seen

if TYPE_CHECKING:
    from claimlib.store.tables import Store


def find(
    store: Store, table: str, *conditions: Condition, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the few rows of a table that now meet all conditions.

    Args:
        columns: the columns that are read, including those of the conditions.  None means all.
    """
    local, most = store.logs.local(table), limits.LIMITS.session_rows
    rows = None if local is None else local.rows(most, *conditions, columns=columns)
    if rows is None:
        where = " AND ".join(condition.spark_sql() for condition in conditions) or "true"
        return store.relation(table, columns=columns).where(where).collect()
    records: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
    return records


def numbers(store: Store, table: str, column: str) -> pa.ChunkedArray:
    """Return the numbers in a column of a table as it is now."""
    local = store.logs.local(table)
    values = None if local is None else local.numbers(column)
    return store.relation(table, columns=[column]).arrow()[column] if values is None else values


def newest_run(store: Store) -> tuple[Seen | None, bool]:
    """Return the newest finished run, and True if the row of an earlier run is missing.

    The run is None if no run is finished.  Runs are numbered from 1 without gaps, so rows are
    missing if there are fewer rows than the highest number.  The newest row is found by its number,
    because the table `runs` has a file for each run.
    """
    values = numbers(store, "runs", "run_seq")
    highest = pc.max(values).as_py()
    if highest is None:
        return None, False
    # Only these columns are read, because `runs` lacks others in a store that must be upgraded.
    wanted = ("run_seq", "output_versions")
    records = find(store, "runs", Condition("run_seq", highest), columns=wanted)
    # Another writer may have deleted the row since.
    newest = Seen(highest, records[0]["output_versions"] if records else {})
    return newest, pc.count_distinct(values).as_py() < highest


def last(store: Store, table: str, column: str, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows with the highest numbers in a column, and the number of rows of the table.

    The row with the highest number is the first.
    """
    local = store.logs.local(table)
    newest = None if local is None else local.last(column, limit, limits.LIMITS.session_rows)
    if newest is not None:
        return newest
    rows = store.relation(table)
    return rows.order_by(f"{column}{DESCENDING}").limit(limit).collect(), rows.count()


def readable_at(store: Store, table: str, version: int | None) -> Relation | None:
    """Return a table at a version, or None if the version is unknown or expired.

    In a Spark session, the embedded engine reads small tables.  It can read versions that Spark
    refuses because of their age.  Such a version counts as expired, because Spark executes the
    statements that also read larger tables.
    """
    if version is None:
        return None
    try:
        rows = store.relation(table, version)
        rows.is_empty()  # reads the version now, so an error is raised here
        if isinstance(store.engine, SparkEngine):
            _ = frame_of(rows).schema
    except VersionExpiredError:
        return None
    except PySparkException as error:
        if says_expired(error):
            return None
        raise
    return rows
