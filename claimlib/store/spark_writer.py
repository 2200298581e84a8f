"""Write tables with Spark: appends with a token, MERGE, and rewrites of partitions.

An append with the run's token adds new rows.  So they are added only once, even if a driver resumes
after a later run removed them.  A MERGE changes existing rows, but not those that this or a later
run wrote.  Instead of both, one commit with the token can write all rows of the table again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from claimlib import schema
from claimlib.engine import limits
from claimlib.engine.changes import Changes
from claimlib.engine.relation import Relation
from claimlib.engine.spark import frame_of
from claimlib.errors import ConfigError
from claimlib.schema import TABLES, Table
from claimlib.store.delta_errors import errors_mapped
from claimlib.store.local import Condition, StoredFile, Token
from claimlib.store.lookups import readable_at
from claimlib.store.threads import WRITES
from claimlib.store.writer import Removed, RunCommit, in_buckets, without_pinned

if TYPE_CHECKING:
    from claimlib.store.tables import Store

# The number of tasks per bucket, and the most tasks for which it is set (`arranged`).
_PARTS_PER_BUCKET, _MOST_PARTS = 4, 200


class SparkWriter:
    """Write by Spark, see `Writer`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def append(
        self, table: str, rows: Relation, *, token: Token | None = None, note: str | None = None
    ) -> None:
        """See `Writer`."""
        self._write("append", table, _frame(table, rows), {}, token, note)

    def delete(self, table: str, *conditions: Condition, note: str | None = None) -> None:
        """See `Writer`.  Spark SQL cannot set the user metadata of one statement."""
        del note
        where = " AND ".join(condition.spark_sql() for condition in conditions)
        self.execute(table, f"DELETE FROM {{table}} WHERE {where}")

    def update(self, table: str, values: Mapping[str, str], condition: str) -> None:
        """See `Writer`."""
        changed = ", ".join(f"{name} = {value}" for name, value in values.items())
        self.execute(table, f"UPDATE {{table}} SET {changed} WHERE {condition}")

    def execute(self, table: str, statement: str, **frames: Any) -> Row:
        """Run one MERGE, UPDATE or DELETE on a table.

        Args:
            statement: in it, `{table}` means the table, and `{name}` means the frame `name`.
            frames: the frames by name.

        Returns: the values that Delta reports.  They are `num_affected_rows`, and for a MERGE also
            `num_updated_rows` and `num_deleted_rows`.

        Raises:
            CommitConflictError: another writer has committed meanwhile.  Nothing was changed.
            ConfigError: settings of the session made Delta skip the statement.
        """
        target = self._store.identifier(table)
        if frames:  # then Spark formats the statement, so braces in a path must be doubled
            target = target.replace("{", "{{").replace("}", "}}")
        text = statement.replace("{table}", target)
        with WRITES.by_spark(self._store.identifier(table)), errors_mapped(table):
            reported = self._store.spark.sql(text, **frames).collect()
        if not reported:
            raise ConfigError(
                f"Delta passed over a statement on {table}: in this session"
                " spark.databricks.delta.write.txnAppId and txnVersion are set, which let one"
                " statement through only. Unset both, and start again",
                table=table,
            )
        return reported[0]

    def apply(self, changes: Changes, commit: RunCommit) -> int | None:
        """See `Writer`."""
        if changes.rows is None and changes.new is None:
            return 0
        if TABLES[changes.table].partitioned_by is None:
            return self._apply_to_unpartitioned(changes, commit)
        if changes.new is not None:
            self._append_new(changes, commit)
        if changes.rows is None:
            return 0
        if self._is_rewritten(changes):
            self._rewrite(changes, commit)
            return None
        return self._merge(changes)

    def files(self, table: str) -> list[StoredFile]:
        """See `Writer`.

        Read the log if this process can read it.  Otherwise count the rows of each file with a
        query that reads no column.
        """
        local = self._store.logs.local(table)
        if local is not None:
            return local.files()
        frame = self._store.read(table)
        path, size = F.col("_metadata.file_path"), F.col("_metadata.file_size")
        column = TABLES[table].partitioned_by
        partition = F.lit(None) if column is None else F.col(column)
        rows = frame.select(
            path.alias("path"), size.alias("size"), partition.cast("string").alias("partition")
        )
        counted = rows.groupBy("path", "size", "partition").agg(F.count(F.lit(1)).alias("rows"))
        return [
            StoredFile(int(row["size"]), row["partition"], int(row["rows"]))
            for row in counted.collect()
        ]

    def compact(self, table: str, note: str) -> int:
        """See `Writer`.  OPTIMIZE cannot set user metadata.  Its commit names the operation."""
        del note
        reported = self.execute(table, "OPTIMIZE {table}")
        return int(reported["metrics"]["numFilesRemoved"])

    def clean_log(self, table: str) -> None:
        """Do nothing, because Delta itself writes checkpoints and then deletes old log files."""

    def removable(self, table: str) -> Removed:
        """See `Writer`.

        If this process cannot read the log, sizes are unknown, and Delta lists at most a thousand
        files.
        """
        local = self._store.logs.local(table)
        if local is not None:
            sizes = local.removable()
            return Removed(len(sizes), sum(sizes.values()))
        statement = f"VACUUM {self._store.identifier(table)} DRY RUN"
        with errors_mapped(table):
            return Removed(len(self._store.spark.sql(statement).collect()), None)

    def vacuum(self, table: str) -> Removed:
        """See `Writer`.  VACUUM does not report what it deletes, so `removable` counts it first."""
        removed = self.removable(table)
        statement = f"VACUUM {self._store.identifier(table)}"
        with WRITES.by_spark(self._store.identifier(table)), errors_mapped(table):
            self._store.spark.sql(statement).collect()
        return removed

    def _append_new(self, changes: Changes, commit: RunCommit) -> None:
        """Append the rows whose key the table does not have.

        Even an empty append has the run's token.  So a driver that resumes late, after another
        writer removed the rows, finds that its append was made.
        """
        table = changes.table
        if changes.since_pin and self._store.version(table) != commit.pinned:
            changes = without_pinned(changes, readable_at(self._store, table, commit.pinned))
        # The join shows Delta that the append depends on the table.  Delta refuses it if another
        # writer appends the same rows meanwhile.
        new = changes.added(self._store.relation(table))
        if new is not None:
            self._write("append", table, self._arranged(table, new), {}, commit.token, commit.note)

    def _is_rewritten(self, changes: Changes) -> bool:
        """Return True if the table is small, or so many rows change that buckets are written again.

        Buckets are not written again if rows were appended under the run's token, because Delta
        skips a second commit with the same token.
        """
        if changes.new is not None or changes.rows is None or changes.buckets is None:
            return False
        is_small = self._is_small(changes.table)
        if not is_small and changes.number_of_rows < limits.LIMITS.merged_rows:
            return False
        if self._store.logs.added_columns(changes.table):  # a rewrite would empty added columns
            return False
        if is_small:
            return True
        in_table = self._store.read(changes.table).where(in_buckets(changes.buckets))
        return in_table.count() <= limits.LIMITS.rows_per_change * changes.number_of_rows

    def _is_small(self, table: str) -> bool:
        """Return True if a table is known to have few rows now.

        No row of a table with many bytes is read.
        """
        if self._store.logs.local(table) is not None:
            return self._store.logs.is_small(table)
        with errors_mapped(table):
            text = f"DESCRIBE DETAIL {self._store.identifier(table)}"
            (detail,) = self._store.spark.sql(text).select("sizeInBytes").collect()
        if detail["sizeInBytes"] > limits.LIMITS.table_bytes:
            return False
        return self._store.relation(table).reused().is_in_memory

    def _merge(self, changes: Changes) -> int:
        if changes.rows is None:
            return 0
        rows = frame_of(changes.rows)
        reported = self.execute(changes.table, changes.merge_statement(), rows=rows)
        return int(reported["num_affected_rows"])

    def _apply_to_unpartitioned(self, changes: Changes, commit: RunCommit) -> int | None:
        """Write new and changed rows into a table without buckets.

        The driver collects the differences (one row per changed stream, group or consumer), so that
        the table is read once.  If the table had few rows when the run was decided, one commit
        writes all its rows again, because this takes fewer queries than an append and a MERGE.
        """
        table = changes.table
        is_untouched = self._store.version(table) == commit.pinned
        current, had_few = self._current(table, commit, is_untouched=is_untouched)
        due, added = changes.due(current), changes.added(current)
        new = None if added is None else added.fetched()
        has_due = due.rows is not None and not due.rows.is_empty()
        is_due = has_due or (new is not None and not new.is_empty())
        if had_few and is_due and not self._store.logs.added_columns(table):
            self._rewrite(changes, commit)
            if is_untouched:
                return None
        # If an earlier driver has appended rows under the token, Delta has skipped the rewrite.  So
        # changes that are still due are written here.
        if new is not None:
            self.append(table, new, token=commit.token, note=commit.note)
        return self._merge(due) if has_due else 0

    def _current(
        self, table: str, commit: RunCommit, *, is_untouched: bool
    ) -> tuple[Relation, bool]:
        """Return a table's rows, and True if it had few rows when the run was decided.

        A repeat gets the same answer, so it writes in the same way.

        Args:
            is_untouched: True if the table is still at the version from which the run was decided.
        """
        now = self._store.relation(table)
        if is_untouched:
            pinned = self._store.relation(table, commit.pinned).reused()
            return (pinned, True) if pinned.is_in_memory else (now, False)
        then = readable_at(self._store, table, commit.pinned)
        return now, then is not None and then.reused().is_in_memory

    def _rewrite(self, changes: Changes, commit: RunCommit) -> None:
        """Write a table, or some of its buckets, again under the run's token.

        Delta reads the rows as it writes, and refuses the commit if another writer changes them
        meanwhile.
        """
        table = changes.table
        rows = self._arranged(table, changes.after(self._store.relation(table)))
        buckets = changes.buckets
        options = {} if buckets is None else {"replaceWhere": in_buckets(buckets)}
        self._write("overwrite", table, rows, options, commit.token, commit.note)

    def _arranged(self, table: str, rows: Relation) -> DataFrame:
        return arranged(TABLES[table], frame_of(rows), self._store.buckets)

    def _write(
        self,
        mode: str,
        table: str,
        rows: DataFrame,
        options: Mapping[str, str],
        token: Token | None,
        note: str | None,
    ) -> None:
        is_sorted = is_arranged(TABLES[table])
        # If Delta generated the bucket itself, Spark would not know that the rows are sorted by it.
        # It would sort them again, in as much memory.
        sorted_by: Sequence[str] = ("bucket",) if is_sorted and "bucket" in rows.columns else ()
        writer = schema.conform(rows, TABLES[table], *sorted_by).write.format("delta").mode(mode)
        writer = writer.options(**options)
        if is_sorted:
            writer = writer.option("maxRecordsPerFile", limits.LIMITS.file_rows)
        if token is not None:
            writer = writer.option("txnAppId", token.app_id).option("txnVersion", token.version)
        if note is not None:
            writer = writer.option("userMetadata", note)
        location = self._store.location
        with WRITES.by_spark(self._store.identifier(table)), errors_mapped(table):
            if location.is_namespace:
                writer.saveAsTable(location.identifier(table))
            else:
                writer.save(f"{location.where}/{table}")


def _frame(table: str, rows: Relation) -> DataFrame:
    """Return rows as a frame.

    If there are few rows, they are computed first, so that Spark only has to write them.

    Raises:
        DuplicateRowsError: see `errors_mapped`.
    """
    with errors_mapped(table):
        return frame_of(rows.fetched_few(limits.LIMITS.session_rows) or rows)


def is_arranged(table: Table) -> bool:
    """Return True if the rows of a table's files are sorted by its key (`arranged`)."""
    return bool(table.key_order()) and table.partitioned_by is not None


def arranged(table: Table, rows: DataFrame, buckets: int) -> DataFrame:
    """Return rows in the order in which the files of a partitioned table should contain them.

    The rows of one bucket are together, sorted by the key, so that statistics can skip files.  This
    needs a shuffle.  Rows of tables without partitions are returned as they are.

    A task gets whole buckets.  There are several times as many tasks as buckets, so that few tasks
    get more than one bucket.  If there are very many buckets, Spark chooses the number of tasks.
    """
    if table.partitioned_by is None:
        return rows
    order = [F.col(table.partitioned_by), *map(F.expr, table.key_order())]
    parts = _PARTS_PER_BUCKET * buckets
    parts_argument: tuple[Any, ...] = (parts,) if parts <= _MOST_PARTS else ()
    divided = rows.repartition(*parts_argument, table.partitioned_by)
    return divided.sortWithinPartitions(order)
