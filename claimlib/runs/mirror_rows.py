"""Apply the decision of a snapshot or an import, so that the store equals its source.

Only the differences are written:

- New rows are copied from `pel_snapshots` and `entry_landing`.  The decision has the uuid of its
  staged rows there, which are called its landing.
- Rows that are replaced, filled or removed have one row each in the journal.  Such a row changes
  only if it still has the state that the decision found.

So rows that another writer appended after the decision stay.  A row that another writer changed
after the decision stays, too.  The run counts and lists it as lost.

Before the run is applied, the staged rows are compared with the digests of the decision.
Afterwards the store is compared with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from claimlib.engine.changes import Changes, lacking, same_key
from claimlib.engine.relation import IdBounds, Relation, union_by_name
from claimlib.errors import CommitConflictError, VerificationError
from claimlib.plans.differences import Digest, Scope, digest
from claimlib.plans.keys import glob_sql, id_text_sql
from claimlib.runs import claims
from claimlib.runs.journal import Decided, RunRow, Staged
from claimlib.runs.writes import append_once
from claimlib.runs.writes import apply as apply_changes
from claimlib.schema import FIELDS_TYPE, NO_COMPLETENESS_RANGE, TABLES, Kind, quote_text
from claimlib.store.guards import accepted_now
from claimlib.store.local import Condition
from claimlib.store.retry import retried
from claimlib.store.tables import Store
from claimlib.store.threads import concurrently
from claimlib.terminal import number_of

# The columns of small tables that a snapshot or an import sets, each with its journal column.
SMALL_TABLES: Mapping[str, Mapping[str, str]] = {
    "groups": {
        "last_delivered_ms": "last_delivered_ms",
        "last_delivered_seq": "last_delivered_seq",
        "snapshot_ms": "at_ms",
    },
    "consumers": {"seen_time_ms": "seen_time_ms", "active_time_ms": "active_time_ms"},
    "streams": {
        "length": "length",
        "last_generated_ms": "last_generated_ms",
        "last_generated_seq": "last_generated_seq",
        "complete_from_ms": "complete_from_ms",
        "complete_from_seq": "complete_from_seq",
        "complete_to_ms": "complete_to_ms",
        "complete_to_seq": "complete_to_seq",
        "read_ms": "at_ms",
        "source": "source",
        "entries_added": "entries_added",
    },
}
READ_KINDS = {"groups": Kind.GROUP, "consumers": Kind.CONSUMER, "streams": Kind.STREAM}
REMOVED_KINDS = {
    "groups": Kind.GROUP_REMOVED,
    "consumers": Kind.CONSUMER_REMOVED,
    "streams": Kind.STREAM_REMOVED,
}
TABLES_WRITTEN = ("pending", "entries", *SMALL_TABLES)
"""List the tables that a run that mirrors a source writes, besides `journal` and `runs`."""
CHANGED = (*TABLES_WRITTEN, "entry_landing", "pel_snapshots")
"""List the tables whose rows such a run changes or removes."""
NEW = {"pending": "pending_new", "entries": "entries_new"}
"""Name the counts of the `run` row of a decision for rows that the store did not have."""


def scope_of(row: RunRow) -> Scope:
    """Return the scope that a run's request has."""
    request = json.loads(row.request)
    return Scope(request["stream_glob"], request["group_glob"])


def in_bucket(store: Store, rows: Relation, scope: Scope) -> Relation:
    """Return the rows in the bucket of a scope's stream, or all rows if it has several streams.

    Args:
        rows: rows of a table that has buckets.
    """
    bounds = _bounds(store, scope)
    return rows if bounds is None else rows.within(bounds)


def without_streams(rows: Relation, left: Relation | None) -> Relation:
    """Return the rows that are not of the streams that a run left unchanged.

    Args:
        left: journal rows with these streams.  None if there are no such streams.
    """
    return rows if left is None else rows.lacking(left, "t.stream = s.stream")


def _bounds(store: Store, scope: Scope) -> IdBounds | None:
    stream = scope.stream
    return None if stream is None else IdBounds.of_buckets([store.bucket_of(stream)])


# ------------------------------------------------------------------- staged rows


def staged_pending(store: Store, uuid: str) -> Relation:
    """Return the staged pending entries of a landing."""
    return store.relation("pel_snapshots").where(f"landing = {quote_text(uuid)}")


def staged_entries(store: Store, uuid: str) -> Relation:
    """Return the staged entries of a landing.

    They are deleted after the run of the landing is finished.
    """
    return store.relation("entry_landing").where(f"landing = {quote_text(uuid)}")


def digests_of(store: Store, uuid: str) -> tuple[Digest, Digest]:
    """Return the digests of the staged pending rows and of the staged entries, by one query."""
    (of_pending, _), of_entries = _digests(
        staged_pending(store, uuid), staged_entries(store, uuid), is_counted="false"
    )
    return of_pending, of_entries


def _digests(
    pending: Relation, entries: Relation, *, is_counted: str
) -> tuple[tuple[Digest, int], Digest]:
    """Return the digests of pending rows and of entries, and a number of pending rows.

    This takes one query.

    Args:
        is_counted: the SQL condition of the pending rows that are counted.
    """
    both = digest("pending", pending, f"count_if({is_counted}) AS n").sql(
        "SELECT 'pending' AS of, digest, n FROM {this} AS this"
        " UNION ALL SELECT 'entries' AS of, digest, 0L AS n FROM {entries} AS entries",
        entries=digest("entries", entries),
    )
    rows = {row["of"]: row for row in both.collect()}
    of_pending, of_entries = (Digest(**rows[name]["digest"]) for name in ("pending", "entries"))
    return (of_pending, rows["pending"]["n"]), of_entries


def check_landing(store: Store, row: RunRow, staged: Staged, decided: Decided) -> None:
    """Check that the staged rows are those from which the run was decided.

    Raises:
        VerificationError: rows differ.  The message has the tables, and the commands to continue.
    """
    pending, entries = digests_of(store, staged.uuid)
    small = {table: decided.of(kind) for table, kind in READ_KINDS.items()}
    digests = {"pel_snapshots": staged.pending, "entry_landing": staged.entries}
    expected: dict[str, Digest | int] = {**digests, **staged.small}
    actual: dict[str, Digest | int] = {"pel_snapshots": pending, "entry_landing": entries, **small}
    wrong = [table for table in expected if actual[table] != expected[table]]
    if not wrong:
        return
    differences = ", ".join(
        f"{table}: {_row_count(actual[table])} of {number_of(_row_count(expected[table]), 'row')}"
        for table in wrong
    )
    raise VerificationError(
        f"run {row.run_seq} ({row.key}) cannot be finished: rows that it had read were deleted or"
        f" changed before they were applied (found {differences}). To continue without it, run:"
        f" {claims.abandon_command(store, row)}, and then the next {row.command}",
        run=row.key,
        tables=wrong,
    )


def _row_count(stated: Digest | int) -> int:
    return stated.rows if isinstance(stated, Digest) else stated


def discard_landing(store: Store, uuid: str) -> None:
    """Delete the staged rows of a landing that no decision will name."""
    for table in ("pel_snapshots", "entry_landing"):
        _delete_landing(store, table, uuid)


def delete_finished_landings(store: Store, row: RunRow) -> None:
    """Delete the entries that were staged for this run and for earlier finished runs.

    The staged pending entries stay as history.  If the deletion conflicts with another process, it
    is left to the next run.
    """
    staged = store.relation("entry_landing").distinct("landing").collect()
    swept = _landings_done(store, row, {entry["landing"] for entry in staged})
    with suppress(CommitConflictError):  # not an error, because the run itself is finished
        for uuid in sorted(swept):
            _delete_landing(store, "entry_landing", uuid)


def _landings_done(store: Store, row: RunRow, landings: set[str]) -> set[str]:
    """Return which of some landings are of this run or of earlier runs, which are all finished.

    The journal is read only if there is another landing than the run's own.
    """
    own = set() if row.staged is None else {row.staged.uuid}
    if landings <= own:
        return landings
    listed = ", ".join(map(quote_text, sorted(landings)))
    is_done = f"kind = '{Kind.RUN}' AND run_seq <= {row.run_seq:d}L AND landing IN ({listed})"
    decided = store.relation("journal").where(is_done).distinct("landing")
    return {run_row["landing"] for run_row in decided.collect()}


def _delete_landing(store: Store, table: str, uuid: str) -> None:
    retried(lambda: store.writer.delete(table, Condition("landing", uuid)))


# ------------------------------------------------------------------- apply


def apply(store: Store, row: RunRow, staged: Staged, decided: Decided) -> None:
    """Write the differences between the staged rows and the store."""
    concurrently(
        [
            partial(_pending, store, row, staged, decided),
            partial(_entries, store, row, staged, decided),
            *(partial(_small, store, row, table, decided) for table in SMALL_TABLES),
        ]
    )
    if not _is_pinned_entries(store, row):
        # `entries` was replaced since the decision, so it may lack entries that the store had.
        # `_small` has just written completeness ranges, which are wrong for this table.  No reader
        # has used them yet, because the run is not finished.
        _invalidate_ranges(store, row)


def _pending(store: Store, row: RunRow, staged: Staged, decided: Decided) -> None:
    has_new = bool(row.counts[NEW["pending"]])
    new = staged_pending(store, staged.uuid) if has_new else None
    claims.apply(store, row, decided, new, new_near=_bounds(store, scope_of(row)))


def _entries(store: Store, row: RunRow, staged: Staged, decided: Decided) -> None:
    """Write the entries of the streams that were read.

    If only the id of an entry was read, its stored payload stays.
    """
    read = staged_entries(store, staged.uuid)
    has_changes = bool(decided.of(Kind.ENTRY_FILLED, Kind.ENTRY_REMOVED))
    changes = Changes(
        "entries",
        row.run_seq,
        _changed_entries(read, decided) if has_changes else None,
        TABLES["entries"].key,
        is_due=_HAS_PAYLOAD,
        values={"fields": "s.fields"},
        is_removed="s.is_removed",
        may_repeat=True,
        new=read if row.counts[NEW["entries"]] else None,
        near=decided.entries.sql("t."),
        new_near=_bounds(store, scope_of(row)),
        since_pin=True,
        buckets=[bucket for bucket, _, _ in decided.entries.by_bucket],
    )
    apply_changes(store, changes, row)


def _changed_entries(read: Relation, decided: Decided) -> Relation:
    """Return one row per entry that is filled or removed.

    `from_payload` is the hash of the payload that the decision found, or null without a payload.
    """
    key = ", ".join(TABLES["entries"].key)
    return read.sql(
        f"""
        SELECT {key}, from_payload, fields, false AS is_removed FROM {{this}} AS this
        JOIN (SELECT {key}, from_payload FROM {{filled}} AS filled) AS filled USING ({key})
        UNION ALL
        SELECT {key}, from_payload, CAST(NULL AS {FIELDS_TYPE}), true FROM {{removed}} AS removed
        """,
        filled=decided.rows(Kind.ENTRY_FILLED),
        removed=decided.rows(Kind.ENTRY_REMOVED),
    )


# The SQL condition that an entry still has the payload that the decision found.
_HAS_PAYLOAD = "(CASE WHEN t.fields IS NOT NULL THEN xxhash64(t.fields) END) <=> s.from_payload"


def _small(store: Store, row: RunRow, table: str, decided: Decided) -> None:
    """Write the rows of a small table that were read, and remove rows as decided."""
    columns, key = SMALL_TABLES[table], TABLES[table].key
    new = decided.rows(READ_KINDS[table]).select(
        *key, *(f"{source} AS {name}" for name, source in columns.items())
    )
    is_same = " AND ".join(f"t.{name} <=> s.{name}" for name in columns)
    rows, is_due, is_removed = new, f"NOT ({is_same})", "false"
    if decided.of(REMOVED_KINDS[table]):
        removed = decided.rows(REMOVED_KINDS[table]).select(
            *key, *(f"{source} AS {name}" for name, source in columns.items()), "true AS is_removed"
        )
        names = ", ".join((*key, *columns))
        # A key may occur twice among the removed rows.
        rows = removed.distinct().sql(
            f"SELECT {names}, is_removed FROM {{this}} AS this"
            f" UNION ALL SELECT {names}, false FROM {{new}} AS new",
            new=new,
        )
        # A row is removed only if it is as the decision found it, and written only if it differs.
        is_due, is_removed = f"s.is_removed = ({is_same})", "s.is_removed"
    changes = Changes(
        table,
        row.run_seq,
        rows,
        key,
        is_due=is_due,
        values={name: f"s.{name}" for name in columns},
        is_removed=is_removed,
        may_repeat=True,
        new=new,
    )
    apply_changes(store, changes, row)


def _is_pinned_entries(store: Store, row: RunRow) -> bool:
    """Return True if `entries` is the table from which the run was decided.

    Its id is not sufficient, because a table that the same statement creates again has the same
    id.  So `init` must not have accepted replaced tables since the decision either.
    """
    return row.pins.is_same_table("entries", store) and row.run_seq > accepted_now(store).after


def withdraw(store: Store, row: RunRow) -> None:
    """Make a store safe after an abandoned run, which may be half applied.

    A row of `pending` may exist although its entry was not written.  So the completeness ranges of
    all streams of the run are invalidated.  Until the next snapshot or import proves a range, no
    run treats an entry of these streams as deleted.

    The run also appends no rows to each table under its token.  So if its process resumes late,
    Delta skips the appends of that process.
    """
    for table in TABLES_WRITTEN:
        append_once(store, table, store.relation(table).where("false"), row)
    _invalidate_ranges(store, row)


def _invalidate_ranges(store: Store, row: RunRow) -> None:
    """Invalidate the completeness ranges of the streams of a run."""
    is_due = f"run_seq <= {row.run_seq:d}L AND {glob_sql('stream', scope_of(row).stream_glob)}"
    values = {**NO_COMPLETENESS_RANGE, "run_seq": f"{row.run_seq:d}L"}
    retried(lambda: store.writer.update("streams", values, is_due))


# ------------------------------------------------------------------- verify


def verify(
    store: Store, row: RunRow, staged: Staged, decided: Decided
) -> tuple[claims.Outcome, dict[str, int]]:
    """Compare the store with the decision.

    Return the outcome for pending entries, and the counts of rows that were read, written, missing
    or extra.

    Raises:
        VerificationError: the store differs from the decision, and no commit of another writer can
            explain the difference.
    """
    pending, entries = _in_scope(store, row, decided)
    (of_pending, written), of_entries = _digests(
        pending, entries, is_counted=f"run_seq = {row.run_seq:d}L"
    )
    counts = {
        "pending_read": staged.pending.rows,
        "entries_read": staged.entries.rows,
        "pending_written": written,
        "pending_missing": 0,
        "pending_extra": staged.pending_after.rows - staged.pending.rows,
    }
    if (of_pending, of_entries) == (staged.pending_after, staged.entries_after):
        return claims.Outcome(), counts
    outcome = claims.verify(store, row, decided)
    differing = {
        "pending": _differing(staged_pending(store, staged.uuid), pending, "pending"),
        "entries": _differing(staged_entries(store, staged.uuid), entries, "entries"),
    }
    for table, rows in differing.items():
        counted = rows.sql(
            "SELECT difference, count(*) AS n FROM {this} AS this GROUP BY difference"
        )
        numbers = {number["difference"]: number["n"] for number in counted.collect()}
        if numbers and not _others_wrote(store, row, table):
            _raise_difference(store, row, table, rows)
        for name in ("missing", "extra"):
            counts[f"{table}_{name}"] = numbers.get(name, 0)
    return outcome, counts


def _in_scope(store: Store, row: RunRow, decided: Decided) -> tuple[Relation, Relation]:
    """Return the rows of pending and entries in the scope of a run."""
    scope = scope_of(row)
    left = decided.rows(Kind.STREAM_LEFT) if decided.of(Kind.STREAM_LEFT) else None
    pending, entries = (
        without_streams(in_bucket(store, store.relation(table), scope), left)
        for table in ("pending", "entries")
    )
    pending = pending.where(scope.has_group())
    streams = decided.rows(Kind.STREAM).select("stream")
    return pending, entries_in_scope(entries, streams, scope)


def entries_in_scope(entries: Relation, streams: Relation, scope: Scope) -> Relation:
    """Return the entries of streams that were read, or would have been read if they existed.

    Args:
        streams: one row per stream that was read.  Its other columns are added to the rows.
    """
    read = streams.select("*", "true AS was_read")
    joined = entries.sql(
        "SELECT * FROM {this} AS this LEFT JOIN {read} AS read USING (stream)", read=read
    )
    return joined.where(f"coalesce(was_read, {scope.has_whole_stream()})")


def _differing(staged: Relation, stored: Relation, table: str) -> Relation:
    """Return the keys of rows in which the staged rows and the store differ.

    `difference` is `missing` if the store lacks the staged row or has other content for its key.
    It is `extra` if only the store has the key.
    """
    key = TABLES[table].key
    extra = lacking(table, stored.select(*key), staged)
    missing = staged.lacking(stored, f"{same_key(table)} AND {_has_content(table)}")
    types = {"difference": "STRING", **{name: TABLES[table].types[name] for name in key}}
    parts = {"missing": missing, "extra": extra}
    return union_by_name(
        [rows.select(f"'{name}' AS difference", *key) for name, rows in parts.items()], types
    )


def _has_content(table: str) -> str:
    """Return the SQL condition that a stored row, `t`, has the content of a staged row, `s`."""
    if table == "entries":  # if only the id was read, any payload matches
        return "(s.fields IS NULL OR t.fields <=> s.fields)"
    return " AND ".join(f"t.{name} <=> s.{name}" for name in claims.STATE)


def _others_wrote(store: Store, row: RunRow, table: str) -> bool:
    """Return True if a commit of another writer may explain a difference.

    The result is also True if the table's history no longer has all commits since the decision.
    """
    commits, is_complete = claims.commits_since(store, row, table)
    others = (
        commit
        for commit in commits
        if not claims.is_own(commit, row) and not claims.is_housekeeping(commit)
    )
    return not is_complete or any(others)


def _raise_difference(store: Store, row: RunRow, table: str, rows: Relation) -> None:
    first = rows.select("*", f"{id_text_sql()} AS id").order_by(*TABLES[table].key).first()
    example = "" if first is None else f"; the first is {first['stream']} {first['id']}"
    raise VerificationError(
        f"run {row.run_seq} ({row.key}) was applied, but {table} does not contain what the run"
        f" decided, although no other writer changed the table{example}. The run stays unfinished:"
        " start it again. If this happens again, report it, and continue with:"
        f" {claims.abandon_command(store, row)}",
        run=row.key,
        table=table,
    )
