"""The Spark engine: for stores of any size, wherever they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from claimlib.engine.interpreted import MOST_ROWS, interpreted
from claimlib.engine.relation import (
    DESCENDING,
    External,
    Node,
    Query,
    Record,
    Relation,
    Rows,
    TableScan,
    flatten,
    records_of,
)

PART_ROWS = 50_000
"""The rows of one part of an ordered stream."""
_MOST_SCANS = 16


class Tables(Protocol):
    """Give the engine the tables of a store as DataFrames."""

    def frame_at(self, table: str, version: int | None) -> DataFrame:
        """Return a table at a version; None means as it is when the frame is run."""
        ...

    def in_memory(self, rows: pa.Table) -> DataFrame:
        """Return rows of this process as a frame."""
        ...

    def is_held(self, frame: DataFrame, most: int | None = None) -> bool:
        """Return True if a frame is few rows from the memory of this process."""
        ...

    def few(self, frame: DataFrame) -> tuple[DataFrame, pa.Table] | None:
        """Return a frame of few rows, and these rows; None if it has many."""
        ...


class SparkEngine:
    """Executes relations in a Spark session.

    Args:
        tables: the store whose tables the relations read; None if they read frames only.
    """

    def __init__(self, spark: SparkSession, tables: Tables | None = None) -> None:
        self._spark = spark
        self._tables = tables
        self._scans: dict[tuple[str, int], DataFrame] = {}

    def frame(self, node: Node) -> DataFrame:
        """Return what a node states as a DataFrame."""
        return self._stated(node)[0]

    def fetch(self, node: Node) -> pa.Table:
        """Return all rows."""
        if isinstance(node, Rows):
            return node.arrow
        frame, are_few = self._stated(node)
        with interpreted(self._spark, are_few=are_few):
            return frame.toArrow()

    def stream(self, node: Node, expected_rows: int) -> Iterator[Record]:
        """Yield all rows in the order of the statement, about `PART_ROWS` of them in memory."""
        if expected_rows <= PART_ROWS or not isinstance(node, Query) or not node.order_by:
            yield from records_of(self.fetch(node))
            return
        order = [_sort_order(term) for term in node.order_by]
        # Of a global sort the session's settings say how many parts it has, whatever their size.
        unordered = replace(node, order_by=()) if node.limit is None else node
        number = -(-expected_rows // PART_ROWS)
        parts = self.frame(unordered).repartitionByRange(number, *order)
        for row in parts.sortWithinPartitions(*order).toLocalIterator():
            yield row.asDict(recursive=True)

    def columns_of(self, node: Node) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(self.frame(node).columns)

    def reuse(self, node: Node) -> Node:
        """Return a node of the same rows: few rows are fetched."""
        if isinstance(node, Rows) or self._tables is None:
            return node
        frame = self.frame(node)
        few = self._tables.few(frame)
        return External(frame) if few is None else Rows(few[1])

    def _stated(self, node: Node) -> tuple[DataFrame, bool]:
        """Return the frame of a node, and whether all that it is made of is few rows."""
        if not isinstance(node, Query):
            frame = self._leaf(node)
            return frame, self._are_few({"": frame})
        statement = flatten(node, _with_escaped_braces)
        frames = {name: self._leaf(leaf) for name, leaf in statement.leaves.items()}
        steps = [
            *((name, f"SELECT * FROM {{{name}}}") for name in statement.leaves),
            *statement.steps,
        ]
        parts = ", ".join(f"{name} AS ({step})" for name, step in steps)
        text = f"WITH {parts} {statement.last}"
        return self._spark.sql(text, None, **frames), self._are_few(frames)

    def _are_few(self, frames: Mapping[str, DataFrame]) -> bool:
        tables = self._tables
        return tables is not None and all(
            tables.is_held(frame, MOST_ROWS) for frame in frames.values()
        )

    def _leaf(self, leaf: Node) -> DataFrame:
        if isinstance(leaf, External):
            frame: DataFrame = leaf.handle
            return frame
        if isinstance(leaf, TableScan) and self._tables is not None:
            return self._scan(self._tables, leaf.table, leaf.version)
        if isinstance(leaf, Rows) and self._tables is not None:
            return self._tables.in_memory(leaf.arrow)
        raise AssertionError(f"{leaf} needs a store")

    def _scan(self, tables: Tables, table: str, version: int | None) -> DataFrame:
        """Return a table.  Delta takes a while to find a version, and what it finds stays."""
        if version is None:
            return tables.frame_at(table, None)
        if (table, version) not in self._scans:
            if len(self._scans) >= _MOST_SCANS:
                self._scans.clear()
            self._scans[table, version] = tables.frame_at(table, version)
        return self._scans[table, version]


def relation_of(frame: DataFrame) -> Relation:
    """Return a relation of a frame's rows."""
    return Relation(SparkEngine(frame.sparkSession), External(frame))


def frame_of(relation: Relation) -> DataFrame:
    """Return what a relation of this engine states as a DataFrame.

    Raises:
        TypeError: the embedded engine executes the relation.
    """
    if not isinstance(relation.engine, SparkEngine):
        raise TypeError("the relation is of the embedded engine: open the store in a Spark session")
    return relation.engine.frame(relation.node)


def _with_escaped_braces(text: str) -> str:
    """Return a text as `SparkSession.sql` takes it together with frames."""
    return text.replace("{", "{{").replace("}", "}}")


def _sort_order(term: str) -> Column:
    if term.endswith(DESCENDING):
        return F.expr(term.removesuffix(DESCENDING)).desc()
    return F.expr(term).asc()
