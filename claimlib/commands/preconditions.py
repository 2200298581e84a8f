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
from claimlib.schema import quote_text
from claimlib.semantics.model import MAX_I64
from claimlib.semantics.names import spell
from claimlib.semantics.words import no_group
from claimlib.terminal import listed, one_line

T = TypeVar("T")


def check_ms(**instants: int | None) -> None:
    """Raise RequestError if a time or a duration is out of range.

    Args:
        instants: the times and durations, by their names for the message.  None if not given.

    Raises:
        RequestError: a number is negative, or larger than 2^63-1.
    """
    for name, number in instants.items():
        if number is not None and not 0 <= number <= MAX_I64:
            raise RequestError(f"{name} must be between 0 and 2^63-1, not {number}", option=name)


def refuse_shared_hashes(shared: Iterable[Row | Mapping[str, Any]]) -> None:
    """Raise HashCollisionError if two names share a hash.

    Args:
        shared: the rows of `keys.named_keys` that `IS_SHARED`.
    """
    # Of the kinds `stream`, `group` and `consumer`, a stream is named first.  If streams share a
    # hash, their groups share one, too.
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

    Files of pending and entries outside these bounds need not be read.

    Args:
        groups: one row per group, with its `bucket`, `low_ms` and `high_ms`.  The last two are the
            smallest and the largest BIGINT in the id_ms of its entries, or of the requested ids.
            They are None if the group has no such ids.
    """
    ids = groups.filter(pc.field("low_ms").is_valid())
    ends = ids.group_by("bucket").aggregate([("low_ms", "min"), ("high_ms", "max")])
    columns = (ends[name].to_pylist() for name in ("bucket", "low_ms_min", "high_ms_max"))
    return IdBounds(tuple(sorted(zip(*columns, strict=True))))


def bounds_of_rows(rows: Relation) -> IdBounds:
    """Return the bounds of rows of a table that has buckets, by one query."""
    bounds = rows.sql(
        "SELECT bucket, min(id_ms) AS low, max(id_ms) AS high FROM {this} AS this GROUP BY bucket"
    ).collect()
    return IdBounds(tuple(sorted((row["bucket"], row["low"], row["high"]) for row in bounds)))


ENTRY_IDS = ("stream", "stream_key", "bucket", "id_ms", "id_seq")
"""List the columns of `entries` that decisions read.  Payloads are not read."""


_MOST_COMPARED = 10_000
_MOST_SHOWN = 6


def groups_like(groups: Relation, wanted: Sequence[str]) -> str:
    """Return a text that names the known groups, for a message about an unknown group.

    Similar names come first.  If no name is similar, stream and group are swapped and compared
    again, because a user may have given them in the wrong order.

    Args:
        groups: the table `groups`.  Only its first ten thousand groups by name are compared.
        wanted: names or globs, each as `stream / group`.  Only the first few are compared.
    """
    keys = groups.distinct(*GROUP)
    rows = keys.order_by(*GROUP).limit(_MOST_COMPARED).collect()
    names = [" / ".join(one_line(row[name]) for name in GROUP) for row in rows]
    swapped = [" / ".join(reversed(name.split(" / "))) for name in wanted]
    shown = _similar(wanted, names) or _similar(swapped, names) or names[:_MOST_SHOWN]
    if not names:
        return "the store has no consumer groups"
    total = len(names) if len(names) < _MOST_COMPARED else keys.count()
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


def names_like(rows: Relation, column: str, wanted: str) -> str:
    """Return a text that names the known streams or consumers, for a message about an unknown name.

    Similar names come first.

    Args:
        rows: one row per name.  Only the first ten thousand names are compared.
        column: `stream` or `consumer`.
        wanted: the spelled name.
    """
    known = rows.order_by(column).limit(_MOST_COMPARED).collect()
    names = [one_line(row[column]) for row in known]
    if not names:
        return f"no {column} is known"
    total = len(names) if len(names) < _MOST_COMPARED else rows.count()
    return f"known {column}s: {listed(_similar([wanted], names) or names[:_MOST_SHOWN], total)}"


def refuse_unknown_consumer(
    consumers: Relation, pending: Relation, consumer: str, place: str
) -> None:
    """Raise RequestError if no row names a consumer.

    The message names similar consumers.

    Args:
        consumers: rows of the table consumers.
        pending: rows of the table pending.
        consumer: the spelled name.
        place: the beginning of the message, such as `no consumer group has a consumer`.
    """
    is_wanted = f"consumer = {quote_text(consumer)}"
    if not all(rows.where(is_wanted).is_empty() for rows in (consumers, pending)):
        return
    known = consumers.sql(
        "SELECT consumer FROM {this} AS this"
        " UNION SELECT consumer FROM {pending} AS pending WHERE consumer IS NOT NULL",
        pending=pending,
    )
    raise RequestError(
        f"{place} {one_line(consumer)}; {names_like(known, 'consumer', consumer)}",
        option="consumer",
    )


def _similar(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    similar = (get_close_matches(name, names, n=3, cutoff=0.5) for name in wanted[:_MOST_SHOWN])
    return list(dict.fromkeys(name for matches in similar for name in matches))[:_MOST_SHOWN]


def nothing_matches(where: str, groups: Relation, globs: Sequence[str]) -> str:
    """Return the message for globs that match no group of the table `groups`.

    Args:
        where: the location of the store.
        globs: the globs, each as `stream / group`.
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

    The first attempt assumes that each pending entry has one row.  If the kernel finds two rows,
    nothing is decided.  The repeat first finds and refuses the groups with such rows.  This costs
    too much to do in every run.

    Args:
        once: does the run, or the dry run.
    """
    try:
        return once(refuse_duplicates=False)
    except DuplicateRowsError as error:
        if error.table != "pending":
            raise
        return once(refuse_duplicates=True)
