"""What every decision about entries asks of a store first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame

from claimlib.errors import DuplicateRowsError, RequestError
from claimlib.model import MAX_I64
from claimlib.plans.keys import (
    IS_SHARED,
    IdBounds,
    KeyMode,
    id_bounds,
    named_keys,
    owners_by_name,
    owners_of_keys,
)
from claimlib.runs import Finished
from claimlib.store import Store


def check_ms(**given: int | None) -> None:
    """Refuse an instant, or a duration, that is none; null is not given.

    Raises:
        RequestError: it is negative, or beyond 64 bits.
    """
    for name, number in given.items():
        if number is not None and not 0 <= number <= MAX_I64:
            raise RequestError(f"{name} must be between 0 and 2^63-1, not {number}", option=name)


@dataclass(frozen=True, slots=True)
class Names:
    """How names travel through a plan, and how they are put back.

    Attributes:
        owners: one row per owner of pending entries: from_consumer_key, from_consumer, `found`.
    """

    mode: KeyMode
    owners: DataFrame


def names_of(store: Store, pending: DataFrame, known: DataFrame, entries: DataFrame) -> Names:
    """Hashes, unless two names of the store share one.  One row per consumer's name passes through
    the driver."""
    named = store.held(named_keys(pending, known, entries))
    if named.where(IS_SHARED).isEmpty():
        return Names(KeyMode.HASHES, owners_of_keys(named))
    return Names(KeyMode.NAMES, owners_by_name(pending))


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
