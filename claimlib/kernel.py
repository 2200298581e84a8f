"""What happens to a sorted range of a PEL, vectorised: the function that `mapInPandas` runs.

The same decisions as `scan`, reached another way: `scan` walks one group entry by entry, this takes
whole batches of many groups at once.  The two share `rules` and nothing else, so that each checks
the other.  No Spark here, and no state but the last key of the batch before.

A range is promised sorted by (group_key, id), ids compared as unsigned numbers.  The promise is
checked: a row out of order would mean that the plan broke it, an equal one that the table holds two
rows of one pending entry; both stop the run before anything is decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from claimlib import rules
from claimlib.model import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What stands in the message of an error that crosses from a worker to the driver as text only.
DUPLICATE_KEY_MARK = "claimlib: two pending rows have one key"
BROKEN_ORDER_MARK = "claimlib: a PEL range is not sorted"

KEY = ("group_key", "id_ms", "id_seq")
INPUT = (
    *KEY,
    "consumer_key",
    "delivery_time_ms",
    "delivery_count",
    "present",
    "now_ms",
    "min_idle_ms",
    "equal_counts",
    "raise_by",
    "is_spared",
    "is_parking",
    "park_above",
)
OUTPUT = (
    *KEY,
    "outcome",
    "from_consumer_key",
    "from_delivery_time_ms",
    "from_delivery_count",
    "delivery_count",
)

Key = tuple[Any, int, int]


def decide_range(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Decide each entry of one sorted range.

    In: one row per examined pending entry with the columns of `INPUT`: `group_key` and
    `consumer_key` are 64-bit hashes (or names, where hashes collide), ids the BIGINTs of
    `ids.to_bigint`, `present` whether the id is in the stream, `is_spared` and `is_parking` what
    `rules.is_claimable` asks about the owner, the rest the request of the entry's group.  Out: one
    row per entry that is claimed, parked or deleted, with the columns of `OUTPUT`; `outcome` is an
    `Outcome`, the `from_*` columns are what was found, `delivery_count` is the new count.  A row
    that the rule leaves alone gives none.

    Raises:
        ValueError: the range is not sorted, or holds two rows of one key.
    """
    last: Key | None = None
    for batch in batches:
        if len(batch):
            last = _check_order(batch, last)
            yield _decide_batch(batch)


def _decide_batch(batch: pd.DataFrame) -> pd.DataFrame:
    present = batch["present"].to_numpy()
    delivery_count = batch["delivery_count"].to_numpy()
    idle_enough = rules.is_idle_enough(
        batch["now_ms"].to_numpy(),
        batch["delivery_time_ms"].to_numpy(),
        batch["min_idle_ms"].to_numpy(),
        batch["equal_counts"].to_numpy(),
    )
    exhausted = rules.is_exhausted(delivery_count, batch["park_above"].to_numpy())
    claimable = rules.is_claimable(
        idle_enough, batch["is_spared"].to_numpy(), batch["is_parking"].to_numpy(), exhausted
    )
    claimed = rules.is_claimed(present, claimable)
    handed_over = np.where(exhausted, int(Outcome.PARKED), int(Outcome.CLAIMED))
    raised = rules.raised_count(delivery_count, batch["raise_by"].to_numpy(), exhausted)
    decided = pd.DataFrame(
        {
            "group_key": batch["group_key"],
            "id_ms": batch["id_ms"],
            "id_seq": batch["id_seq"],
            "outcome": np.where(claimed, handed_over, int(Outcome.DELETED)).astype("int8"),
            "from_consumer_key": batch["consumer_key"],
            "from_delivery_time_ms": batch["delivery_time_ms"],
            "from_delivery_count": batch["delivery_count"],
            "delivery_count": np.where(claimed, raised, delivery_count),
        }
    )
    touched: NDArray[np.bool_] = rules.is_touched(present, claimable)
    return decided.loc[touched]


def _check_order(batch: pd.DataFrame, last: Key | None) -> Key:
    """The batch's last key, after every step from `last` through the batch went strictly up."""
    group = batch["group_key"].to_numpy()
    ms, seq = _unsigned(batch["id_ms"]), _unsigned(batch["id_seq"])
    if last is not None:
        group = np.concatenate([np.array([last[0]], dtype=group.dtype), group])
        ms = np.concatenate([np.array([last[1]], dtype=np.uint64), ms])
        seq = np.concatenate([np.array([last[2]], dtype=np.uint64), seq])
    same_group, same_ms = group[1:] == group[:-1], ms[1:] == ms[:-1]
    if np.any(same_group & same_ms & (seq[1:] == seq[:-1])):
        raise ValueError(DUPLICATE_KEY_MARK)
    up = (group[1:] > group[:-1]) | (
        same_group & ((ms[1:] > ms[:-1]) | (same_ms & (seq[1:] > seq[:-1])))
    )
    if not np.all(up):
        raise ValueError(BROKEN_ORDER_MARK)
    return group[-1], int(ms[-1]), int(seq[-1])


def _unsigned(column: pd.Series[int]) -> NDArray[np.uint64]:
    return column.to_numpy(dtype=np.int64).view(np.uint64)
