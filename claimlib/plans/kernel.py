"""Decide sorted ranges of a PEL with vectorized functions, which `mapInPandas` runs.

`decide_range` is for XAUTOCLAIM, and `fold_range` for XCLAIM.  They make the same decisions as
`semantics.scan` in another way.  `scan` reads one group entry by entry.  These functions take whole
batches of many groups at once.  Both share only `semantics.rules`, so that each checks the other.
This module does not use Spark.

A range must be sorted by (group_key, id), with ids compared as unsigned numbers.  For `fold_range`
it must also be sorted by request and position.  The order is checked.  A row out of order means
that the plan is wrong.  Two rows with the same key mean that the table has two rows of one pending
entry.  Both errors stop the run before its decision is written.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from claimlib.errors import DuplicateRowsError
from claimlib.semantics import rules
from claimlib.semantics.model import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The driver recognizes errors of a worker by these texts, because it gets only their text.
BROKEN_ORDER_MARK = "claimlib: a PEL range is not sorted"
NO_REQUEST_MARK = "claimlib: a PEL range has rows of a group without a request"

KEY = ("group_key", "id_ms", "id_seq")
INPUT = (
    *KEY,
    "consumer_key",
    "delivery_time_ms",
    "delivery_count",
    "present",
    "is_spared",
    "is_parking",
)
REQUEST = ("now_ms", "min_idle_ms", "equal_counts", "raise_by", "park_above")
OUTPUT = (
    *KEY,
    "outcome",
    "from_consumer_key",
    "from_delivery_time_ms",
    "from_delivery_count",
    "delivery_count",
)

BULK_KEY = (*KEY, "request_number", "position")
BULK_INPUT = (
    *BULK_KEY,
    "present",
    "is_pending",
    "is_owned",
    "consumer_key",
    "delivery_time_ms",
    "delivery_count",
    "now_ms",
    "min_idle_ms",
    "equal_counts",
    "force",
    "raise_by",
    "retrycount",
    "new_delivery_time_ms",
)
BULK_OUTPUT = (
    *BULK_KEY,
    "outcome",
    "is_pending",
    "from_consumer_key",
    "from_delivery_time_ms",
    "from_delivery_count",
    "delivery_time_ms",
    "delivery_count",
)

Key = tuple[Any, ...]


def worker_python(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield one row per batch, with the version of the Python that runs this function.

    `mapInPandas` runs it like the other functions.
    """
    for _ in batches:
        yield pd.DataFrame({"python": [platform.python_version()]})


def decide_range(batches: Iterable[pd.DataFrame], requests: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Decide each entry of one sorted range.

    The input has one row per examined pending entry, with the columns of `INPUT`.  `group_key` and
    `consumer_key` are 64-bit hashes.  Ids are the BIGINTs of `ids.to_bigint`.  `present` is True if
    the id is in the stream.  For `is_spared` and `is_parking` see `rules.is_claimable`.

    The output has one row per entry that is claimed, parked or deleted, with the columns of
    `OUTPUT`.  `outcome` is an `Outcome`.  The `from_*` columns are the state that was found, and
    `delivery_count` is the new count.  An entry that the rule leaves has no row.

    Args:
        requests: one row per group, with its key as the index and the columns of `REQUEST`.  These
            values are not repeated in the rows of the input, so that those are narrow.

    Raises:
        ValueError: the range is not sorted, has two rows with the same key, or has rows of a group
            without a request.
    """
    by_group = {name: requests[name].to_numpy() for name in REQUEST}
    last: Key | None = None
    for batch in batches:
        if len(batch):
            last = _check_order(batch, last, KEY)
            at = requests.index.get_indexer(pd.Index(batch["group_key"]))
            if at.min() < 0:
                raise ValueError(NO_REQUEST_MARK)
            yield _decide_batch(batch, {name: values[at] for name, values in by_group.items()})


def _decide_batch(batch: pd.DataFrame, request: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
    """Return the decisions of a batch.

    Args:
        request: the columns of `REQUEST`, with one value per row of the batch.
    """
    present = batch["present"].to_numpy()
    delivery_count = batch["delivery_count"].to_numpy()
    idle_enough = rules.is_idle_enough(
        request["now_ms"],
        batch["delivery_time_ms"].to_numpy(),
        request["min_idle_ms"],
        request["equal_counts"],
    )
    exhausted = rules.is_exhausted(delivery_count, request["park_above"])
    claimable = rules.is_claimable(
        idle_enough, batch["is_spared"].to_numpy(), batch["is_parking"].to_numpy(), exhausted
    )
    claimed = rules.is_claimed(present, claimable)
    claimed_or_parked = np.where(exhausted, int(Outcome.PARKED), int(Outcome.CLAIMED))
    raised = rules.raised_count(delivery_count, request["raise_by"], exhausted)
    decided = pd.DataFrame(
        {
            "group_key": batch["group_key"],
            "id_ms": batch["id_ms"],
            "id_seq": batch["id_seq"],
            "outcome": np.where(claimed, claimed_or_parked, int(Outcome.DELETED)).astype("int8"),
            "from_consumer_key": batch["consumer_key"],
            "from_delivery_time_ms": batch["delivery_time_ms"],
            "from_delivery_count": batch["delivery_count"],
            "delivery_count": np.where(claimed, raised, delivery_count),
        }
    )
    touched: NDArray[np.bool_] = rules.is_touched(present, claimable)
    return decided if touched.all() else decided.loc[touched]


def fold_range(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Decide each id that was requested in one sorted range, request after request.

    The input has one row per id that a request names, with the columns of `BULK_INPUT`.
    `is_pending` is True if the group's PEL has the id, and `is_owned` if the id has an owner there.
    `consumer_key`, `delivery_time_ms` and `delivery_count` are the state that was found, or 0 if
    the id is not pending.  The other columns are those of the request.  `new_delivery_time_ms` is
    the delivery time that a claim sets.  `retrycount` is the delivery count that it sets, or -1 if
    the request states none.

    The output has one row per row of the input, with the columns of `BULK_OUTPUT`.  `outcome` is an
    `Outcome`.  The `from_*` columns are the state of the PEL before the first request.
    `delivery_time_ms` and `delivery_count` are those of the id directly after this request.

    Raises:
        ValueError: the range is not sorted, or has two rows with the same key.
    """
    last: Key | None = None
    # The rows of the last id wait for the next batch, which may request this id again.
    waiting = None
    for batch in batches:
        if len(batch):
            last = _check_order(batch, last, BULK_KEY)
            rows = batch if waiting is None else pd.concat([waiting, batch], ignore_index=True)
            start_of_last_id = _starts(rows)[-1]
            yield _fold_batch(rows.iloc[:start_of_last_id])
            waiting = rows.iloc[start_of_last_id:]
    if waiting is not None:
        yield _fold_batch(waiting)


def _fold_batch(batch: pd.DataFrame) -> pd.DataFrame:
    """Return the decisions of a batch that has all requests of its ids.

    The first step decides the first request of each id.  The second step decides the second request
    of each id that has one, and so on.
    """
    starts = _starts(batch)
    # By row: the number of its id in the batch, and the position of its request for this id.
    id_number = np.repeat(np.arange(len(starts)), np.diff([*starts, len(batch)]))
    turn = np.arange(len(batch)) - starts[id_number]
    state = _State.of(batch.iloc[starts])
    outcome = np.zeros(len(batch), dtype="int8")
    time_ms, count = (np.zeros(len(batch), dtype="int64") for _ in range(2))
    last_claim = np.full(len(starts), -1)  # by id: the row of its last claim
    by_turn = np.argsort(turn, kind="stable")
    for step in np.split(by_turn, np.flatnonzero(np.diff(turn[by_turn])) + 1):
        ids = id_number[step]
        outcome[step] = state.decide(ids, batch.iloc[step])
        time_ms[step], count[step] = state.time_ms[ids], state.count[ids]
        claims = step[np.isin(outcome[step], _CLAIMING)]
        last_claim[id_number[claims]] = claims
    superseded = np.isin(outcome, _CLAIMING) & (last_claim[id_number] != np.arange(len(batch)))
    outcome[superseded] = int(Outcome.SUPERSEDED)
    decided = batch[[*BULK_KEY, "is_pending"]].assign(
        outcome=outcome,
        from_consumer_key=batch["consumer_key"],
        from_delivery_time_ms=batch["delivery_time_ms"],
        from_delivery_count=batch["delivery_count"],
        delivery_time_ms=time_ms,
        delivery_count=count,
    )
    return decided[[*BULK_OUTPUT]]


_CLAIMING = (int(Outcome.CLAIMED), int(Outcome.FORCED))


@dataclass
class _State:
    """Hold the state of some ids in the PEL while requests are applied to them."""

    was_pending: NDArray[np.bool_]
    pending: NDArray[np.bool_]
    owned: NDArray[np.bool_]
    time_ms: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _State:
        """Return the state before the requests, from one row per id."""
        return cls(
            was_pending=rows["is_pending"].to_numpy(),
            pending=rows["is_pending"].to_numpy().copy(),
            owned=rows["is_owned"].to_numpy().copy(),
            time_ms=rows["delivery_time_ms"].to_numpy().copy(),
            count=rows["delivery_count"].to_numpy().copy(),
        )

    def decide(self, ids: NDArray[np.int64], rows: pd.DataFrame) -> NDArray[np.int8]:
        """Return the outcomes of different ids, each requested by one row, and update the state.

        Args:
            ids: the positions of the ids in the state.
        """
        pending = self.pending[ids]
        idle_enough = rules.is_idle_enough(
            rows["now_ms"].to_numpy(),
            self.time_ms[ids],
            rows["min_idle_ms"].to_numpy(),
            rows["equal_counts"].to_numpy(),
        )
        present = rows["present"].to_numpy()
        free = rules.goes_to_caller(pending, self.owned[ids], idle_enough, rows["force"].to_numpy())
        claimed = rules.is_claimed(present, free)
        deleted = rules.is_deleted(present) & pending
        self._claim(ids[claimed], rows.iloc[np.flatnonzero(claimed)])
        self.pending[ids] = claimed | (pending & present)
        if_claimed = np.where(self.was_pending[ids], int(Outcome.CLAIMED), int(Outcome.FORCED))
        otherwise = np.where(pending, int(Outcome.LEFT), int(Outcome.NOT_PENDING))
        outcomes = np.select([claimed, deleted], [if_claimed, int(Outcome.DELETED)], otherwise)
        return outcomes.astype("int8")

    def _claim(self, ids: NDArray[np.int64], rows: pd.DataFrame) -> None:
        before = np.where(self.pending[ids], self.count[ids], rules.FORCED_COUNT)
        raised = rules.raised_count(before, rows["raise_by"].to_numpy(), exhausted=False)
        retrycount = rows["retrycount"].to_numpy()
        self.count[ids] = np.where(retrycount >= 0, retrycount, raised)
        self.time_ms[ids] = rows["new_delivery_time_ms"].to_numpy()
        self.owned[ids] = True


def _starts(rows: pd.DataFrame) -> NDArray[np.int64]:
    """Return the positions of the first row of each id."""
    changes = reduce(or_, (column[1:] != column[:-1] for column in _columns(rows, KEY)))
    return np.concatenate([np.zeros(min(len(rows), 1), dtype=int), np.flatnonzero(changes) + 1])


def _check_order(batch: pd.DataFrame, last: Key | None, key: tuple[str, ...]) -> Key:
    """Check the order of a batch, and return its last key.

    Args:
        last: the last key of the previous batch, or None for the first batch.

    Raises:
        ValueError: the keys from `last` to the end of the batch do not strictly increase.
    """
    columns = _columns(batch, key)
    if last is not None:
        columns = [
            np.concatenate([np.array([before], dtype=column.dtype), column])
            for before, column in zip(last, columns, strict=True)
        ]
    is_equal = np.full(len(columns[0]) - 1, fill_value=True)
    is_larger = ~is_equal
    for column in columns:
        is_larger |= is_equal & (column[1:] > column[:-1])
        is_equal &= column[1:] == column[:-1]
    if np.any(is_equal):
        raise ValueError(DuplicateRowsError.IN_WORKER)
    if not np.all(is_larger):
        raise ValueError(BROKEN_ORDER_MARK)
    return tuple(column[-1] for column in columns)


def _columns(rows: pd.DataFrame, key: tuple[str, ...]) -> list[NDArray[Any]]:
    """Return the columns of a key.  The halves of ids are converted to unsigned numbers."""
    return [_unsigned(rows[name]) if name in _HALVES else rows[name].to_numpy() for name in key]


_HALVES = ("id_ms", "id_seq")


def _unsigned(column: pd.Series[int]) -> NDArray[np.uint64]:
    return column.to_numpy(dtype=np.int64).view(np.uint64)
