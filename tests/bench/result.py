"""What must stand in a store after the benchmark's runs: formulas in SQL, and nothing else.

They follow from the made-up rows (`bench_data`), in plain SQL that knows nothing of claimlib's
rules and reads nothing that a run has written.  All requests are made at one instant, so that what
is claimed once is not idle any more, and later runs leave it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from claimlib.engine.spark import frame_of, relation_of
from claimlib.store.tables import Store
from tests.bench import data
from tests.bench.data import CONSUMER, COUNT, CURSOR, GROUP, HALF, LARGEST, NOW_MS, Shape

# A page ends behind its COUNT-th hit.  Where more than a tenth of the rows is due, that comes
# before the scan budget is spent, so it is found among so many rows.
_BUDGET = 10 * COUNT
_NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class History:
    """Of which rows a store was made, and which runs it has had since: pages of the largest group,
    and then one run that claims in all groups.

    Attributes:
        rows, shape: see `bench_data.pending`.
        pages: how many pages there were, each from where the one before had ended.
        command: the last run: `xautoclaim`, a sweep; or `xclaim`, with `bench_data.claims`, which
            do not meet what is dangling.
    """

    rows: int
    shape: Shape = HALF
    pages: int = 0
    command: str = "xautoclaim"

    @property
    def last(self) -> int:
        """The number of the last run."""
        return self.pages + 1


# The first id behind each page, which the next page begins with; null: the page reached the end.
_ENDS = f"""
    SELECT run_seq, min(id_ms) FILTER (WHERE hits_before >= {COUNT} * run_seq) AS end_ms
    FROM (
      SELECT id_ms, count_if(is_gone OR is_due) OVER (
        ORDER BY id_ms ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS hits_before
      FROM (SELECT * FROM {{pending}} WHERE stream = '{LARGEST}' ORDER BY id_ms LIMIT {{rows}}))
    CROSS JOIN (SELECT id AS run_seq FROM range(1, {{last}}))
    GROUP BY run_seq ORDER BY run_seq"""

_PENDING = f"""
    SELECT stream, consumer_group, id_ms, id_seq,
      if(kind = 'claimed', '{CONSUMER}', consumer) AS consumer,
      if(kind = 'claimed', {NOW_MS}, delivery_time_ms) AS delivery_time_ms,
      if(kind = 'claimed', delivery_count + 1, delivery_count) AS delivery_count,
      if(kind = 'claimed', run_seq, 0) AS run_seq
    FROM {{decided}} WHERE kind <> 'deleted'"""

_TOMBSTONES = f"""
    SELECT stream, consumer_group, id_ms, id_seq, consumer, delivery_time_ms, delivery_count,
      {NOW_MS} AS purged_at_ms, run_seq
    FROM {{decided}} WHERE kind = 'deleted'"""

_ENTRIES = f"""
    SELECT run_seq, kind, stream, consumer_group, id_ms, id_seq, consumer AS from_consumer,
      delivery_time_ms AS from_delivery_time_ms, delivery_count AS from_delivery_count,
      {NOW_MS} AS at_ms,
      if(kind = 'claimed', '{CONSUMER}', NULL) AS consumer,
      if(kind = 'claimed', {NOW_MS}, NULL) AS delivery_time_ms,
      if(kind = 'claimed', delivery_count + 1, NULL) AS delivery_count,
      if(kind = 'claimed', false, NULL) AS justid,
      if(kind = 'claimed', {NOW_MS}, NULL) AS seen_time_ms,
      if(kind = 'claimed', {NOW_MS}, NULL) AS active_time_ms
    FROM {{decided}} WHERE kind <> 'left'"""

# XCLAIM's rows also say which request named the id, and in which place.
_ASKED_ENTRIES = """
    SELECT e.*, g.request_number,
      row_number() OVER (PARTITION BY e.stream ORDER BY e.id_ms) - 1 AS position
    FROM {entries} e JOIN {groups} g ON e.stream = g.stream"""

# What the last run finds in each group once the pages are over, and how much is claimed in all.
_GROUPS = f"""
    SELECT stream, consumer_group, count_if(kind = 'claimed') AS claimed,
      count_if(NOT is_away) AS pending_before,
      0 AS at_boundary,
      min(CASE WHEN is_claimed THEN {NOW_MS} WHEN NOT is_away THEN delivery_time_ms END)
        AS oldest_delivery_time_ms,
      max(CASE WHEN is_claimed THEN delivery_count + 1 WHEN NOT is_away THEN delivery_count END)
        AS highest_delivery_count
    FROM (
      SELECT *, kind = 'claimed' AND run_seq < {{last}} AS is_claimed,
        kind = 'deleted' AND run_seq < {{last}} AS is_away
      FROM {{decided}})
    GROUP BY stream, consumer_group"""

# A group in which there is nothing to claim is not asked about.
_ASKED_GROUPS = """
    SELECT stream, consumer_group, claimed, row_number() OVER (ORDER BY stream) AS request_number
    FROM {groups} WHERE claimed > 0"""

_JUDGED = f"""
    SELECT * EXCEPT (claimed), {{last}} AS run_seq, {{kind}} AS kind, '{CONSUMER}' AS consumer,
      {NOW_MS} AS at_ms
    FROM {{groups}}"""

_CURSORS = f"""
    SELECT run_seq, 'cursor' AS kind, '{LARGEST}' AS stream, '{GROUP}' AS consumer_group,
      '{CURSOR}' AS cursor_name, coalesce(end_ms, 0) AS next_ms, 0 AS next_seq, {NOW_MS} AS at_ms
    FROM {{ends}}"""

# Of its group a page says only that it was there: it does not look at the whole PEL.
_PAGED = f"""
    SELECT run_seq, 'swept' AS kind, stream, consumer_group, '{CONSUMER}' AS consumer, at_ms
    FROM {{cursors}}"""

_SEEN = """
    SELECT run_seq, 'consumer' AS kind, stream, consumer_group, consumer, at_ms,
      at_ms AS seen_time_ms
    FROM {judged}"""

_CONSUMERS = f"""
    SELECT stream, consumer_group, '{CONSUMER}' AS consumer, {NOW_MS} AS seen_time_ms,
      if(claimed > 0, {NOW_MS}, NULL) AS active_time_ms, {{last}} AS run_seq
    FROM {{groups}}"""

_LAST_CURSOR = """
    SELECT cursor_name AS name, stream, consumer_group, next_ms, next_seq, run_seq
    FROM {cursors} WHERE run_seq = {last} - 1"""

_RUN_ROWS = "SELECT id AS run_seq, 'run' AS kind, {command} AS command FROM range(1, {last} + 1)"

_COUNTS = ("claimed", "deleted", "refused", "lost", "gone")
_COUNTS_OF = {
    "xautoclaim": (*_COUNTS, "swept", "cursor", "delivered_later", "spared", "parked"),
    "xclaim": (*_COUNTS, "requested", "left", "not_pending"),
}


def union_rows(parts: Iterable[DataFrame]) -> DataFrame:
    """Return the rows of all parts; a column that a part lacks is null there."""
    return reduce(lambda rows, others: rows.unionByName(others, allowMissingColumns=True), parts)


def held(frame: DataFrame) -> DataFrame:
    """Return the rows of a frame, computed once and then kept in the memory of the driver."""
    return frame_of(relation_of(frame).fetched())


def expected(store: Store, history: History) -> Mapping[str, DataFrame]:
    """By table what must stand in a store: a column that is left out must be null.

    Of `runs` the counts, and which runs there were.  One row per page and per group passes through
    the driver, so that the plans stay small, and the made-up rows are gone through once per table.
    """
    spark, last, command = store.spark, history.last, history.command
    made = data.pending(spark, history.rows, history.shape)
    ends = held(spark.sql(_ENDS, pending=made, rows=history.pages * _BUDGET, last=last))
    decided = _decided(made, history, ends)
    groups = spark.sql(_GROUPS, decided=decided, last=last)
    entries = spark.sql(_ENTRIES, decided=decided)
    if command == "xclaim":
        groups = held(spark.sql(_ASKED_GROUPS, groups=groups))
        entries = spark.sql(_ASKED_ENTRIES, entries=entries, groups=groups)
    else:
        groups = held(groups)
    cursors = spark.sql(_CURSORS, ends=ends)
    kind = "requested" if command == "xclaim" else "swept"
    judged = union_rows(
        [
            spark.sql(_JUDGED, groups=groups, last=last, kind=kind),
            spark.sql(_PAGED, cursors=cursors),
        ]
    )
    seen = spark.sql(_SEEN, judged=judged)
    runs = spark.sql(_RUN_ROWS, last=last, command=command)
    journal = union_rows([entries, judged, seen, cursors, runs])
    return {
        "pending": spark.sql(_PENDING, decided=decided),
        "journal": journal,
        "tombstones": spark.sql(_TOMBSTONES, decided=decided),
        "consumers": spark.sql(_CONSUMERS, groups=groups, last=last),
        "cursors": spark.sql(_LAST_CURSOR, cursors=cursors, last=last),
        "runs": _counted(journal, command, store.engine.name),
    }


def _decided(made: DataFrame, history: History, ends: DataFrame) -> DataFrame:
    """The made-up rows, with what becomes of each (`kind`), and in which run."""
    is_page_over = (
        f"CAST(id_ms >= {_NO_END if row['end_ms'] is None else row['end_ms']} AS INT)"
        for row in ends.collect()
    )
    run_of_largest = " + ".join(("1", *is_page_over))
    purges = history.command == "xautoclaim"
    return made.sparkSession.sql(
        f"""
        SELECT *,
          CASE WHEN is_due AND NOT is_gone THEN 'claimed' WHEN is_gone AND {purges} THEN 'deleted'
               ELSE 'left' END AS kind,
          CASE WHEN stream = '{LARGEST}' THEN {run_of_largest} ELSE {history.last} END AS run_seq
        FROM {{made}}""",
        made=made,
    )


def _counted(journal: DataFrame, command: str, engine: str) -> DataFrame:
    """One row per run: how many rows of each kind it has."""
    counts = ", ".join(f"'{kind}', count_if(kind = '{kind}')" for kind in _COUNTS_OF[command])
    return journal.sparkSession.sql(
        f"SELECT run_seq, max(command) AS command, map({counts}) AS counts, '{engine}' AS engine"
        " FROM {journal} GROUP BY run_seq",
        journal=journal,
    )
