"""What every decision about entries asks of a store first."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame

from claimlib.errors import DuplicateRowsError, RequestError
from claimlib.model import MAX_I64
from claimlib.plans.keys import GROUP, IdBounds, KeyMode, colliding_keys, id_bounds
from claimlib.runs import Finished


def check_ms(**given: int | None) -> None:
    """Refuse an instant, or a duration, that is none; null is not given.

    Raises:
        RequestError: it is negative, or beyond 64 bits.
    """
    for name, number in given.items():
        if number is not None and not 0 <= number <= MAX_I64:
            raise RequestError(f"{name} must be between 0 and 2^63-1, not {number}", option=name)


def check_unique(targets: DataFrame) -> None:
    """Refuse a group that is a target twice: it has two rows in `groups` or of its cursor, or its
    stream two in `streams`.

    Raises:
        DuplicateRowsError: naming the group.
    """
    twice = targets.groupBy(*GROUP).count().where("count > 1").first()
    if twice is not None:
        raise DuplicateRowsError(
            f"groups, streams or cursors holds more than one row for {twice['stream']}/"
            f"{twice['consumer_group']}: one row per stream, per group and per cursor of it must be"
            " left",
            table="groups",
            stream=twice["stream"],
            consumer_group=twice["consumer_group"],
        )


def key_mode(pending: DataFrame, known: DataFrame, entries: DataFrame) -> KeyMode:
    """Hashes, unless two names of the store share one."""
    exact = colliding_keys(pending, known, entries).isEmpty()
    return KeyMode.HASHES if exact else KeyMode.NAMES


def near(groups: DataFrame, buckets: int) -> Column:
    """Where the groups' entries lie (see `id_bounds`), as literals: other files of pending and
    entries need not be read."""
    found = [tuple(row) for row in id_bounds(groups, buckets).collect()]
    return IdBounds(tuple(sorted(found))).condition()


def sound_or_named(once: Callable[..., Finished]) -> Finished:
    """A run that takes it for granted that each pending entry has one row; where the kernel met two
    and nothing was decided, the same run again, which asks first which groups have them: too dear a
    question to be asked of every sound store."""
    try:
        return once(refuse_duplicates=False)
    except DuplicateRowsError as error:
        if error.table != "pending":
            raise
        return once(refuse_duplicates=True)
