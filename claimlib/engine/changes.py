"""State the rows that a run changes, removes and adds in a table.

An engine makes the changes by writing files again, or by a MERGE.  Both result in the same rows.  A
repeat changes nothing, because a row that a run has written has the run's number in `run_seq`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from claimlib.engine.relation import IdBounds, Relation, union_by_name
from claimlib.schema import TABLES


@dataclass(frozen=True, slots=True)
class Changes:
    """Describe the changes of a run in one table.

    In SQL texts `t` is the table and `s` is `rows`.

    Attributes:
        table: the name of the table in the store.
        run_seq: the number of the run.  Rows of this and of later runs are not changed.
        rows: one row for each row that is changed or removed, with the columns of `key` and those
            that the SQL texts use.  None if no row is changed or removed.
        key: the columns that identify a row.
        is_due: the SQL condition that a row of the table is still as the decision found it.
        values: by column, its new value as SQL.
        is_removed: the SQL condition on `s` for rows that are removed.  The others are changed.
        may_repeat: True if `rows` may have several rows with one key.  `is_due` is true for at most
            one of them.
        number_of_rows: the number of rows in `rows`, or 0 if unknown.  If it is 0, Spark rewrites
            whole buckets only in small tables.
        new: the rows to add.  A row is not added if the table already has its key.  Columns of the
            table that `new` lacks become null.  The attribute is None if no row is added.
        near: a SQL condition on `t`, with literals only, that all changed rows meet.
        new_near: the bounds of the new rows.  None means no bounds.
        since_pin: True if a new row may have existed when the run was decided, and another writer
            may have removed it since.  In this case, a row is also not added if the table had its
            key at the pinned version.
        buckets: the buckets in which rows are changed.  None means any bucket, or that the table
            has no buckets.
    """

    table: str
    run_seq: int
    rows: Relation | None
    key: Sequence[str]
    is_due: str = "true"
    values: Mapping[str, str] = field(default_factory=dict)
    is_removed: str = "false"
    may_repeat: bool = False
    number_of_rows: int = 0
    new: Relation | None = None
    near: str = "true"
    new_near: IdBounds | None = None
    since_pin: bool = False
    buckets: Sequence[int] | None = None

    @property
    def _match(self) -> str:
        """Return the condition that `t` and `s` have equal keys, and an earlier run wrote `t`."""
        return " AND ".join(
            (f"t.run_seq < {self.run_seq:d}L", *(f"t.{name} = s.{name}" for name in self.key))
        )

    def due(self, stored: Relation) -> Changes:
        """Return the changes that are not made yet, once each, without new rows.

        Args:
            stored: the rows of the table.
        """
        if self.rows is None:
            return replace(self, new=None)
        rows = self.rows.sql(
            f"SELECT DISTINCT s.* FROM {{this}} AS s LEFT SEMI JOIN {{stored}} AS t"
            f" ON {self._match} AND ({self.is_due})",
            stored=stored,
        )
        return replace(self, rows=rows.fetched(), new=None)

    def not_in(self, pinned: Relation) -> Changes:
        """Return the changes without the new rows whose key the table had at the pinned version.

        Args:
            pinned: the rows that the table had when the run was decided.
        """
        if self.new is None:
            return self
        return replace(self, new=lacking(self.table, self.new, self._within_new_bounds(pinned)))

    def added(self, stored: Relation) -> Relation | None:
        """Return the new rows whose key the table does not have, or None if `new` is None.

        Args:
            stored: the rows of the table.
        """
        if self.new is None:
            return None
        rows = lacking(self.table, self.new, self._within_new_bounds(stored))
        names = [name for name in rows.columns if name != "run_seq"]
        return rows.select(*names, f"{self.run_seq:d}L AS run_seq")

    def _within_new_bounds(self, stored: Relation) -> Relation:
        return stored if self.new_near is None else stored.within(self.new_near)

    def after(self, stored: Relation) -> Relation:
        """Return the rows of the changed buckets after the change, and all new rows.

        Args:
            stored: the rows of the table.
        """
        partition = TABLES[self.table].partitioned_by
        after = self._after(stored)
        return after if partition is None else after.made_by(partition)

    def _after(self, stored: Relation) -> Relation:
        part = stored if self.buckets is None else stored.within(IdBounds.of_buckets(self.buckets))
        existing = part if self.rows is None else self._changed(part, self.rows)
        added = self.added(stored)
        if added is None:
            return existing
        types = TABLES[self.table].types
        return union_by_name([existing, added], {name: types[name] for name in stored.columns})

    def _changed(self, stored: Relation, rows: Relation) -> Relation:
        """Return rows of the table after the change, without new rows.

        The join is by sort and merge, because Spark estimates millions of ids as a few megabytes,
        and would broadcast them.
        """
        new_values = {**self.values, "run_seq": f"{self.run_seq:d}L"}
        is_matched = f"s.{self.key[0]} IS NOT NULL AND ({self.is_due})"
        columns = (
            f"CASE WHEN {is_matched} THEN {new_values[name]} ELSE t.{name} END AS {name}"
            if name in new_values
            else f"t.{name} AS {name}"
            for name in stored.columns
        )
        condition = f"{self._match} AND ({self.is_due})" if self.may_repeat else self._match
        return stored.sql(
            f"SELECT /*+ MERGE(s) */ {', '.join(columns)} FROM {{this}} AS t"
            f" LEFT JOIN {{rows}} AS s ON {condition}"
            f" WHERE NOT coalesce({is_matched} AND {self.is_removed}, false)",
            rows=rows,
        )

    def merge_statement(self) -> str:
        """Return a MERGE with the changes of existing rows.

        `{table}` and `{rows}` stand for the table and the rows.  The literals of `near` let Delta
        skip the files in which no row can match.  The run's number in the statement also identifies
        the commit in the table's history.
        """
        due = f" AND ({self.is_due})" if self.may_repeat else ""
        values = {**self.values, "run_seq": f"{self.run_seq:d}"}
        update = ", ".join(f"{name} = {value}" for name, value in values.items())
        removal = f" WHEN MATCHED AND ({self.is_due}) AND {self.is_removed} THEN DELETE"
        return (
            f"MERGE INTO {{table}} t USING {{rows}} s ON {self.near} AND {self._match}{due}"
            f"{removal if self.is_removed != 'false' else ''}"
            f" WHEN MATCHED AND ({self.is_due}) THEN UPDATE SET {update}"
        )


def lacking(table: str, rows: Relation, stored: Relation) -> Relation:
    """Return the rows whose key a table does not have.

    Args:
        stored: the rows of the table, or a part of them with all rows that have these keys.
    """
    return rows.lacking(stored, same_key(table))


def same_key(table: str, other: str = "s") -> str:
    """Return the SQL condition that a row `t` of a table and another row have the same key."""
    return " AND ".join(f"t.{name} = {other}.{name}" for name in TABLES[table].key)
