"""Evaluate the series of snapshots: owners over time, and the claims that sweeps would have made.

The pending entries that a snapshot read stay in `pel_snapshots`.  The journal has the groups that
it read, the times, and the last delivered ids.  If the next snapshot of a group lacks an entry,
although the id is not larger than the group's last delivered id, the entry has left the PEL:

- It was deleted if a run of the store removed it, because its stream entry no longer existed.
- The reason is unknown if another stream replaced its stream.
- Otherwise it was acknowledged.  Two rare events look the same: a claim on the server that found
  the entry deleted from its stream, and a group that was destroyed and created again between two
  snapshots, so that no snapshot saw that it was missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from claimlib.engine.relation import Relation
from claimlib.plans.journal_rows import applied, of_kinds
from claimlib.plans.keys import ENTRY_SQL, GROUP_SQL, id_at_most, same_entry, without
from claimlib.schema import Kind

OUTCOMES = ("acknowledged", "deleted", "taken_over", "still_pending", "unknown")
"""The values of `outcome` in `claims`."""
_LAST_IDS = ("last_delivered_ms", "last_delivered_seq")
_NEXT = ("next_at_ms", *(f"next_{name}" for name in _LAST_IDS), "next_is_replaced")


def readings(journal: Relation, runs: Relation) -> Relation:
    """Return one row per group and finished snapshot or import that read it.

    Columns:

    - `landing` (the reading), stream, consumer_group, run_seq.
    - `landing_ms`: the time of the first group of that landing.
    - `at_ms`: the time of this group.  Groups whose time is unknown have no row.
    - `next_at_ms`, `next_landing`, `next_last_delivered_ms`, `next_last_delivered_seq`: from the
      group's next reading.  They are None if there is no next reading.
    - `next_is_replaced`: true if a later reading found that the group had been removed or its
      stream replaced, not later than the group's next reading.
    """
    finished = runs.where("counts['abandoned'] IS NULL").select("run_seq")
    landings = journal.where(f"{of_kinds(Kind.RUN)} AND landing IS NOT NULL").sql(
        "SELECT run_seq AS landing_run, landing FROM {this} AS this"
        " LEFT SEMI JOIN {finished} AS finished USING (run_seq)",
        finished=finished,
    )
    streams = journal.where(of_kinds(Kind.STREAM)).select(
        "run_seq AS stream_run", "stream AS name", "entries_added", "reason"
    )
    is_reading = f"{of_kinds(Kind.GROUP)} AND at_ms IS NOT NULL"
    is_removal = of_kinds(Kind.GROUP_REMOVED)
    groups = journal.where(f"({is_reading}) OR {is_removal}").sql(
        f"""
        SELECT * FROM (
            SELECT kind, run_seq, {GROUP_SQL}, at_ms, {", ".join(_LAST_IDS)},
                min(CASE WHEN {is_removal} THEN run_seq END) OVER (
                    PARTITION BY {GROUP_SQL} ORDER BY run_seq
                    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
                ) AS removed_by
            FROM {{this}} AS this
        ) AS seen
        WHERE {is_reading}
        """
    )
    in_time = f"OVER (PARTITION BY {GROUP_SQL} ORDER BY at_ms, run_seq)"
    # The stream row has a reason if the snapshot found that the stream was replaced.  Snapshots of
    # earlier versions of claimlib did not compare the counters.  So a smaller number of added
    # entries also means a replacement.  The last sign: a run found the group removed, before the
    # group's next reading if there is one.
    signs = (
        f"lead(reason IS NOT NULL) {in_time}",
        f"lead(entries_added) {in_time} < entries_added",
        f"removed_by <= coalesce(lead(run_seq) {in_time}, removed_by)",
    )
    following = ", ".join(
        f"lead({name}) {in_time} AS next_{name}" for name in ("at_ms", "landing", *_LAST_IDS)
    )
    return groups.sql(
        f"""
        SELECT landing, {GROUP_SQL}, run_seq,
            min(at_ms) OVER (PARTITION BY landing) AS landing_ms, at_ms, {following},
            {" OR ".join(f"coalesce({sign}, false)" for sign in signs)} AS next_is_replaced
        FROM {{this}} AS groups
        JOIN {{landings}} AS landings ON run_seq = landing_run
        LEFT JOIN {{streams}} AS streams ON run_seq = stream_run AND stream = name
        """,
        landings=landings,
        streams=streams,
    )


def deletions(journal: Relation, tombstones: Relation) -> Relation:
    """Return one row per entry that a run removed because its stream no longer had it.

    Columns: stream, consumer_group, id_ms, id_seq.

    Args:
        journal, tombstones: the tables.  Old rows of either may have been deleted.
    """
    lost = journal.where(of_kinds(Kind.LOST))
    return applied(journal.where(of_kinds(Kind.DELETED)), lost).sql(
        f"""
        SELECT {ENTRY_SQL} FROM {{this}} AS this
        UNION SELECT {ENTRY_SQL} FROM {{tombstones}} AS tombstones
        """,
        tombstones=tombstones,
    )


def moves(journal: Relation) -> Relation:
    """Return one row per entry that a writeback has claimed on the server: its last such claim.

    Columns: stream, consumer_group, id_ms, id_seq, `moved_ms` (when the server made the claim, ms
    since the epoch) and `moved_to` (the new owner).

    Args:
        journal: the table.  Old rows may have been deleted.
    """
    lost = journal.where(of_kinds(Kind.LOST))
    newest = "max(struct(delivery_time_ms AS ms, consumer AS consumer))"
    last = applied(journal.where(of_kinds(Kind.MOVED)), lost).sql(
        f"SELECT {ENTRY_SQL}, {newest} AS newest FROM {{this}} AS this GROUP BY {ENTRY_SQL}"
    )
    return last.select(ENTRY_SQL, "newest.ms AS moved_ms", "newest.consumer AS moved_to")


def over_time(pel: Relation, read: Relation, stalled_ms: int) -> Relation:
    """Return one row per landing, group and consumer that owned entries then.

    A group without pending entries has one row, whose consumer is None.  Columns: landing_ms,
    stream, consumer_group, consumer, `pending` (the number of entries) and `stalled` (the number of
    entries that were idle for `stalled_ms` or longer).

    Args:
        pel: rows of `pel_snapshots`.
        read: `readings`.
    """
    return read.sql(
        f"""
        SELECT landing_ms, {GROUP_SQL}, consumer, count(id_ms) AS pending,
            count_if(try_subtract(at_ms, delivery_time_ms) >= {stalled_ms:d}L) AS stalled
        FROM {{this}} AS this LEFT JOIN {{pel}} AS pel USING (landing, {GROUP_SQL})
        GROUP BY landing_ms, {GROUP_SQL}, consumer
        """,
        pel=pel.select("landing", ENTRY_SQL, "consumer", "delivery_time_ms"),
    )


def claims(
    pel: Relation,
    read: Relation,
    deleted: Relation,
    moved: Relation,
    min_idles_ms: Sequence[int],
) -> Relation:
    """Return the claims that a sweep right after each snapshot would have made.

    It is assumed that no earlier sweep has claimed the entry.  There is one row for each minimum
    idle time and each entry that was idle for longer than this.  The row is for the first reading
    at which the entry was idle for longer.  Columns: `min_idle_ms`, the key of the entry,
    `from_consumer` (the owner at that reading), `claimed_ms` (the time of that reading), `idle_ms`
    (the idle time then) and `outcome`:

    - `acknowledged`: the entry left the PEL, and its last known owner was `from_consumer`.  If the
      sweep had claimed it, its work would have been done twice.
    - `deleted`: a run removed the entry, because its stream no longer had it.
    - `taken_over`: the last known owner was another consumer, as a snapshot or a writeback shows.
      The sweep would have claimed the entry before that consumer got it.
    - `still_pending`: the last reading of the group still had the entry.
    - `unknown`: the entry is gone for an unknown reason.  At the next reading, the group's last
      delivered id was smaller than the entry's id, or the group or its stream had been removed or
      created again.

    Args:
        pel: rows of `pel_snapshots`.
        read: `readings`.
        deleted: `deletions`.
        moved: `moves`.
        min_idles_ms: the minimum idle times to compare.
    """
    return claiming_readings(pel, read, deleted, moved, min_idles_ms).sql(
        f"""
        SELECT min_idle_ms, {ENTRY_SQL}, consumer AS from_consumer, claimed_ms, idle_ms, outcome
        FROM {{this}} AS this
        JOIN ({_ranks(min_idles_ms)}) AS ranks ON {_IS_CLAIMED}
        JOIN {{names}} AS names USING (group_key)
        LEFT JOIN {{consumers}} AS consumers USING (consumer_key)
        """,
        names=_names(read),
        consumers=_consumers(pel),
    )


def _numbered(read: Relation) -> Relation:
    """Return readings with two numbers: the key of the group, and `reading` within the group.

    Joins and windows by numbers are several times faster than those by names.
    """
    return read.sql(
        f"""
        SELECT *, xxhash64({GROUP_SQL}) AS group_key,
            row_number() OVER (PARTITION BY {GROUP_SQL} ORDER BY at_ms, run_seq) AS reading
        FROM {{this}} AS this
        """
    )


def _names(read: Relation) -> Relation:
    """Return one row per group: its names, and its key as in `_numbered`."""
    return read.sql(
        f"SELECT DISTINCT {GROUP_SQL}, xxhash64({GROUP_SQL}) AS group_key FROM {{this}} AS this"
    )


def _consumers(pel: Relation) -> Relation:
    """Return one row per consumer: its name and its key."""
    names = pel.sql("SELECT DISTINCT consumer FROM {this} AS this WHERE consumer IS NOT NULL")
    return names.select("consumer", "xxhash64(consumer) AS consumer_key")


def _ranks(min_idles_ms: Sequence[int]) -> str:
    """Return a SELECT with one row per minimum idle time, and its rank from 1."""
    selects = (
        f"SELECT {rank:d} AS rank, {value:d}L AS min_idle_ms"
        for rank, value in enumerate(sorted(set(min_idles_ms)), start=1)
    )
    return " UNION ALL ".join(selects)


# True if the sweep with the minimum idle time of this rank claims here, see `claiming_readings`.
_IS_CLAIMED = "rank > exceeded_before AND rank <= exceeded"


def claiming_readings(
    pel: Relation,
    read: Relation,
    deleted: Relation,
    moved: Relation,
    min_idles_ms: Sequence[int],
) -> Relation:
    """Return `claims` in a smaller form: one row per entry and reading at which it is claimed.

    `exceeded` is the number of minimum idle times that the entry's idle time exceeds at this
    reading.  `exceeded_before` is the largest such number at earlier readings, or 0.  Sweeps with
    the minimum idle times of ranks `exceeded_before` + 1 to `exceeded` claim the entry at this
    reading.  Columns: group_key, id_ms, id_seq, consumer_key, exceeded, exceeded_before, and
    `claimed_ms`, `idle_ms` and `outcome` of `claims`.

    Args:
        pel, read, deleted, moved, min_idles_ms: see `claims`.
    """
    numbered, values = _numbered(read), sorted(set(min_idles_ms))
    exceeded = " + ".join(f"CASE WHEN idle_ms > {value:d}L THEN 1 ELSE 0 END" for value in values)
    seen = pel.select("landing", ENTRY_SQL, "consumer", "delivery_time_ms").sql(
        f"""
        SELECT *, {exceeded} AS exceeded FROM (
            SELECT group_key, id_ms, id_seq, reading, at_ms, consumer_key,
                try_subtract(at_ms, delivery_time_ms) AS idle_ms
            FROM {{this}} AS pel JOIN {{read}} AS read USING (landing, {GROUP_SQL})
            LEFT JOIN {{consumers}} AS consumers USING (consumer)
        ) AS seen
        """,
        read=numbered,
        consumers=_consumers(pel),
    )
    by_entry = (
        "PARTITION BY group_key, id_ms, id_seq ORDER BY reading ROWS BETWEEN UNBOUNDED PRECEDING"
    )
    in_series = f"OVER ({by_entry} AND UNBOUNDED FOLLOWING)"
    claiming = seen.sql(
        f"""
        SELECT * FROM (
            SELECT *, last_value(reading) {in_series} AS last_reading,
                last_value(consumer_key) {in_series} AS last_consumer_key,
                coalesce(max(exceeded) OVER ({by_entry} AND 1 PRECEDING), 0) AS exceeded_before
            FROM {{this}} AS this
        ) AS seen WHERE exceeded > exceeded_before
        """
    )
    last = numbered.select("group_key", "reading AS last_reading", "at_ms AS last_ms", *_NEXT)
    removed, moved_by_key = (
        rows.sql(
            f"""
            SELECT group_key, id_ms, id_seq, {columns}
            FROM {{this}} AS this JOIN {{names}} AS names USING ({GROUP_SQL})
            """,
            names=_names(read),
        )
        for rows, columns in (
            (deleted, "true AS is_deleted"),
            (moved, "moved_ms, xxhash64(moved_to) AS moved_to_key"),
        )
    )
    last_owner = "CASE WHEN moved_ms > last_ms THEN moved_to_key ELSE last_consumer_key END"
    was_delivered = id_at_most(
        "id_ms", "id_seq", "next_last_delivered_ms", "next_last_delivered_seq"
    )
    return claiming.sql(
        f"""
        SELECT group_key, id_ms, id_seq, consumer_key, exceeded, exceeded_before,
            at_ms AS claimed_ms, idle_ms,
            CASE WHEN NOT ({last_owner} <=> consumer_key) THEN 'taken_over'
                WHEN next_at_ms IS NULL AND NOT next_is_replaced THEN 'still_pending'
                WHEN is_deleted THEN 'deleted'
                WHEN next_is_replaced THEN 'unknown'
                WHEN {was_delivered} THEN 'acknowledged'
                ELSE 'unknown' END AS outcome
        FROM {{this}} AS this
        JOIN {{last}} AS last USING (group_key, last_reading)
        LEFT JOIN {{removed}} AS removed USING (group_key, id_ms, id_seq)
        LEFT JOIN {{moved}} AS moved USING (group_key, id_ms, id_seq)
        """,
        last=last,
        removed=removed,
        moved=moved_by_key,
    )


def acknowledged(pel: Relation, read: Relation, deleted: Relation, moved: Relation) -> Relation:
    """Return one row per group in which entries were acknowledged between two readings.

    Columns: stream, consumer_group, `acknowledged` (the number of entries), `median_ms` and
    `slowest_tenth_ms`.  The last two are about the time from the last known delivery of an entry to
    the first reading that no longer had it.  Half of the entries took `median_ms` or less, and nine
    tenths took `slowest_tenth_ms` or less.  The time until the acknowledgement itself was shorter,
    by at most the time between two readings.

    Args:
        pel: rows of `pel_snapshots`.
        read: rows of `readings`.  An entry is counted if one of them has it and the next one of its
            group lacks it.
        deleted: `deletions`.
        moved: `moves`.  A claim that a writeback made is a delivery, too.
    """
    was_delivered = id_at_most(
        "id_ms", "id_seq", "next_last_delivered_ms", "next_last_delivered_seq"
    )
    followed = pel.sql(
        f"""
        SELECT {ENTRY_SQL}, next_landing, next_at_ms, delivery_time_ms
        FROM {{this}} AS pel JOIN {{read}} AS read USING (landing, {GROUP_SQL})
        WHERE NOT next_is_replaced AND {was_delivered}
        """,
        read=read,
    )
    gone = followed.lacking(pel, f"s.next_landing = t.landing AND {same_entry('s', 't')}")
    delivered_ms = (
        "CASE WHEN moved_ms > delivery_time_ms AND moved_ms <= next_at_ms THEN moved_ms"
        " ELSE delivery_time_ms END"
    )
    return without(gone, deleted).sql(
        f"""
        SELECT {GROUP_SQL}, count(*) AS acknowledged,
            {_percentile(0.5, "pending_ms")} AS median_ms,
            {_percentile(0.9, "pending_ms")} AS slowest_tenth_ms
        FROM (
            SELECT {GROUP_SQL}, try_subtract(next_at_ms, {delivered_ms}) AS pending_ms
            FROM {{this}} AS this LEFT JOIN {{moved}} AS moved USING ({ENTRY_SQL})
        ) AS gone
        GROUP BY {GROUP_SQL}
        """,
        moved=moved,
    )


def choices(claimed: Relation, min_idles_ms: Sequence[int]) -> Relation:
    """Return one row per minimum idle time, the smallest first.

    Columns: those of `choices_by_group`, except stream and consumer_group.

    Args:
        claimed: `claims`.
        min_idles_ms: the minimum idle times.  Each has a row, even if nothing would have been
            claimed.
    """
    counts = ("claimed", *OUTCOMES)
    known = ", ".join(f"coalesce({name}, 0L) AS {name}" for name in counts)
    return claimed.sql(
        f"""
        SELECT min_idle_ms, {known}, wait_ms FROM ({_ranks(min_idles_ms)}) AS ranks
        LEFT JOIN (
            SELECT min_idle_ms, {_COUNT_EXPRESSIONS} FROM {{this}} AS this GROUP BY min_idle_ms
        ) AS counted USING (min_idle_ms)
        """
    ).order_by("min_idle_ms")


def choices_by_group(claiming: Relation, read: Relation, min_idles_ms: Sequence[int]) -> Relation:
    """Return one row per group and minimum idle time for which an entry would have been claimed.

    There is also one row per such minimum idle time for all groups together.  Its stream and
    consumer_group are None.

    Columns: stream, consumer_group, `min_idle_ms`, `claimed` (the number of claims), the number of
    claims with each of the `OUTCOMES`, and `wait_ms`.  This is the median idle time of the claims
    whose entries were neither acknowledged nor deleted.  It is None if there are none.

    Args:
        claiming: the result of `claiming_readings`.  It is read twice, so the caller keeps it
            (`Relation.kept`).  Only group_key, idle_ms, exceeded, exceeded_before and outcome are
            used.
        read: `readings`.
        min_idles_ms: the values that `claiming_readings` was given.
    """
    # GROUPING SETS would store all claims before it counts them.
    claimed = f"{{this}} AS this JOIN ({_ranks(min_idles_ms)}) AS ranks ON {_IS_CLAIMED}"
    return claiming.sql(
        f"""
        SELECT {GROUP_SQL}, min_idle_ms, {_COUNT_NAMES} FROM (
            SELECT group_key, min_idle_ms, {_COUNT_EXPRESSIONS}
            FROM {claimed} GROUP BY group_key, min_idle_ms
        ) AS counted JOIN {{names}} AS names USING (group_key)
        UNION ALL
        SELECT CAST(NULL AS STRING), CAST(NULL AS STRING), min_idle_ms, {_COUNT_EXPRESSIONS}
        FROM {claimed} GROUP BY min_idle_ms
        """,
        names=_names(read),
    )


def _percentile(share: float, value: str) -> str:
    """Return SQL for a percentile.

    It is the smallest value such that at least `share` of all values are equal to it or smaller.
    It is cast, because Spark's result is a DOUBLE.
    """
    return f"CAST(percentile_disc({share}) WITHIN GROUP (ORDER BY {value}) AS BIGINT)"


_COUNT_NAMES = ", ".join(("claimed", *OUTCOMES, "wait_ms"))
_WAITED = "CASE WHEN outcome NOT IN ('acknowledged', 'deleted') THEN idle_ms END"
_COUNT_EXPRESSIONS = ", ".join(
    (
        "count(*) AS claimed",
        *(f"count_if(outcome = '{outcome}') AS {outcome}" for outcome in OUTCOMES),
        f"{_percentile(0.5, _WAITED)} AS wait_ms",
    )
)
