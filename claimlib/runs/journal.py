"""What a decision left in the journal: its `run` row, its rows by kind, and where they lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from claimlib.plans.keys import IdBounds, KeyMode
from claimlib.store import Pins, Store

# One transaction id for every kind of run on a store: that is what serialises them.
APP_ID = "claimlib"
# What a run found lost follows its decision under an id of its own: Delta would skip it else.
LOST_APP_ID = "claimlib-lost"


class Kind(StrEnum):
    """What a journal row says."""

    RUN = "run"
    CLAIMED = "claimed"
    FORCED = "forced"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    ACKED = "acked"
    LEFT = "left"
    NOT_PENDING = "not_pending"
    LOST = "lost"
    ASKED = "asked"
    SWEPT = "swept"
    REFUSED = "refused"
    CONSUMER = "consumer"
    CURSOR = "cursor"
    LASTID = "lastid"
    RETIRED = "retired"
    GROUP = "group"
    STREAM = "stream"


# Rows of `pending` that change or go, each only while it is as the decision found it.
TOUCHING = (Kind.CLAIMED, Kind.DELETED, Kind.ACKED)
# What a run's report counts.
COUNTED = (
    *(Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED, Kind.DELETED, Kind.ACKED),
    *(Kind.LEFT, Kind.NOT_PENDING, Kind.ASKED, Kind.SWEPT, Kind.REFUSED, Kind.CURSOR),
)


@dataclass(frozen=True, slots=True)
class Landed:
    """What was landed for a decision: the landing's uuid, and the version of `entry_landing` that
    holds it, for it is swept at the run's end."""

    uuid: str
    version: int


@dataclass(frozen=True, slots=True)
class RunRow:
    """The `run` row of one decision: who decided what, from which versions."""

    run_seq: int
    command: str
    run_id: str
    attempt: str
    request: str
    request_hash: str
    landed: Landed | None
    now_ms: int | None
    source: str | None
    pins: Pins
    key_mode: KeyMode
    counts: Mapping[str, int]

    @property
    def key(self) -> str:
        """The run as people name it."""
        return f"{self.command}:{self.run_id}"

    @property
    def note(self) -> str:
        """What the run's commits carry as user metadata."""
        return f"claimlib run {self.run_seq} {self.key}"

    @classmethod
    def of(cls, row: Row) -> RunRow:
        """The run that a journal row of kind `run` states."""
        inputs = json.loads(row["inputs"])
        return cls(
            run_seq=row["run_seq"],
            command=row["command"],
            run_id=row["run_id"],
            attempt=row["attempt"],
            request=row["request"],
            request_hash=row["request_hash"],
            landed=row["landing"] and Landed(row["landing"], inputs["landed_version"]),
            now_ms=row["now_ms"],
            source=row["source"],
            pins=Pins(versions=inputs["versions"], table_ids=inputs["table_ids"]),
            key_mode=KeyMode(inputs["key_mode"]),
            counts=inputs["counts"],
        )

    def values(self) -> dict[str, object]:
        """The row as it is written."""
        inputs = {
            "versions": dict(self.pins.versions),
            "table_ids": dict(self.pins.table_ids),
            "key_mode": str(self.key_mode),
            "landed_version": self.landed and self.landed.version,
            "counts": dict(self.counts),
        }
        return {
            "run_seq": self.run_seq,
            "kind": str(Kind.RUN),
            "command": self.command,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "landing": self.landed and self.landed.uuid,
            "request": self.request,
            "request_hash": self.request_hash,
            "now_ms": self.now_ms,
            "source": self.source,
            "inputs": json.dumps(inputs, sort_keys=True),
        }


@dataclass(frozen=True, slots=True)
class Tally:
    """How many journal rows a run has of each kind, and where the ids of its claims and purges
    lie."""

    counts: Mapping[str, int]
    bounds: IdBounds

    def of(self, *kinds: Kind) -> int:
        """The number of rows of some kinds."""
        return sum(self.counts.get(str(kind), 0) for kind in kinds)


def run_rows(store: Store, after_seq: int) -> list[RunRow]:
    """The decisions later than `after_seq`, in order."""
    rows = store.read("journal").where((F.col("kind") == Kind.RUN) & (F.col("run_seq") > after_seq))
    return sorted((RunRow.of(row) for row in rows.collect()), key=lambda run: run.run_seq)


def rows_of(store: Store, run_seq: int, *kinds: Kind) -> DataFrame:
    """The journal rows of one run and of some kinds: a plain scan, pruned by statistics."""
    wanted = F.col("kind").isin([str(kind) for kind in kinds])
    return store.read("journal").where((F.col("run_seq") == run_seq) & wanted)


def tally(store: Store, run_seq: int) -> Tally:
    """Count a run's rows: at most one row per kind and bucket comes to the driver."""
    counted = (
        store.read("journal")
        .where(F.col("run_seq") == run_seq)
        .groupBy("kind", "bucket")
        .agg(F.count("*").alias("n"), F.min("id_ms").alias("low"), F.max("id_ms").alias("high"))
        .collect()
    )
    counts: dict[str, int] = {}
    bounds: dict[int, tuple[int, int]] = {}
    for row in counted:
        counts[row["kind"]] = counts.get(row["kind"], 0) + row["n"]
        if row["kind"] in (*TOUCHING, Kind.FORCED):
            low, high = bounds.get(row["bucket"], (row["low"], row["high"]))
            bounds[row["bucket"]] = (min(low, row["low"]), max(high, row["high"]))
    return Tally(counts, IdBounds(tuple((b, *bounds[b]) for b in sorted(bounds))))
