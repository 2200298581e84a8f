"""What every decision about entries asks of a store first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from claimlib.engine.relation import Relation
from claimlib.errors import DuplicateRowsError, HashCollisionError, RequestError
from claimlib.plans import survey
from claimlib.plans.keys import GROUP, IdBounds, named_keys, owners_of_keys, spelled_name
from claimlib.semantics.model import MAX_I64
from claimlib.store.tables import FEW_OF_SPARK, FEW_ROWS, Store
from claimlib.store.threads import concurrently
from claimlib.terminal import listed, one_line

T = TypeVar("T")


def check_ms(**instants: int | None) -> None:
    """Refuse an instant, or a duration, that is none; null is not given.

    Raises:
        RequestError: it is negative, or beyond 64 bits.
    """
    for name, number in instants.items():
        if number is not None and not 0 <= number <= MAX_I64:
            raise RequestError(f"{name} must be between 0 and 2^63-1, not {number}", option=name)


def refuse_shared_hashes(shared: Iterable[Row | Mapping[str, Any]]) -> None:
    """Raise HashCollisionError if two names share a hash.

    Args:
        shared: the rows of `keys.shared_keys`.
    """
    # Streams that share a hash come before their groups, which then share one, too.
    row = max(shared, key=lambda row: row["of"], default=None)
    if row is None:
        return
    names = [one_line(spelled_name(row["of"], row[end])) for end in ("one", "other")]
    raise HashCollisionError(
        f"the {row['of']}s '{names[0]}' and '{names[1]}' have the same 64-bit hash, by which runs"
        " tell names apart. Nothing was changed. Rename one of them where the store's rows come"
        " from (by accident, 3 in 10^8 stores with a million names have such a pair)",
        names=names,
    )


def owners_of(store: Store, pending: DataFrame, known: DataFrame, entries: DataFrame) -> DataFrame:
    """Return one row per owner of pending entries: from_consumer_key, from_consumer, `is_known`.
    One row per consumer's name passes through the driver.

    Raises:
        HashCollisionError: two names of the store share a hash.
    """
    groups = pending.select(*GROUP).distinct()
    named = named_keys(
        groups, pending, known, entries, in_one_task=are_few(store, pending, entries)
    )
    return _owners(store, named.toArrow(), named.schema)


def _owners(store: Store, named: pa.Table, struct: StructType) -> DataFrame:
    """`named`: the rows of `named_keys`, and their types."""
    is_shared = pc.field("one") != pc.field("other")  # `keys.IS_SHARED`, of rows in memory
    refuse_shared_hashes(named.filter(is_shared).to_pylist())
    owners = named.filter(pc.field("of") == "consumer")
    return owners_of_keys(store.in_memory(owners, struct))


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the tables finds.

    Attributes:
        owners: see `owners_of`.
        sums: one row per group that has entries: stream, consumer_group and `survey.totals`.
    """

    owners: DataFrame
    sums: DataFrame


def look(
    store: Store, pending: DataFrame, targets: DataFrame, entries: DataFrame, run_seq: int
) -> Look:
    """Return who owns entries, and what is pending in each group: one query of Spark's, and for
    large tables that delta-rs reads three of its own.  One row per group and one per consumer's
    name pass through the driver, and up to `_MOST_NAMES` of streams.

    The owners' names are a scan of their own, of one column: where most entries are their owner's
    only one in its group, sums by owner are hardly fewer rows than `pending` has.

    Args:
        targets: `requests.standing`, whose names also count, of groups that have no entries.
        run_seq: that of the run which looks.

    Raises:
        HashCollisionError: see `owners_of`.
    """
    groups, consumers, streams = _summed(store, pending, targets, entries, run_seq)
    few = are_few(store, pending, entries)
    named = named_keys(groups, consumers, targets, streams, survey.totals(), in_one_task=few)
    fetched, struct = named.toArrow(), named.schema
    owners = _owners(store, fetched, struct)
    of_groups = fetched.filter(pc.field("of") == "group").filter(
        pc.field("pending_before").is_valid()
    )
    sums = store.in_memory(of_groups, struct).drop("of", "key", "one", "other")
    return Look(owners, sums)


# Of more names Spark makes the distinct ones, which it need not hold.
_MOST_NAMES = 1_000_000


def _summed(
    store: Store, pending: DataFrame, targets: DataFrame, entries: DataFrame, run_seq: int
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """`survey.by_group`, and rows with the names of all owners and of all streams with entries.

    Of ten million rows in a local folder this took delta-rs 0.5 s, and Spark 3 s.
    """
    surveyed = survey.surveyed_of(targets)
    sums = store.queried(pending, survey.by_group_sql(run_seq), surveyed=surveyed)
    consumers = store.queried(pending, "SELECT DISTINCT consumer FROM t", _MOST_NAMES)
    streams = store.queried(entries, "SELECT DISTINCT stream FROM t", _MOST_NAMES)
    return (
        store.in_memory(sums) if sums is not None else survey.by_group(pending, surveyed, run_seq),
        store.in_memory(consumers) if consumers is not None else pending,
        store.in_memory(streams) if streams is not None else entries,
    )


def near(groups: pa.Table) -> IdBounds:
    """Where the groups' entries lie: other files of pending and entries need not be read.

    Args:
        groups: one row per group: its `bucket`, and `low_ms` and `high_ms`, the smallest and the
            largest BIGINT in the id_ms of what it has, or is asked for (null: nothing).
    """
    ids = groups.filter(pc.field("low_ms").is_valid())
    ends = ids.group_by("bucket").aggregate([("low_ms", "min"), ("high_ms", "max")])
    columns = (ends[name].to_pylist() for name in ("bucket", "low_ms_min", "high_ms_max"))
    return IdBounds(tuple(sorted(zip(*columns, strict=True))))


def where_ids_lie(rows: DataFrame) -> Column:
    """`near` as a condition, of rows of a table that has buckets.  One query."""
    ids = (F.min("id_ms").alias("low"), F.max("id_ms").alias("high"))
    bounds = rows.groupBy("bucket").agg(*ids).collect()
    return IdBounds(tuple(sorted(map(tuple, bounds)))).condition()


ENTRY_IDS = ("stream", "stream_key", "bucket", "id_ms", "id_seq")
"""What decisions are made of in `entries`: no payloads."""


def few_held(store: Store, *parts: DataFrame) -> list[DataFrame]:
    """`Store.few_or_all` of the parts of `pending` and of `entries` that a decision is made of."""
    return concurrently(partial(store.few_or_all, rows) for rows in parts)


def few_near(store: Store, bounds: IdBounds, *parts: DataFrame) -> list[DataFrame]:
    """The parts of tables within bounds, few rows of them from the driver's memory; what is there
    already stays as it is."""

    def within(rows: DataFrame) -> DataFrame:
        return rows if store.is_held(rows) else store.few_where(rows, bounds)

    return concurrently(partial(within, rows) for rows in parts)


def are_few(store: Store, *parts: DataFrame) -> bool:
    """Whether parts of the tables are so few rows of the driver's memory that one task may look at
    all of them."""
    return all(store.is_held(rows, FEW_ROWS) for rows in parts)


def are_decided_by_few(store: Store, pending: DataFrame, entries: DataFrame) -> bool:
    """Whether what is decided of these parts of the tables is few rows, made of few: a decision
    that one task makes must not have millions of entries to look through, but where a page or so of
    `pending` is looked for in them; nor be made of many rows, to be made again by Spark."""
    return store.is_held(pending, FEW_ROWS if store.is_held(entries) else FEW_OF_SPARK)


_COMPARED = 10_000
_SHOWN = 6


def groups_like(groups: Relation, wanted: Sequence[str]) -> str:
    """What to say if no group has a name: the known groups, similar names first.

    Args:
        groups: the table; of more than ten thousand groups the first by name are compared.
        wanted: `stream / group` each, of which a few are compared; globs are as they are.  Where
            nothing is similar, what somebody may have given in the wrong order.
    """
    keys = groups.distinct(*GROUP)
    rows = keys.order_by(*GROUP).limit(_COMPARED).collect()
    names = [" / ".join(one_line(row[name]) for name in GROUP) for row in rows]
    swapped = [" / ".join(reversed(name.split(" / "))) for name in wanted]
    shown = _similar(wanted, names) or _similar(swapped, names) or names[:_SHOWN]
    if not names:
        return "the store has no consumer groups"
    total = len(names) if len(names) < _COMPARED else keys.count()
    return f"known groups: {listed(shown, total)}"


def _similar(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    near = (get_close_matches(name, names, n=3, cutoff=0.5) for name in wanted[:_SHOWN])
    return list(dict.fromkeys(name for matches in near for name in matches))[:_SHOWN]


def nothing_matches(where: str, groups: Relation, globs: Sequence[str]) -> str:
    """What to say where no group of the table `groups` matches globs, `stream / group` each."""
    hint = " (in a glob, a backslash escapes the next character, and ? matches one byte)"
    return (
        f"no consumer group of {where} matches {', '.join(globs)} (stream / group);"
        f" {groups_like(groups, globs)}{hint if any(map(_has_backslash, globs)) else ''}"
    )


def _has_backslash(glob: str) -> bool:
    return "\\" in glob


def retry_naming_duplicates(once: Callable[..., T]) -> T:
    """A run, or a dry run, that takes it for granted that each pending entry has one row; where the
    kernel met two and nothing was decided, the same run again, which asks first which groups have
    them: too dear a question to be asked of every sound store."""
    try:
        return once(refuse_duplicates=False)
    except DuplicateRowsError as error:
        if error.table != "pending":
            raise
        return once(refuse_duplicates=True)
