"""Compare the rows that were read from a source with the rows of a store, one by one.

`staged` has the rows that were read from the source.  `stored` is the requested part of a pinned
table.  A difference of `pending` is one of

    new        the source has the row and the store does not
    replaced   both have it, with another owner, delivery time or delivery count
    removed    the store has it, and it was not staged

For entries, `filled` takes the place of `replaced`.  A `filled` entry has a payload that the store
lacks, or another payload.  The journal has the rows that are replaced, filled or removed, with the
values that the store had.  It does not have new rows, because the staged rows include them.

A removal is EXPLAINED if the source shows why the row is gone:

- A row of `pending`: its group still exists, and has delivered ids up to the largest removed one.
  So consumers have acknowledged the removed rows of the group.
- An entry: its stream still exists, and has generated ids up to the largest removed one.  So the
  removed entries of the stream were deleted or trimmed, or are outside the ids that were read
  (`with_known_absence`).

The removal is not explained if the stream or the group no longer exists, or if another stream has
replaced the stream (`semantics.stream_life`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from claimlib.engine.relation import Relation
from claimlib.plans.keys import (
    GROUP,
    GROUP_SQL,
    glob_sql,
    id_at_least,
    id_at_most,
    unsigned_sql,
)
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.schema import Kind, quote_text
from claimlib.semantics.names import literal_name, spell

_STATE = ("consumer", "delivery_time_ms", "delivery_count")


@dataclass(frozen=True, slots=True)
class Scope:
    """Choose the rows of a snapshot or an import by Redis' globs on stream and group.

    The methods return SQL conditions.

    Examples:
        >>> Scope("orders:*")
        Scope(stream_glob='orders:*', group_glob='*')
    """

    stream_glob: str = "*"
    group_glob: str = "*"

    def has_stream(self) -> str:
        """Return the condition that a row's stream was requested."""
        return _matches("stream", self.stream_glob)

    def has_group(self) -> str:
        """Return the condition that a row's (stream, consumer_group) was requested."""
        return f"({self.has_stream()} AND {_matches('consumer_group', self.group_glob)})"

    def has_whole_stream(self) -> str:
        """Return the condition that a row's stream was requested with all of its groups.

        The condition is false if only some groups were requested, because a stream that was not
        read may still exist then.
        """
        return self.has_stream() if self.group_glob == "*" else "false"

    @property
    def stream(self) -> str | None:
        """Return the spelled name of the requested stream, or None if several may match."""
        name = literal_name(self.stream_glob)
        return None if name is None else spell(name)


EVERYTHING = Scope("*", "*")


def _matches(column: str, glob: str) -> str:
    name = literal_name(glob)
    return glob_sql(column, glob) if name is None else f"{column} = {quote_text(spell(name))}"


@dataclass(frozen=True, slots=True)
class Digest:
    """Hold the number of some rows, and the sums of the two halves of their hashes.

    The digest does not depend on the order of the rows.
    """

    rows: int = 0
    high: int = 0
    low: int = 0

    def as_json(self) -> list[int]:
        """Return the digest in the form in which the journal has it."""
        return [self.rows, self.high, self.low]


# Each half has 32 bits, so that no sum overflows 64 bits.
_DIGEST = (
    "struct(count(content) AS rows, coalesce(sum(shiftright(content, 32)), 0L) AS high,"
    " coalesce(sum(content & 4294967295L), 0L) AS low)"
)
"""SQL for the aggregate of a `Digest` over a column `content` with the hashes of the rows."""


def _numbers_hash(*numbers: str) -> str:
    """Return SQL for the hash of numbers, which are cast to BIGINT for both engines."""
    return f"xxhash64({', '.join(f'CAST({number} AS BIGINT)' for number in numbers)})"


_ID = ("id_ms", "id_seq")
# The hash of a pending row's key and state.
_PENDING_CONTENT = _numbers_hash(
    "group_key", *_ID, "xxhash64(consumer)", "delivery_time_ms", "delivery_count"
)
# The hash of a payload, or null if the row has no payload.
_PAYLOAD = "CASE WHEN fields IS NOT NULL THEN xxhash64(fields) END"


def _entry_content(payload: str) -> str:
    """Return SQL for the hash of an entry's key and payload."""
    return _numbers_hash("stream_key", *_ID, payload)


def digest(table: str, rows: Relation, *aggregates: str) -> Relation:
    """Return one row with `digest`, the `Digest` of stored or staged rows of a table.

    Args:
        table: `pending` or `entries`.
        aggregates: further columns of the result, each a SQL aggregate of the rows with an alias.
    """
    content = _PENDING_CONTENT if table == "pending" else _entry_content(_PAYLOAD)
    return rows.select("*", f"{content} AS content").select(f"{_DIGEST} AS digest", *aggregates)


def left_alone(pending: Relation, scope: Scope) -> Relation:
    """Return one row per requested stream in which groups that were not requested have entries.

    Columns: `stream`; `low` and `high`, the smallest and the largest pending id of these groups, as
    structs that sort as ids do.
    """
    others = pending.where(f"{scope.has_stream()} AND NOT {scope.has_group()}")
    return others.sql(
        f"SELECT stream, min({_SORTABLE_ID}) AS low, max({_SORTABLE_ID}) AS high"
        " FROM {this} AS this GROUP BY stream"
    )


_SORTABLE_ID = f"struct({unsigned_sql('id_ms')} AS ms, {unsigned_sql('id_seq')} AS seq)"


# ------------------------------------------------------------------- pending


def compared_pending(staged: Relation, stored: Relation) -> Relation:
    """Return one row per pending entry that the source or the store has.

    If the store has an entry twice, the result has it twice, too.

    Columns:

    - group_key, id_ms, id_seq.
    - `difference`: None if both rows are equal.
    - consumer, delivery_time_ms, delivery_count: from the staged row.
    - `stored_stream`, `stored_consumer_group`, from_consumer, from_delivery_time_ms,
      from_delivery_count, `stored_run_seq`, `stored_is_claim`: from the stored row.  The first two
      are None if the store lacks the entry.
    - `content`: the hash of the row after the run, or None if the run removes the row.

    This takes one shuffle of both sides.

    Args:
        stored: rows of pending with `is_claim`.  It is true if the run that last wrote the row is
            no snapshot, import, writeback or undo, or is an undo that makes claims again.  Else it
            is None.
    """
    state = ", ".join(_STATE)
    before = ", ".join(f"{name} AS from_{name}" for name in _STATE)
    same = " AND ".join(f"{name} <=> from_{name}" for name in _STATE)
    both = staged.sql(
        f"""
        SELECT *, CASE WHEN stored_stream IS NULL THEN 'new' WHEN is_staged IS NULL THEN 'removed'
            WHEN NOT ({same}) THEN 'replaced' END AS difference
        FROM (SELECT group_key, id_ms, id_seq, {state}, true AS is_staged FROM {{this}} AS this)
            AS staged
        FULL JOIN (
            SELECT group_key, id_ms, id_seq, stream AS stored_stream,
                consumer_group AS stored_consumer_group, run_seq AS stored_run_seq,
                is_claim AS stored_is_claim, {before}
            FROM {{stored}} AS stored
        ) AS stored USING (group_key, id_ms, id_seq)
        """,
        stored=stored,
    )
    return both.select("*", f"CASE WHEN {_STAYS} THEN {_PENDING_CONTENT} END AS content")


_STAYS = "NOT (difference <=> 'removed')"


def replaced_and_removed(compared: Relation) -> Relation:
    """Return the journal's `pending_replaced` and `pending_removed` rows, each once.

    If the store has equal rows, one journal row changes all of them.
    """
    is_replaced = "difference = 'replaced'"
    before = (f"from_{name}" for name in _STATE)
    return (
        compared.where("difference IN ('replaced', 'removed')")
        .select(
            f"CASE WHEN {is_replaced} THEN '{Kind.PENDING_REPLACED}'"
            f" ELSE '{Kind.PENDING_REMOVED}' END AS kind",
            *(f"stored_{name} AS {name}" for name in GROUP),
            "id_ms",
            "id_seq",
            *before,
            *(f"CASE WHEN {is_replaced} THEN {name} END AS {name}" for name in _STATE),
        )
        .distinct()
    )


# True if a run of the store gave the row to a consumer, and the source shows another consumer.
# A claim that the server also has does not count.  After a writeback `stored_is_claim` is not
# true.  If the same claim was made on the server in another way, the consumer is equal.
_IS_CLAIM_OVERWRITTEN = (
    "difference = 'replaced' AND stored_is_claim AND NOT (consumer <=> from_consumer)"
)


def pending_by_group(compared: Relation) -> Relation:
    """Return one row per (stream, consumer_group) of the store, and one for all new rows.

    Columns:

    - stream, consumer_group: None in the row for new rows.
    - `stored`, `new`, `changed`, `removed`: numbers of rows.
    - `claims`: the number of changed rows with `is_claim` that had another consumer.
    - `last`: the largest removed id, as a struct that sorts as ids do.  It is None if no row is
      removed.
    - `last_run_seq`: the largest run_seq of the stored rows.
    - `after`: the `Digest` of the rows after the run.

    This takes one shuffle, of partial sums.
    """
    return compared.sql(
        f"""
        SELECT stored_stream AS stream, stored_consumer_group AS consumer_group,
            {_sums("replaced")}, count_if({_IS_CLAIM_OVERWRITTEN}) AS claims
        FROM {{this}} AS this GROUP BY stored_stream, stored_consumer_group
        """
    )


# ------------------------------------------------------------------- entries


BOUNDS = (*PROVEN_RANGE, "first_ms", "first_seq")
"""Columns of a stream that was read.

The first four are the bounds of the ids that were read, or None if no ids were read.  The last two
are the smallest id of the stream: 0-0 if the stream is empty, and None if it is unknown.
"""


def with_known_absence(stored: Relation) -> Relation:
    """Return stored entries with the column `absence_is_known`.

    It is true if the source cannot have an entry that was not read: the entry's id is within the
    ids that were read, or smaller than the stream's first id, or the stream is empty.  Only a part
    of a stream is read, so the source may still have an entry outside this part.

    Args:
        stored: rows of entries with the `BOUNDS` of their streams.
    """
    from_ms, from_seq, to_ms, to_seq, *first = BOUNDS
    was_read = (
        f"{id_at_least('id_ms', 'id_seq', from_ms, from_seq)}"
        f" AND {id_at_most('id_ms', 'id_seq', to_ms, to_seq)}"
    )
    is_before_first = f"NOT {id_at_least('id_ms', 'id_seq', *first)}"
    is_known = f"(first_ms = 0 AND first_seq = 0) OR {was_read} OR {is_before_first}"
    return stored.select("*", f"coalesce({is_known}, false) AS absence_is_known")


def compared_entries(staged: Relation, stored: Relation) -> Relation:
    """Return one row per entry that the source or the store has.

    Columns:

    - stream_key, id_ms, id_seq.
    - `difference`: None if nothing changes.
    - `from_payload`: the hash of the stored payload, or None if the store has no payload.
    - `stored_stream`, `stored_run_seq`, `absence_is_known`: from the stored row.  They are None if
      the store lacks the entry.
    - `content`: the hash of the entry after the run, or None if the run removes the entry.

    This takes one shuffle of both sides, without payloads.

    Args:
        stored: rows of `with_known_absence`.
    """
    both = staged.sql(
        f"""
        SELECT *, CASE WHEN stored_stream IS NULL THEN 'new' WHEN is_staged IS NULL THEN 'removed'
            WHEN staged_payload IS NOT NULL AND NOT (staged_payload <=> from_payload) THEN 'filled'
            END AS difference
        FROM (
            SELECT stream_key, id_ms, id_seq, {_PAYLOAD} AS staged_payload, true AS is_staged
            FROM {{this}} AS this
        ) AS staged
        FULL JOIN (
            SELECT stream_key, id_ms, id_seq, {_PAYLOAD} AS from_payload, stream AS stored_stream,
                run_seq AS stored_run_seq, absence_is_known
            FROM {{stored}} AS stored
        ) AS stored USING (stream_key, id_ms, id_seq)
        """,
        stored=stored,
    )
    content = _entry_content("coalesce(staged_payload, from_payload)")
    return both.select("*", f"CASE WHEN {_STAYS} THEN {content} END AS content")


def filled_and_removed(compared: Relation) -> Relation:
    """Return the journal's `entry_filled` and `entry_removed` rows, each once."""
    return (
        compared.where("difference IN ('filled', 'removed')")
        .select(
            f"CASE WHEN difference = 'filled' THEN '{Kind.ENTRY_FILLED}'"
            f" ELSE '{Kind.ENTRY_REMOVED}' END AS kind",
            "stored_stream AS stream",
            "id_ms",
            "id_seq",
            "from_payload",
        )
        .distinct()
    )


def entries_by_stream(compared: Relation) -> Relation:
    """Return one row per stream of the store, with the columns of `pending_by_group`.

    There is no column consumer_group, and one row is for all new entries.  `changed` counts the
    filled entries, and `claims` is 0.  Two columns are added.  `missing` counts the removed entries
    that are known not to exist in the source.  `last_missing` is the largest id of these.
    """
    is_missing = "difference = 'removed' AND absence_is_known"
    return compared.sql(
        f"""
        SELECT stored_stream AS stream, {_sums("filled")}, 0L AS claims,
            count(DISTINCT CASE WHEN {is_missing} THEN struct(id_ms AS ms, id_seq AS seq) END)
                AS missing,
            max(CASE WHEN {is_missing} THEN {_SORTABLE_ID} END) AS last_missing
        FROM {{this}} AS this GROUP BY stored_stream
        """
    )


def _sums(changed: str) -> str:
    return f"""count(stored_stream) AS stored, count_if(difference = 'new') AS new,
            count_if(difference = '{changed}') AS changed,
            count_if(difference = 'removed') AS removed,
            max(CASE WHEN difference = 'removed' THEN {_SORTABLE_ID} END) AS last,
            max(stored_run_seq) AS last_run_seq, {_DIGEST} AS after"""


# ------------------------------------------------------------------- unexplained removals


def unexplained_pending(removed: Relation, groups: Relation) -> Relation:
    """Return the numbers of stored and of unexplained removed rows of pending, by stream.

    Columns: stream, `stored`, `unexplained`.

    Args:
        removed: `pending_by_group`.
        groups: one row per group of the source, with last_delivered_ms and last_delivered_seq.
    """
    return _unexplained(removed, groups, GROUP_SQL, "last_delivered")


def unexplained_entries(removed: Relation, streams: Relation) -> Relation:
    """Return the numbers of stored and of unexplained removed entries, by stream.

    Columns: stream, `stored`, `unexplained`.

    Args:
        removed: `entries_by_stream`.
        streams: one row per stream of the source, with last_generated_ms and last_generated_seq.
            They are None if they are unknown.  Then they explain no removal.
    """
    return _unexplained(removed, streams, "stream", "last_generated")


def _unexplained(removed: Relation, source: Relation, key: str, upto: str) -> Relation:
    # The removals of a group or stream are explained together, by its largest removed id (`last`).
    reached = f"struct({unsigned_sql(f'{upto}_ms')} AS ms, {unsigned_sql(f'{upto}_seq')} AS seq)"
    return removed.sql(
        f"""
        SELECT stream, sum(stored) AS stored,
            sum(CASE WHEN coalesce(last <= upto, false) THEN 0L ELSE removed END) AS unexplained
        FROM (SELECT * FROM {{this}} AS this WHERE stored > 0) AS removed
        LEFT JOIN (
            SELECT {key}, CASE WHEN {upto}_ms IS NOT NULL THEN {reached} END AS upto
            FROM {{source}} AS source
        ) AS source USING ({key})
        GROUP BY stream
        """,
        source=source,
    )


def largest_share(by_stream: Relation, gone: Relation, limit: float) -> Relation:
    """Return one row that sums up `unexplained_pending` or `unexplained_entries`.

    Columns: `stored`; `unexplained`; `above`, the number of streams whose unexplained share exceeds
    `limit`; `worst`, a struct (share, unexplained, stored, stream) of the stream with the largest
    share, or None if there is none.

    Args:
        gone: the streams that the same server no longer has.  They count for `stored` and
            `unexplained` only, not for `above` and `worst`.
    """
    return by_stream.sql(
        f"""
        SELECT coalesce(sum(stored), 0L) AS stored, coalesce(sum(unexplained), 0L) AS unexplained,
            count_if(is_gone IS NULL AND share > {limit!r}D) AS above,
            max(CASE WHEN is_gone IS NULL THEN
                struct(share AS share, unexplained AS unexplained, stored AS stored,
                    stream AS stream) END) AS worst
        FROM (SELECT *, CAST(unexplained AS DOUBLE) / stored AS share FROM {{this}} AS this)
            AS shares
        LEFT JOIN (SELECT stream, true AS is_gone FROM {{gone}} AS gone) AS gone USING (stream)
        """,
        gone=gone,
    )


# ------------------------------------------------------------------- both tables


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold the functions that compare the staged rows of a table with the stored ones.

    Attributes:
        compared: compares staged and stored rows, one row per entry that either side has.
        by_key: sums up the rows of `compared`, one row per group or stream.
        journal_rows: returns the journal rows for those rows of `compared` that a run changes.
        unexplained: counts the unexplained removals, one row per stream.  Its arguments are the
            rows of `by_key`, and one row per group or stream of the source.
    """

    compared: Callable[[Relation, Relation], Relation]
    by_key: Callable[[Relation], Relation]
    journal_rows: Callable[[Relation], Relation]
    unexplained: Callable[[Relation, Relation], Relation]


PENDING = Comparison(compared_pending, pending_by_group, replaced_and_removed, unexplained_pending)
ENTRIES = Comparison(compared_entries, entries_by_stream, filled_and_removed, unexplained_entries)
