"""Decide from a stream's counters if it is still the stream of an earlier reading.

A stream's key has no identity of its own.  After a DEL, a FLUSHALL or the loss of a server's data,
another stream may have the same name.  The entries of the old stream were not deleted one by one,
so their absence must not count as a deletion.

As long as a stream is not deleted, these rules hold (Redis 7.0 to 8, Valkey 8 and 9; `XINFO
STREAM`):

- `entries-added` and `last-generated-id` never decrease, and each added entry raises both.
- `length` is `entries-added` minus all deletions by XDEL and by trimming.
- XDEL raises `max-deleted-entry-id` to each larger id that it deletes.  Trimming does not change
  this id.
- Trimming deletes the entry with the smallest id, so a trimmed id is smaller than
  `recorded-first-entry-id`.  `XTRIM … ACKED` of Redis 8.2 does not follow this rule.  For such
  servers `max_deleted_id` is omitted, and ids prove less.

XSETID and RESTORE can set the counters to any value.  So a stream that they changed may count as
another stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from claimlib.semantics.ids import MIN_ID, StreamId


@dataclass(frozen=True, slots=True)
class StreamCounters:
    """Hold the counters that `XINFO STREAM` returns for one stream at one time.

    Attributes:
        length: the number of entries.
        last_generated_id: the largest id that was ever added.
        entries_added: the number of entries that were ever added.  None if the server does not
            return it (Redis before 7.0).
        first_id: the smallest id that the stream has, 0-0 if it is empty.  None if unknown.
        max_deleted_id: the largest id that XDEL ever deleted, 0-0 if none.  None if unknown.
    """

    length: int
    last_generated_id: StreamId
    entries_added: int | None = None
    first_id: StreamId | None = None
    max_deleted_id: StreamId | None = None


@dataclass(frozen=True, slots=True)
class MissingEntries:
    """Count the entries of an earlier reading that the stream no longer has.

    Attributes:
        count: the number of these entries.
        last_id: the largest of their ids.  0-0 if there is none.
    """

    count: int = 0
    last_id: StreamId = MIN_ID


def is_other_stream(
    before: StreamCounters, now: StreamCounters, missing: MissingEntries
) -> bool | None:
    """Return True if no sequence of XADD, XDEL and XTRIM leads from one reading to the other.

    Args:
        before: the counters of the earlier reading, read before its entries or together with them.
        now: the counters of the later reading, read after its entries or together with them.
        missing: the entries of the earlier reading that the stream did not have at `now`.

    Returns:
        None if the counters cannot tell, because one of the readings has no `entries_added`.
    """
    if now.last_generated_id < before.last_generated_id:
        return True
    if before.entries_added is None or now.entries_added is None:
        return None
    added = now.entries_added - before.entries_added
    has_new_id = now.last_generated_id > before.last_generated_id
    deleted = before.length + added - now.length
    return (
        added < 0
        or has_new_id != (added > 0)
        or deleted < _least_deletions(before, now, missing)
        or not _may_be_deleted(now, missing.last_id)
        or not _may_keep_an_old_entry(before, now, missing, deleted)
    )


def _least_deletions(before: StreamCounters, now: StreamCounters, missing: MissingEntries) -> int:
    """Return the least number of deletions that the ids prove."""
    deleted_old = before.length if _has_only_new_entries(before, now) else missing.count
    return deleted_old + _has_deleted_new_entry(before, now)


def _has_only_new_entries(before: StreamCounters, now: StreamCounters) -> bool:
    """Return True if it is known that the stream has no entry of the earlier reading."""
    if now.length == 0:
        return True
    return now.first_id is not None and now.first_id > before.last_generated_id


def _has_deleted_new_entry(before: StreamCounters, now: StreamCounters) -> bool:
    """Return True if XDEL deleted an entry that was added after the earlier reading."""
    return now.max_deleted_id is not None and now.max_deleted_id > before.last_generated_id


def _may_be_deleted(now: StreamCounters, last_missing_id: StreamId) -> bool:
    """Return False if neither trimming nor XDEL can have deleted the largest missing id."""
    if now.length == 0 or now.first_id is None or now.max_deleted_id is None:
        return True
    return last_missing_id < now.first_id or last_missing_id <= now.max_deleted_id


def _may_keep_an_old_entry(
    before: StreamCounters, now: StreamCounters, missing: MissingEntries, deleted: int
) -> bool:
    """Return False if the first entry is old, although all old entries must have been deleted.

    All of them must have been deleted if the number of deletions of old entries is at least the
    earlier length.  If the first entry is old, only XDEL can have deleted new entries, because
    trimming deletes the smallest ids first.  So if XDEL did not, all deletions are of old entries.
    """
    if now.first_id is None or now.max_deleted_id is None or _has_only_new_entries(before, now):
        return True
    deleted_old = missing.count if _has_deleted_new_entry(before, now) else deleted
    return deleted_old < before.length
