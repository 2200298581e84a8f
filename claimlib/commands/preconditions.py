"""Check the preconditions of decisions about entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from claimlib.engine.relation import IdBounds, Relation
from claimlib.errors import DuplicateRowsError, HashCollisionError, RequestError
from claimlib.plans.keys import (
    GROUP,
    IS_SHARED,
    is_group,
    named_keys,
    owners_of_keys,
    spelled_name,
)
from claimlib.plans.survey import NOT_IN_GROUPS
from claimlib.semantics.model import MAX_I64
from claimlib.semantics.names import spell
from claimlib.semantics.words import no_group
from claimlib.terminal import listed, one_line

T = TypeVar("T")


def check_ms(**instants: int | None) -> None:
    """Raise RequestError if a time or a duration is out of range.

    None means that it was not given.

    Raises:
        RequestError: it is negative, or beyond 64 bits.
    """
    for name, number in instants.items():
        if number is not None and not 0 <= number <= MAX_I64:
            raise RequestError(f"{name} must be between 0 and 2^63-1, not {number}", option=name)


def refuse_shared_hashes(shared: Iterable[Row | Mapping[str, Any]]) -> None:
    """Raise HashCollisionError if two names share a hash.

    Args:
        shared: the rows of `keys.named_keys` that `IS_SHARED`.
    """
    # Streams that share a hash are named first, because their groups then share one, too.
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


def owners_of(pending: Relation, known: Relation, entries: Relation) -> Relation:
    """Return one row per owner of pending entries.

    Columns: from_consumer_key, from_consumer, `is_known`.  One row per name of a consumer passes
    through this process.

    Raises:
        HashCollisionError: two names of the store share a hash.
    """
    named = named_keys(pending, pending, known, entries).fetched()
    refuse_shared_hashes(named.where(IS_SHARED).collect())
    return owners_of_keys(named)


def near(groups: pa.Table) -> IdBounds:
    """Return the bounds of the entries of groups.

    Other files of pending and entries need not be read.

    Args:
        groups: one row per group, with its `bucket`, `low_ms` and `high_ms`.  These two are the
            smallest and the largest BIGINT in the id_ms of its entries, or of the requested ids.
            They are None if there are none.
    """
    ids = groups.filter(pc.field("low_ms").is_valid())
    ends = ids.group_by("bucket").aggregate([("low_ms", "min"), ("high_ms", "max")])
    columns = (ends[name].to_pylist() for name in ("bucket", "low_ms_min", "high_ms_max"))
    return IdBounds(tuple(sorted(zip(*columns, strict=True))))


def where_ids_lie(rows: Relation) -> IdBounds:
    """Return the bounds of rows of a table that has buckets, by one query."""
    bounds = rows.sql(
        "SELECT bucket, min(id_ms) AS low, max(id_ms) AS high FROM {this} AS this GROUP BY bucket"
    ).collect()
    return IdBounds(tuple(sorted((row["bucket"], row["low"], row["high"]) for row in bounds)))


ENTRY_IDS = ("stream", "stream_key", "bucket", "id_ms", "id_seq")
"""List the columns of `entries` that decisions read.  Payloads are not read."""


_COMPARED = 10_000
_SHOWN = 6


def groups_like(groups: Relation, wanted: Sequence[str]) -> str:
    """Return the text for a message if no group has a name.

    It names the known groups, similar names first.  If no name is similar, stream and group are
    exchanged and compared again.  A user may have given them in the wrong order.

    Args:
        groups: the table.  Of more than ten thousand groups the first by name are compared.
        wanted: names or globs, each as `stream / group`.  A few of them are compared.
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


def refuse_unknown_group(groups: Relation, stream: bytes, group: bytes) -> None:
    """Raise RequestError if a group is missing from the table groups.

    The message names similar groups.
    """
    names = (spell(stream), spell(group))
    if groups.where(is_group(*names)).is_empty():
        no_such = f"{no_group(stream, group).message}{NOT_IN_GROUPS}"
        known = groups_like(groups, [" / ".join(names)])
        raise RequestError(f"{no_such}; {known}", group="/".join(names))


def consumers_like(consumers: Relation, wanted: str) -> str:
    """Return the text for a message if no group has a consumer.

    It names the known consumers, similar names first.

    Args:
        consumers: one row per name.  Of more than ten thousand names the first are compared.
        wanted: the spelled name.
    """
    rows = consumers.order_by("consumer").limit(_COMPARED).collect()
    names = [one_line(row["consumer"]) for row in rows]
    if not names:
        return "no consumer is known"
    total = len(names) if len(names) < _COMPARED else consumers.count()
    return f"known consumers: {listed(_similar([wanted], names) or names[:_SHOWN], total)}"


def _similar(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    near = (get_close_matches(name, names, n=3, cutoff=0.5) for name in wanted[:_SHOWN])
    return list(dict.fromkeys(name for matches in near for name in matches))[:_SHOWN]


def nothing_matches(where: str, groups: Relation, globs: Sequence[str]) -> str:
    """Return the text for a message if no group of the table `groups` matches globs.

    Each glob is given as `stream / group`.
    """
    hint = " (in a glob, a backslash escapes the next character, and ? matches one byte)"
    return (
        f"no consumer group of {where} matches {', '.join(globs)} (stream / group);"
        f" {groups_like(groups, globs)}{hint if any(map(_has_backslash, globs)) else ''}"
    )


def _has_backslash(glob: str) -> bool:
    return "\\" in glob


def retry_naming_duplicates(once: Callable[..., T]) -> T:
    """Do a run, and repeat it if `pending` has two rows of one entry.

    The first run, or dry run, assumes that each pending entry has one row.  If the kernel finds two
    rows, nothing is decided.  The repeat first finds the groups with such rows, which costs too
    much to do in every run.
    """
    try:
        return once(refuse_duplicates=False)
    except DuplicateRowsError as error:
        if error.table != "pending":
            raise
        return once(refuse_duplicates=True)
