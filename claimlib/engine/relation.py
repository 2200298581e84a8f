"""State relations, which are rows that are not computed yet.

A relation is a graph.  Its leaves are versions of tables and rows in memory.  Its inner nodes are
statements in SQL (Spark's dialect).  An engine executes the graph in Spark or in this process.
Only the engine knows which of the two it uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from claimlib.engine.folder import DataFile
    from claimlib.engine.inputs import Input

Record = dict[str, Any]
RangeFunction = Callable[[Iterator["pd.DataFrame"]], Iterator["pd.DataFrame"]]
DESCENDING = " DESC"
"""The ending of a sort expression whose order is descending."""


@dataclass(frozen=True, slots=True)
class IdBounds:
    """Bound the ids of a run by intervals.

    Attributes:
        by_bucket: the intervals.  Each has a bucket, the smallest id_ms and the largest id_ms
            (BIGINT, inclusive).
    """

    by_bucket: tuple[tuple[int, int, int], ...]

    @classmethod
    def of_buckets(cls, buckets: Iterable[int]) -> IdBounds:
        """Return the bounds of all ids of some buckets."""
        return cls(tuple((bucket, -(2**63), 2**63 - 1) for bucket in buckets))

    def sql(self, table: str = "") -> str:
        """Return a SQL condition with literals only, so that Delta's statistics skip files.

        Args:
            table: the alias of the table and a dot, or empty.
        """
        parts = (
            f"({table}bucket = {bucket:d}{_between(f'{table}id_ms', low, high)})"
            for bucket, low, high in self.by_bucket
        )
        return f"({' OR '.join(parts) or 'false'})"


def _between(id_ms: str, low: int, high: int) -> str:
    is_unbounded = (low, high) == (-(2**63), 2**63 - 1)
    return "" if is_unbounded else f" AND {id_ms} BETWEEN {low:d} AND {high:d}"


@dataclass(frozen=True, slots=True, eq=False)
class TableScan:
    """Scan one version of one table of a store.

    Attributes:
        table: its name in the store.
        version: None means the newest version when the relation is executed.
        columns: the columns that are read, in order.
        bounds: the bounds of the wanted rows.  None means no bounds.  Files without a row within
            the bounds need not be read.
        partition: a partition column and its value.  Only rows with this value are read.  If the
            value is None, no rows are read.  A table that the column does not partition is read as
            a whole.
        runs: the first and the last number of the wanted rows' runs (`run_seq`).  None means all
            runs.  Files without a row of these runs need not be read.
        may_lack: the SQL type of each column that an old version may lack.  There it is null.
    """

    table: str
    version: int | None
    columns: tuple[str, ...]
    bounds: IdBounds | None = None
    runs: tuple[int, int] | None = None
    partition: tuple[str, str | None] | None = None
    may_lack: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Hold rows in the memory of this process."""

    arrow: pa.Table


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class External:
    """Refer to rows that only one engine can read.

    They are the rows of a user's table, or rows that the engine keeps.

    Attributes:
        handle: the engine's own reference to the rows.
    """

    handle: Any


_ALL_ROWS = "SELECT * FROM {this} AS this"


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """Hold a SELECT statement.  `{name}` in its text stands for an input.

    Attributes:
        order_by: SQL expressions by which the rows are sorted.  The order is descending for an
            expression that ends with `DESCENDING`, and ascending for any other.  Null comes first
            in an ascending order, and last in a descending order.  Empty means any order.
        limit: the number of rows that are returned, the first ones by `order_by`.  None means all
            rows.
        made_by: the partition column that `Relation.made_by` stated.  None if it stated none.
        columns: the names of the columns.  None if only an engine can find them.
    """

    text: str
    inputs: Mapping[str, Node]
    order_by: tuple[str, ...] = ()
    limit: int | None = None
    made_by: str | None = None
    columns: tuple[str, ...] | None = None

    @property
    def is_part(self) -> bool:
        """Return True if the rows are some rows of the input `this`, with all their columns."""
        return self.text == _ALL_ROWS or self.text.startswith(f"{_ALL_ROWS} WHERE ")

    @property
    def order_and_limit(self) -> str:
        """Return the ORDER BY and LIMIT clauses of the statement."""
        order = f" ORDER BY {', '.join(self.order_by)}" if self.order_by else ""
        limit = "" if self.limit is None else f" LIMIT {self.limit:d}"
        return f"{order}{limit}"


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """Compute rows with a function from sorted ranges of rows.

    Attributes:
        function: a pure function that is called with the sorted batches of one range.
        columns: name and SQL type of each column that it returns.
        input: rows that `Relation.divided` has divided, so that each range has all rows of its
            keys.
        order: SQL expressions by which a range is sorted.
    """

    function: RangeFunction
    columns: Mapping[str, str]
    input: Node
    order: tuple[str, ...]


Node = TableScan | Rows | External | Query | Mapped


class Executor(Protocol):
    """Execute the nodes of relations.

    Attributes:
        name: the name of the engine: `embedded` or `spark`.
    """

    name: ClassVar[str]

    def fetch(self, node: Node) -> pa.Table:
        """Return all rows."""
        ...

    def few(self, node: Node, most: int) -> pa.Table | None:
        """Return all rows, or None if they are more than `most` or too costly to count."""
        ...

    def stream(self, node: Node, expected_rows: int) -> Iterator[Record]:
        """Yield all rows, one dictionary per row, in the order of the statement.

        They need not all fit in memory.

        Args:
            expected_rows: the expected number of rows.
        """
        ...

    def types_of(self, node: Node) -> Mapping[str, str]:
        """Return the types of the columns by name, as Spark writes them, as in `array<string>`."""
        ...

    def reuse(self, node: Node) -> Node:
        """Return a node of the same rows.

        Few rows are computed now.  Many rows are computed again by each statement.
        """
        ...

    def keep(self, node: Node) -> Node:
        """Return a node of the same rows, computed now if the engine has a place for them."""
        ...

    def open_input(self, place: str) -> Input:
        """Open a given table as it is now.

        Raises:
            InputError: the table does not exist, cannot be read, or would not be read completely.
            RequestError: the engine cannot read tables of this kind or at this place.
        """
        ...


@runtime_checkable
class Writer(Protocol):
    """Write the files of a table.  Only some engines can."""

    def write(
        self, node: Node, table: str, partition: str | None, compared: Sequence[str] | None
    ) -> Sequence[DataFile]:
        """Write rows as data files, which are part of no version until they are committed."""
        ...


@dataclass(frozen=True, eq=False)
class Relation:
    """State rows that an engine can compute.

    Attributes:
        engine: the engine that executes the relation.
        node: the graph that states the rows.
    """

    engine: Executor
    node: Node = field(repr=False)

    # ---------------------------------------------------------------- stating

    def sql(self, text: str, **others: Relation) -> Relation:
        """Return the rows of a SELECT in which `{this}` stands for this relation.

        Args:
            text: Spark SQL.  Quote the names of streams, groups and consumers with
                `schema.quote_text`, because they are data.
            others: further relations, by their names in the text.
        """
        inputs = {"this": self.node, **{name: other.node for name, other in others.items()}}
        return Relation(self.engine, Query(text, inputs))

    def select(self, *expressions: str) -> Relation:
        """Return the rows with some columns.

        Args:
            expressions: the columns.  Each is a SQL expression with an alias, or a name.
        """
        text = f"SELECT {', '.join(expressions)} FROM {{this}} AS this"
        return Relation(self.engine, Query(text, {"this": self.node}, columns=_names(expressions)))

    def where(self, condition: str) -> Relation:
        """Return the rows for which a SQL condition is true."""
        return self.sql(f"{_ALL_ROWS} WHERE {condition}")

    def within(self, bounds: IdBounds) -> Relation:
        """Return the rows within bounds.  Files of a table that have none of them are not read."""

        def bounded(scan: TableScan) -> TableScan:
            return replace(scan, bounds=bounds) if scan.bounds is None else scan

        return Relation(self.engine, _with_scans(self.node, bounded)).where(bounds.sql())

    def of_runs(self, first: int, last: int | None = None) -> Relation:
        """Return the rows that some runs wrote.  Files of a table without such rows are not read.

        Args:
            first, last: the numbers of the runs (`run_seq`), inclusive.  None means no last run.
        """
        high = 2**63 - 1 if last is None else last

        def of_runs(scan: TableScan) -> TableScan:
            return replace(scan, runs=(first, high)) if scan.runs is None else scan

        is_in = f"run_seq BETWEEN {first:d}L AND {high:d}L"
        return Relation(self.engine, _with_scans(self.node, of_runs)).where(is_in)

    def distinct(self, *columns: str) -> Relation:
        """Return the distinct values of some columns, or of all columns if none is named."""
        text = f"SELECT DISTINCT {', '.join(columns) or '*'} FROM {{this}} AS this"
        names = _names(columns) if columns else _known_columns(self.node)
        return Relation(self.engine, Query(text, {"this": self.node}, columns=names))

    def lacking(self, others: Relation, condition: str) -> Relation:
        """Return the rows for which no row of another relation meets a SQL condition.

        Args:
            condition: in it, `s` is a row of this relation, and `t` is a row of the other one.
        """
        text = f"SELECT s.* FROM {{this}} AS s LEFT ANTI JOIN {{others}} AS t ON {condition}"
        inputs = {"this": self.node, "others": others.node}
        return Relation(self.engine, Query(text, inputs, columns=_known_columns(self.node)))

    def order_by(self, *expressions: str) -> Relation:
        """Return the rows in the order of SQL expressions."""
        return self._query(_ALL_ROWS, order_by=expressions)

    def limit(self, number: int) -> Relation:
        """Return the first rows, in the order of `order_by` if that was stated."""
        node = self.node
        if isinstance(node, Query) and node.order_by and node.limit is None:
            return Relation(self.engine, replace(node, limit=number))
        return self._query(_ALL_ROWS, limit=number)

    def _query(
        self, text: str, *, order_by: Sequence[str] = (), limit: int | None = None
    ) -> Relation:
        return Relation(self.engine, Query(text, {"this": self.node}, tuple(order_by), limit))

    def divided(self, *key: str) -> Relation:
        """Return the rows, divided among tasks so that all rows of one key are in one task."""
        return self.sql(f"SELECT /*+ REPARTITION({', '.join(key)}) */ * FROM {{this}} AS this")

    def made_by(self, column: str) -> Relation:
        """Return the rows, and state that they can be computed one partition at a time.

        The caller thereby states a condition.  If a table is partitioned by the column, the rows
        with one value depend only on the table's rows with the same value.  On other tables they
        may depend in any way.

        Args:
            column: the partition column.  It is never None in the rows.
        """
        return Relation(self.engine, Query(_ALL_ROWS, {"this": self.node}, made_by=column))

    def mapped(
        self, function: RangeFunction, columns: Mapping[str, str], order: Sequence[str]
    ) -> Relation:
        """Return the rows that a function computes from each range of divided rows, see `Mapped`.

        Args:
            function: the pure function, which gets the sorted batches of one range.
            columns: name and SQL type of each column that it returns.
            order: SQL expressions by which each range is sorted.
        """
        return Relation(self.engine, Mapped(function, dict(columns), self.node, tuple(order)))

    @property
    def is_in_memory(self) -> bool:
        """Return True if the rows are in the memory of this process."""
        return isinstance(self.node, Rows)

    def reused(self) -> Relation:
        """Return the same rows for several statements.  Few rows are computed once.

        Use it for rows that are cheap to compute, such as a part of a table.
        """
        return Relation(self.engine, self.engine.reuse(self.node))

    def kept(self) -> Relation:
        """Return the same rows for several statements.  The embedded engine computes them once.

        Use it for rows that are costly to compute, such as a decision.
        """
        return Relation(self.engine, self.engine.keep(self.node))

    # ---------------------------------------------------------------- executing

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        known = _known_columns(self.node)
        return tuple(self.types) if known is None else known

    @property
    def types(self) -> Mapping[str, str]:
        """Return the types of the columns by name, as Spark writes them, as in `array<string>`."""
        return self.engine.types_of(self.node)

    def arrow(self) -> pa.Table:
        """Compute the rows, as an Arrow table."""
        return self.engine.fetch(self.node)

    def few(self, most: int) -> pa.Table | None:
        """Compute the rows, or return None if they are more than `most`.

        Also return None if the rows are computed from too many rows.  In this case, the caller
        should not fetch the rows, but let the engine write them.
        """
        return self.engine.few(self.node, most)

    def fetched_few(self, most: int) -> Relation | None:
        """Compute the rows like `few`, and return a relation that has them in memory."""
        rows = self.few(most)
        return None if rows is None else Relation(self.engine, Rows(rows))

    def fetched(self) -> Relation:
        """Compute the rows, and return a relation that has them in memory."""
        return Relation(self.engine, Rows(self.arrow()))

    def collect(self) -> list[Record]:
        """Compute the rows, one dictionary per row."""
        return records_of(self.arrow())

    def stream(self, expected_rows: int) -> Iterator[Record]:
        """Yield the rows, one dictionary per row, as they are read.

        Args:
            expected_rows: the expected number of rows.
        """
        return self.engine.stream(self.node, expected_rows)

    def first(self) -> Record | None:
        """Compute the first row, or return None if there is none."""
        records = self.limit(1).collect()
        return records[0] if records else None

    def count(self) -> int:
        """Compute the number of rows."""
        if isinstance(self.node, Rows):
            return int(self.node.arrow.num_rows)
        rows = self.sql("SELECT count(*) AS n FROM {this} AS this").arrow()
        return int(rows["n"][0].as_py())

    def is_empty(self) -> bool:
        """Return True if there is no row."""
        if isinstance(self.node, Rows):
            return not self.node.arrow.num_rows
        return not self.limit(1).arrow().num_rows


def _known_columns(node: Node) -> tuple[str, ...] | None:
    """Return the names of the columns, or None if only an engine can find them."""
    if isinstance(node, Rows):
        return tuple(node.arrow.column_names)
    if isinstance(node, (TableScan, Mapped)):
        return tuple(node.columns)
    if isinstance(node, Query) and node.is_part:
        return _known_columns(node.inputs["this"])
    return node.columns if isinstance(node, Query) else None


def _names(expressions: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of selected columns, or None if one of the texts has no name at its end."""
    names = []
    for expression in expressions:
        named = _NAMED.fullmatch(expression)
        bare, brackets = _QUOTED.sub("", expression), 1
        while brackets:
            bare, brackets = _BRACKETS.subn("", bare)
        if named is None or "," in bare:  # a comma outside brackets: the text has several columns
            return None
        names.append(named[1])
    return tuple(names)


_NAMED = re.compile(r"(?:.*\sAS\s+)?(\w+)", re.DOTALL)  # a name, or an expression AS a name
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_BRACKETS = re.compile(r"\([^()]*\)")


def _with_scans(node: Node, changed: Callable[[TableScan], TableScan]) -> Node:
    """Return a node with other scans, if its rows are a part of the rows of its tables."""
    if isinstance(node, TableScan):
        return changed(node)
    if isinstance(node, Query) and node.is_part and not node.order_by and node.limit is None:
        inputs = {name: _with_scans(child, changed) for name, child in node.inputs.items()}
        return replace(node, inputs=inputs)
    return node


def union_all(parts: Sequence[Relation]) -> Relation:
    """Return the rows of all parts.

    Args:
        parts: at least one part.  All have the same columns in the same order.
    """
    first, *others = parts
    named = {f"part_{number}": part for number, part in enumerate(others)}
    text = " UNION ALL ".join(f"SELECT * FROM {{{name}}} AS {name}" for name in ("this", *named))
    return first.sql(text, **named)


def union_by_name(parts: Sequence[Relation], types: Mapping[str, str]) -> Relation:
    """Return the rows of all parts with the columns of `types`.

    If a part lacks a column, the column is None in the rows of this part.

    Args:
        parts: at least one part.  Columns that `types` does not name are omitted.
        types: the SQL type of each column, by name.
    """
    names = [f"part_{number}" for number in range(len(parts))]
    selects = []
    for name, part in zip(names, parts, strict=True):
        known = set(part.columns)
        columns = (
            f"CAST({column if column in known else 'NULL'} AS {type_}) AS {column}"
            for column, type_ in types.items()
        )
        selects.append(f"SELECT {', '.join(columns)} FROM {{{name}}} AS {name}")
    inputs = {name: part.node for name, part in zip(names, parts, strict=True)}
    return Relation(parts[0].engine, Query(" UNION ALL ".join(selects), inputs))


def records_of(rows: pa.Table) -> list[Record]:
    """Return rows in memory, one dictionary per row."""
    records: list[Record] = rows.to_pylist(maps_as_pydicts="strict")
    return records


# ------------------------------------------------------------------- for engines


def leaves_of(node: Node) -> Iterator[Node]:
    """Yield the leaves of a graph, including the leaves below its `Mapped` nodes."""
    seen, waiting = set(), [node]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Query):
            waiting += current.inputs.values()
        elif isinstance(current, Mapped):
            waiting.append(current.input)
        else:
            yield current


def made_by(node: Node, column: str) -> Iterator[Query]:
    """Yield the queries of a graph whose `made_by` is a given column."""
    if isinstance(node, Query):
        if node.made_by == column:
            yield node
        else:
            for child in node.inputs.values():
                yield from made_by(child, column)


def in_partition(node: Node, column: str, value: str | None) -> Node:
    """Return a graph in which the queries with a given `made_by` read only one partition.

    Args:
        column: the partition column, which is the `made_by` of these queries.
        value: the value of the partition.  None means that the queries read no rows of tables that
            are partitioned by the column.
    """
    if not isinstance(node, Query):
        return node
    if node.made_by == column:
        return with_leaves(node, lambda leaf: _leaf_in_partition(leaf, (column, value)))
    inputs = {name: in_partition(child, column, value) for name, child in node.inputs.items()}
    return replace(node, inputs=inputs)


def _leaf_in_partition(leaf: Node, partition: tuple[str, str | None]) -> Node:
    if isinstance(leaf, Mapped):
        within = with_leaves(leaf.input, lambda child: _leaf_in_partition(child, partition))
        return replace(leaf, input=within)
    return replace(leaf, partition=partition) if isinstance(leaf, TableScan) else leaf


def with_leaves(node: Node, replaced: Callable[[Node], Node]) -> Node:
    """Return a graph with other leaves.

    Args:
        replaced: returns the new leaf.  It is called once for each leaf, and for each `Mapped`.
    """
    known: dict[int, Node] = {}

    def visit(current: Node) -> Node:
        if id(current) not in known:
            if isinstance(current, Query):
                inputs = {name: visit(child) for name, child in current.inputs.items()}
                known[id(current)] = replace(current, inputs=inputs)
            else:
                known[id(current)] = replaced(current)
        return known[id(current)]

    return visit(node)


@dataclass(frozen=True, slots=True)
class Statement:
    """Hold a graph as one statement.

    Attributes:
        steps: the names and the texts of the inner nodes.  Each node comes after its inputs.  The
            texts contain the names of other steps and of leaves.
        last: a SELECT from the last step, with the order and the limit of the graph.
        uses: by name of a step or leaf, the number of its uses.
        leaves: by name, the leaves that the statement reads.
    """

    steps: tuple[tuple[str, str], ...]
    last: str
    uses: Mapping[str, int]
    leaves: Mapping[str, Node]


def flatten(node: Node, translate: Callable[[str], str]) -> Statement:
    """Return a graph as a sequence of steps over its leaves.

    Args:
        node: the root.  A node that is used twice becomes one step.
        translate: translates a text into the engine's dialect.  The text contains `claimlib_name`
            in place of `{name}`, which is not SQL.
    """
    steps: list[tuple[str, str]] = []
    names: dict[int, str] = {}
    uses: dict[str, int] = {}
    leaves: dict[str, Node] = {}

    def visit(current: Node) -> str:
        known = names.get(id(current))
        if known is not None:
            uses[known] += 1
            return known
        if isinstance(current, Query):
            inputs = {name: visit(child) for name, child in current.inputs.items()}
            clauses = "" if current is node else current.order_and_limit
            text = translate((current.text + clauses).format_map(_Placeholders()))
            text = _PLACEHOLDER.sub(lambda match: inputs.get(match[1], match[0]), text)
            name = f"step_{len(steps)}"
            steps.append((name, text))
        else:
            name = f"leaf_{len(leaves)}"
            leaves[name] = current
        names[id(current)] = name
        uses[name] = 1
        return name

    # The root is a step, too, because its text may begin with WITH, and Spark allows no WITH after
    # another one.  A step does not keep its order, so the last SELECT has the order and the limit.
    root = visit(node)
    clauses = node.order_and_limit if isinstance(node, Query) else ""
    last = translate(f"SELECT * FROM {root}{clauses}")
    return Statement(tuple(steps), last, uses, leaves)


class _Placeholders(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"claimlib_{name}"


_PLACEHOLDER = re.compile(r"\bclaimlib_(\w+)\b")
