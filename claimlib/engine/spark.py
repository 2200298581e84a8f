"""Execute relations in Spark, for stores of any size in any location."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from claimlib.engine import limits
from claimlib.engine.inputs import Input
from claimlib.engine.relation import (
    DESCENDING,
    Executor,
    External,
    Mapped,
    Node,
    Query,
    Record,
    Relation,
    Rows,
    TableScan,
    flatten,
    leaves_of,
    records_of,
    with_leaves,
)
from claimlib.engine.spark_inputs import open_by_spark
from claimlib.errors import DamagedTableError
from claimlib.local_rows import divided_frame
from claimlib.schema import TABLES


class Tables(Protocol):
    """Define the methods of a store that the engine needs."""

    def read_at(self, table: str, version: int | None) -> DataFrame:
        """Return a table at a version.  None means the newest version when the frame is run."""
        ...

    def version(self, table: str) -> int:
        """Return the current version of a table."""
        ...

    def is_small(self, table: str) -> bool:
        """Return True if a table is known, without a query, to have few rows."""
        ...


class SparkEngine:
    """Execute relations in a Spark session.

    A result that comes to this process anyway is computed in this process, without Spark, if
    possible.  This process can read rows in memory, tables in a local folder, and tables elsewhere
    that have few rows.  Tables elsewhere are fetched once per version.

    Args:
        tables: the store whose tables the relations read.  None if the relations read only frames.
        inside: the engine of this process.  None if its packages are not installed.
        reads_tables: True if `inside` can read the store's tables.
    """

    name: ClassVar[str] = "spark"

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables | None = None,
        inside: Executor | None = None,
        *,
        reads_tables: bool = False,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._inside = inside
        self._reads_tables = reads_tables
        self._fetched: dict[str, tuple[int, pa.Table]] = {}
        self._large: set[str] = set()

    def frame(self, node: Node) -> DataFrame:
        """Return the rows of a node as a DataFrame."""
        if not isinstance(node, Query):
            return self._leaf(node)
        statement = flatten(node, _with_escaped_braces)
        frames = {name: self._leaf(leaf) for name, leaf in statement.leaves.items()}
        steps = [
            *((name, f"SELECT * FROM {{{name}}}") for name in statement.leaves),
            *statement.steps,
        ]
        parts = ", ".join(f"{name} AS ({step})" for name, step in steps)
        return self._spark.sql(f"WITH {parts} {statement.last}", None, **frames)

    def fetch(self, node: Node) -> pa.Table:
        """Return all rows."""
        if isinstance(node, Rows):
            return node.arrow
        local = self._local(node)
        if local is not None:
            # The engine in this process refuses a text that is not UTF-8.  Spark then reads it.
            with suppress(DamagedTableError):
                return local.engine.fetch(local.node)
        return self.frame(node).toArrow()

    def few(self, node: Node, most: int) -> pa.Table | None:
        """Return all rows, or None if they are more than `most` or come from a large table."""
        if isinstance(node, Rows):
            return node.arrow if node.arrow.num_rows <= most else None
        local = self._local(node)
        if local is None or not all(map(self._is_small, leaves_of(local.node))):
            return None
        return local.engine.few(local.node, most)

    def stream(self, node: Node, expected_rows: int) -> Iterator[Record]:
        """Yield all rows in the order of the statement, in parts of `Limits.stream_rows`."""
        local = self._local(node)
        if local is not None:
            yield from local.engine.stream(local.node, expected_rows)
            return
        most = limits.LIMITS.stream_rows
        if expected_rows <= most or not isinstance(node, Query) or not node.order_by:
            yield from records_of(self.fetch(node))
            return
        order = [_sort_order(term) for term in node.order_by]
        # The session's settings determine the number of parts of a global sort, for any size.
        unordered = replace(node, order_by=()) if node.limit is None else node
        number_of_parts = -(-expected_rows // most)  # rounded up
        parts = self.frame(unordered).repartitionByRange(number_of_parts, *order)
        for row in parts.sortWithinPartitions(*order).toLocalIterator():
            yield row.asDict(recursive=True)

    def types_of(self, node: Node) -> Mapping[str, str]:
        """Return the types of the columns by name."""
        if self._inside is None or any(isinstance(leaf, External) for leaf in leaves_of(node)):
            return dict(self.frame(node).dtypes)
        return self._inside.types_of(_with_all_leaves(node, _without_rows))

    def reuse(self, node: Node) -> Node:
        """Return a node of the same rows, which are fetched if they are few."""
        local = self._local(node)
        if local is not None:
            reused = local.engine.reuse(local.node)
            return reused if isinstance(reused, Rows) else node
        if self._tables is None:
            return node
        frame = self.frame(node)
        rows = frame.limit(limits.LIMITS.fetched_rows + 1).toArrow()
        return External(frame) if rows.num_rows > limits.LIMITS.fetched_rows else Rows(rows)

    def keep(self, node: Node) -> Node:
        """Return a node of the same rows, which are fetched if they are few and of small tables."""
        rows = self.few(node, limits.LIMITS.session_rows)
        return node if rows is None else Rows(rows)

    def open_input(self, place: str) -> Input:
        """Open a given table, see `spark_inputs.open_by_spark`."""
        return open_by_spark(self._spark, place)

    def _leaf(self, leaf: Node) -> DataFrame:
        if isinstance(leaf, External):
            frame: DataFrame = leaf.handle
            return frame
        if isinstance(leaf, Mapped):
            types = ", ".join(f"{name} {type_}" for name, type_ in leaf.columns.items())
            order = [F.expr(term) for term in leaf.order]
            ordered = self.frame(leaf.input).sortWithinPartitions(*order)
            return ordered.mapInPandas(leaf.function, types)
        if isinstance(leaf, TableScan) and self._tables is not None:
            frame = self._tables.read_at(leaf.table, leaf.version)
            return _selected(frame, leaf.columns, leaf.may_lack)
        if isinstance(leaf, Rows):
            return divided_frame(self._spark, leaf.arrow)
        raise AssertionError(f"{leaf} needs a store")

    # ---------------------------------------------------------------- in this process

    def _local(self, node: Node) -> Relation | None:
        """Return a relation of the same rows that this process can compute without Spark.

        Return None if this process cannot compute them.
        """
        leaves = list(leaves_of(node))
        scans = {leaf.table for leaf in leaves if isinstance(leaf, TableScan)}
        if self._inside is None or not scans.isdisjoint(self._large):
            return None
        local_leaves = {id(leaf): self._local_leaf(leaf) for leaf in leaves}
        if None in local_leaves.values():
            return None
        local = _with_all_leaves(node, lambda leaf: local_leaves[id(leaf)] or leaf)
        return Relation(self._inside, local)

    def _local_leaf(self, leaf: Node) -> Node | None:
        """Return a leaf as this process can read it without Spark, or None if it cannot."""
        if isinstance(leaf, External):
            return None
        if not isinstance(leaf, TableScan) or self._reads_tables:
            return leaf
        rows = self._rows_if_few(leaf)
        return None if rows is None else Rows(rows.select(leaf.columns))

    def _rows_if_few(self, scan: TableScan) -> pa.Table | None:
        """Return the rows of a table of the store, or None if they are many, or have payloads."""
        if self._tables is None or scan.table in self._large or "fields" in scan.columns:
            return None
        version = self._tables.version(scan.table) if scan.version is None else scan.version
        known = self._fetched.get(scan.table)
        if known is not None and known[0] == version:
            return known[1]
        names = [column.name for column in TABLES[scan.table].columns if column.name != "fields"]
        rows = _selected(self._tables.read_at(scan.table, version), names, scan.may_lack)
        few = rows.limit(limits.LIMITS.fetched_rows + 1).toArrow()
        if few.num_rows > limits.LIMITS.fetched_rows:
            self._large.add(scan.table)
            self._fetched.pop(scan.table, None)
            return None
        self._fetched[scan.table] = version, few
        return few

    def _is_small(self, leaf: Node) -> bool:
        """Return True if a leaf is known, without a query, to have few rows."""
        if isinstance(leaf, TableScan):
            return self._tables is not None and self._tables.is_small(leaf.table)
        return not isinstance(leaf, Rows) or leaf.arrow.num_rows <= limits.LIMITS.session_rows


def relation_of(frame: DataFrame) -> Relation:
    """Return a relation of a frame's rows."""
    return Relation(SparkEngine(frame.sparkSession), External(frame))


def frame_of(relation: Relation) -> DataFrame:
    """Return the rows of a relation of the Spark engine as a DataFrame.

    Raises:
        TypeError: the embedded engine executes the relation.
    """
    if not isinstance(relation.engine, SparkEngine):
        raise TypeError("the relation is of the embedded engine: open the store in a Spark session")
    return relation.engine.frame(relation.node)


def _with_all_leaves(node: Node, replaced: Callable[[Node], Node]) -> Node:
    """Return a graph with other leaves, including the leaves below its `Mapped` nodes."""

    def replaced_below(leaf: Node) -> Node:
        if isinstance(leaf, Mapped):
            return replace(leaf, input=_with_all_leaves(leaf.input, replaced))
        return replaced(leaf)

    return with_leaves(node, replaced_below)


def _without_rows(leaf: Node) -> Node:
    """Return a leaf with the same columns and no rows."""
    if not isinstance(leaf, TableScan):
        return leaf
    return Rows(TABLES[leaf.table].arrow_schema(leaf.columns).empty_table())


def _selected(frame: DataFrame, columns: Sequence[str], may_lack: Mapping[str, str]) -> DataFrame:
    """Return columns of a version of a table.  Those that it lacks are null."""
    if may_lack.keys().isdisjoint(columns):
        return frame.select(*columns)
    lacking = may_lack.keys() - {*frame.columns}
    return frame.select(
        *(
            F.lit(None).cast(may_lack[name]).alias(name) if name in lacking else name
            for name in columns
        )
    )


def _with_escaped_braces(text: str) -> str:
    """Return a text with doubled braces, because `SparkSession.sql` formats a text with frames."""
    return text.replace("{", "{{").replace("}", "}}")


def _sort_order(term: str) -> Column:
    if term.endswith(DESCENDING):
        return F.expr(term.removesuffix(DESCENDING)).desc()
    return F.expr(term).asc()
