"""State the rows that a run changes, removes and adds in a table.

An engine executes the statement by writing files again, or by a MERGE.  Both result in the same
rows.  A repeat changes nothing, because a row that a run has written has the number of the run.
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
        rows: the rows that are changed or removed, with the columns of `key`.  None if there are
            none.
        key: the columns that identify a row.
        is_due: the SQL condition that the row is as the decision found it.
        values: by column, its new value as SQL.
        is_removed: the SQL condition on `s` that the row is removed.
        may_repeat: True if `rows` may have several rows of one key.  At most one of them `is_due`.
        number_of_rows: the number of rows in `rows`, if the way of writing depends on it.
        new: rows that are added unless the table has their key.  Columns that they lack are None.
            None if no row is added.
        near: a SQL condition on `t`, with literals only, that all changed rows meet.
        new_near: the bounds of the new rows.  None means anywhere.
        since_pin: True if a new row may have existed when the run was decided.  Its owner may have
            removed it since.  So a row that the table had at the pinned version is not new either.
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
    def _same(self) -> str:
        """Return the condition that two rows have one key, and the table's is of an earlier run."""
        return " AND ".join(
            (f"t.run_seq < {self.run_seq:d}L", *(f"t.{name} = s.{name}" for name in self.key))
        )

    def due(self, there: Relation) -> Changes:
        """Return the changes that are not made yet, once each, without new rows.

        Args:
            there: the rows of the table.
        """
        if self.rows is None:
            return replace(self, new=None)
        rows = self.rows.sql(
            f"SELECT DISTINCT s.* FROM {{this}} AS s LEFT SEMI JOIN {{there}} AS t"
            f" ON {self._same} AND ({self.is_due})",
            there=there,
        )
        return replace(self, rows=rows.fetched(), new=None)

    def not_in(self, pinned: Relation) -> Changes:
        """Return the changes without the new rows whose key the table had.

        Args:
            pinned: the rows that the table had when the run was decided.
        """
        if self.new is None:
            return self
        return replace(self, new=lacking(self.table, self.new, self._near_new(pinned)))

    def added(self, there: Relation) -> Relation | None:
        """Return the new rows whose key the table does not have, or None if nothing is added."""
        if self.new is None:
            return None
        lacked = lacking(self.table, self.new, self._near_new(there))
        names = [name for name in lacked.columns if name != "run_seq"]
        return lacked.select(*names, f"{self.run_seq:d}L AS run_seq")

    def _near_new(self, there: Relation) -> Relation:
        return there if self.new_near is None else there.within(self.new_near)

    def after(self, there: Relation) -> Relation:
        """Return the rows of the changed buckets after the change, and all new rows.

        Args:
            there: the rows of the table.
        """
        partition = TABLES[self.table].partitioned_by
        after = self._after(there)
        return after if partition is None else after.made_by(partition)

    def _after(self, there: Relation) -> Relation:
        part = there if self.buckets is None else there.within(IdBounds.of_buckets(self.buckets))
        kept = part if self.rows is None else self._changed(part, self.rows)
        added = self.added(there)
        if added is None:
            return kept
        types = TABLES[self.table].types
        return union_by_name([kept, added], {name: types[name] for name in there.columns})

    def _changed(self, there: Relation, rows: Relation) -> Relation:
        """Return the rows of the table without the removed ones, with the changed ones changed.

        The join is by sort and merge, because Spark estimates millions of ids as a few megabytes,
        and would broadcast them.
        """
        new = {**self.values, "run_seq": f"{self.run_seq:d}L"}
        is_ours = f"s.{self.key[0]} IS NOT NULL AND ({self.is_due})"
        columns = (
            f"CASE WHEN {is_ours} THEN {new[name]} ELSE t.{name} END AS {name}"
            if name in new
            else f"t.{name} AS {name}"
            for name in there.columns
        )
        same = f"{self._same} AND ({self.is_due})" if self.may_repeat else self._same
        return there.sql(
            f"SELECT /*+ MERGE(s) */ {', '.join(columns)} FROM {{this}} AS t"
            f" LEFT JOIN {{rows}} AS s ON {same}"
            f" WHERE NOT coalesce({is_ours} AND {self.is_removed}, false)",
            rows=rows,
        )

    def merge_statement(self) -> str:
        """Return a MERGE with the changes of existing rows.

        `{table}` and `{rows}` stand for the table and the rows.  Literal bounds let Delta skip the
        files in which no row can match.  The run's number also identifies the commit in the table's
        history.
        """
        due = f" AND ({self.is_due})" if self.may_repeat else ""
        values = {**self.values, "run_seq": f"{self.run_seq:d}"}
        update = ", ".join(f"{name} = {value}" for name, value in values.items())
        removal = f" WHEN MATCHED AND ({self.is_due}) AND {self.is_removed} THEN DELETE"
        return (
            f"MERGE INTO {{table}} t USING {{rows}} s ON {self.near} AND {self._same}{due}"
            f"{removal if self.is_removed != 'false' else ''}"
            f" WHEN MATCHED AND ({self.is_due}) THEN UPDATE SET {update}"
        )


def lacking(table: str, rows: Relation, there: Relation) -> Relation:
    """Return the rows whose key a table does not have.

    Args:
        there: the rows of the table, or of a part of it that has all its rows with these keys.
    """
    return rows.lacking(there, same_key(table))


def same_key(table: str, other: str = "s") -> str:
    """Return the SQL condition that a row `t` of a table and another row have one key."""
    return " AND ".join(f"t.{name} = {other}.{name}" for name in TABLES[table].key)
