"""What people and programs read of a command's result (`layout` prints it).

Groups and entries may be millions: a report shows the first `limit` rows, the worst first, and says
how many it does not show; totals are of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from claimlib.cells import counted, duration, instant, not_shown, plain_row, visible
from claimlib.commands.check import Finding
from claimlib.commands.imports import ImportReply
from claimlib.commands.reply import Reply
from claimlib.commands.runs import RunList
from claimlib.commands.snapshot import SnapshotReply
from claimlib.commands.xpending import ShownRange
from claimlib.ids import StreamId, from_bigint
from claimlib.layout import DEFAULT_LIMIT, Cell, Report
from claimlib.model import PendingSummary
from claimlib.names import spell
from claimlib.plans.keys import GROUP, unsigned
from claimlib.plans.requests import GUARDS
from claimlib.plans.xpending import BADLY_TROUBLED, TROUBLED
from claimlib.runs import Finished, Phase

# ------------------------------------------------------------------- xautoclaim

_SUMMED = ("pending_before", "pending_after", "claimed", "deleted", "lost", "at_boundary")
_MAXIMA = ("oldest_idle_ms", "highest_delivery_count")


def of_reply(reply: Reply, limit: int = DEFAULT_LIMIT) -> Report:
    """One row per (stream, consumer_group), refused ones first, then by what was done; and a total.

    Runs the reply's `groups` once, or twice where there are more groups than are shown.
    """
    count = reply.counts.get("swept", 0) + reply.counts.get("refused", 0)
    shown = [row.asDict() for row in _worst_first(reply.groups).limit(limit).collect()]
    totals = _totals(shown) if count <= limit else _all_totals(reply.groups)
    rows = [_group_cells(row) for row in shown]
    total = ("total", _groups_text(count), *_numbers(totals), "")
    return Report(
        title=_title(reply),
        columns=_GROUP_COLUMNS,
        rows=(*rows, total),
        notes=(
            *([] if count else [_NO_GROUP]),
            *not_shown(count - len(shown), "groups"),
            *_unlike(reply.counts),
            *_further(reply),
        ),
        document={
            "command": "xautoclaim",
            "run_seq": reply.run_seq,
            "run_id": reply.run_id,
            "dry_run": reply.dry_run,
            "counts": dict(reply.counts),
            "totals": totals,
            "groups": shown,
            "groups_not_shown": count - len(shown),
        },
    )


_NO_GROUP = (
    "No consumer group of the store matches the request, so nothing was done. claimlib xpending"
    " lists the groups."
)


def _groups_text(count: int) -> str:
    return f"{count:,} group" + ("" if count == 1 else "s")


_GROUP_COLUMNS = (
    "stream",
    "group",
    "pending before",
    "after",
    "claimed",
    "deleted",
    "oldest idle",
    "most deliveries",
    "idle = min-idle",
    "refused because",
)


def refusals(reply: Reply, limit: int = 10) -> list[str]:
    """The refused groups and why, for stderr; the last line counts those beyond `limit`."""
    refused = reply.counts.get("refused", 0)
    if not refused:
        return []
    rows = reply.groups.where(F.col("status") == "refused").orderBy(*GROUP).limit(limit).collect()
    named = [
        f"refused: {visible(row['stream'])} / {visible(row['consumer_group'])}: {row['reason']}"
        for row in rows
    ]
    return [*named, *([f"refused: {refused - limit:,} more"] if refused > limit else [])]


def _worst_first(groups: DataFrame) -> DataFrame:
    refused = F.col("status") == "refused"
    touched = F.col("claimed") + F.col("deleted")
    order = [refused, touched, F.col("oldest_idle_ms")]
    return groups.orderBy(*(column.desc() for column in order), *GROUP)


def _totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    known = {
        name: [row[name] for row in rows if row[name] is not None] for name in (*_SUMMED, *_MAXIMA)
    }
    sums = {name: sum(known[name]) if known[name] or not rows else None for name in _SUMMED}
    return {**sums, **{name: max(known[name], default=None) for name in _MAXIMA}}


def _all_totals(groups: DataFrame) -> dict[str, int | None]:
    sums = [F.sum(name).alias(name) for name in _SUMMED]
    row = groups.agg(*sums, *(F.max(name).alias(name) for name in _MAXIMA)).first()
    return row.asDict() if row is not None else {}


def _group_cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        visible(row["stream"]),
        visible(row["consumer_group"]),
        *_numbers(row),
        row["reason"],
    )


def _numbers(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        *(row[name] for name in ("pending_before", "pending_after", "claimed", "deleted")),
        duration(row["oldest_idle_ms"]),
        row["highest_delivery_count"],
        row["at_boundary"],
    )


def _title(reply: Reply) -> str:
    if reply.dry_run:
        return "XAUTOCLAIM, dry run: what it would do; nothing was written"
    return f"XAUTOCLAIM, run {reply.run_seq} (xautoclaim:{reply.run_id})"


def _further(reply: Reply) -> Iterable[str]:
    """How many pages did not reach the end of their PEL."""
    further = reply.cursors.where("next_id <> '0-0'").count() if reply.counts.get("cursor") else 0
    if further:
        yield f"{further:,} groups have entries behind this page: the next page goes on there"


def _unlike(counts: Mapping[str, int]) -> Iterable[str]:
    """What else became of the decisions."""
    if counts.get("base_run"):
        yield (
            f"incremental: only what may have changed since run {counts['base_run']} was looked at,"
            " so what is pending was not counted"
        )
    if counts.get("lost"):
        yield f"{counts['lost']:,} lost: somebody else changed the row first"
    if counts.get("spared"):
        yield f"{counts['spared']:,} spared: idle enough, and left to their owners by the guards"
    if counts.get("parked"):
        yield f"{counts['parked']:,} of the claimed are parked: delivered too often already"
    if counts.get("delivered_later"):
        yield (
            f"{counts['delivered_later']:,} entries were delivered after the instant that they are"
            " judged at (a --now that is too early, or deliveries during the snapshot): they are"
            " not idle at all"
        )
    if counts.get("gone"):
        yield f"{counts['gone']:,} gone: deleted by us or by somebody else, it cannot be told"


# ------------------------------------------------------------------- entries of a run

_ENTRY_COLUMNS = ("stream", "group", "id", "consumer before", "delivered before", "deliveries")


def of_policy(explained: DataFrame, limit: int = DEFAULT_LIMIT) -> Report:
    """Which request of a policy each group gets; first the groups that get none."""
    rows = explained.orderBy(F.col("request").asc_nulls_first(), *GROUP)
    shown = [row.asDict() for row in rows.limit(limit).collect()]
    found = explained.agg(F.count("*").alias("groups"), F.count("request").alias("asked")).first()
    total, asked = (found["groups"], found["asked"]) if found is not None else (0, 0)
    return Report(
        title="Which request each group gets (the first in the file whose globs match)",
        columns=(*GROUP, "request", "consumer", "min_idle", *_OF_POLICY, "guards"),
        rows=tuple(_policy_cells(row) for row in shown),
        notes=(
            *not_shown(total - len(shown), "groups"),
            *([f"{total - asked:,} groups get no request"] if total > asked else []),
        ),
        document={"groups": shown, "groups_not_shown": total - len(shown)},
    )


_OF_POLICY = ("count", "cursor", "justid", "idle_rule")


def _policy_cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    names = (visible(row[name]) for name in GROUP)
    if row["request"] is None:
        return (*names, "none", *[None] * (len(_OF_POLICY) + 3))
    rest = (row[name] for name in _OF_POLICY)
    guards = ", ".join(f"{name} {row[name]}" for name in GUARDS if row[name] is not None)
    who = (row["request"], visible(row["consumer"]), duration(row["min_idle_ms"]))
    return (*names, *who, *rest, visible(guards) if guards else None)


def of_entries(finished: Finished, kind: str, rows: DataFrame, limit: int) -> Report:
    """The claimed, deleted or lost entries of one run, by stream, group and id."""
    total = rows.count()
    order = (*GROUP, unsigned("id_ms"), unsigned("id_seq"))
    shown = rows.orderBy(*order).limit(limit).collect()
    has_owner = "consumer" in rows.columns
    return Report(
        title=f"{kind} by run {finished.run_seq} ({finished.key})",
        columns=(*_ENTRY_COLUMNS, "consumer now") if has_owner else _ENTRY_COLUMNS,
        rows=tuple(_entry_cells(row, has_owner=has_owner) for row in shown),
        notes=(
            *not_shown(total - len(shown), "entries"),
            *counted(
                _gone_payloads(shown), "of these have no payload any more: their entries are gone"
            ),
        ),
        document={
            "run_seq": finished.run_seq,
            "run_id": finished.run_id,
            "command": finished.command,
            kind: [plain_row(row.asDict()) for row in shown],
            f"{kind}_not_shown": total - len(shown),
        },
    )


def _gone_payloads(shown: Sequence[Row]) -> int:
    return sum("payload" in row and row["payload"] == "gone" for row in shown)


def _entry_cells(row: Row, *, has_owner: bool) -> tuple[Cell, ...]:
    cells = (
        visible(row["stream"]),
        visible(row["consumer_group"]),
        row["id"],
        visible(row["from_consumer"]),
        instant(row["from_delivery_time_ms"]),
        row["from_delivery_count"],
    )
    return (*cells, visible(row["consumer"])) if has_owner else cells


# ------------------------------------------------------------------- xpending

_OVERVIEW_SUMS = ("pending", "stalled", "troubled", "badly_troubled", "owners", "dead_owners")


def of_overview(where: str, groups: DataFrame, stalled_ms: int, limit: int) -> Report:
    """What is pending in each group, the worst first: the longest idle, then the most deliveries;
    groups of which it is not known how long come behind, and what is empty last."""
    order = (
        *((F.col("pending") > 0).desc(), F.col("oldest_idle_ms").desc_nulls_last()),
        *(F.col("highest_delivery_count").desc_nulls_last(), *GROUP),
    )
    shown = [row.asDict() for row in groups.orderBy(*order).limit(limit).collect()]
    unknown = F.col("now_ms").isNull() & (F.col("pending") > 0)
    found = groups.agg(
        F.count("*").alias("groups"),
        F.count_if(unknown).alias("groups_without_instant"),
        F.count_if(~F.col("is_known")).alias("groups_not_known"),
        *(F.sum(name).alias(name) for name in (*_OVERVIEW_SUMS, "unknown_owners")),
        *(F.max(name).alias(name) for name in _MAXIMA),
    ).first()
    totals = found.asDict() if found is not None else {}
    since = duration(stalled_ms)
    total = ("total", _groups_text(totals["groups"]), *_overview_numbers(totals))
    return Report(
        title=f"Pending in {where}",
        columns=(
            *("stream", "group", "pending", f"idle {since}+", "oldest idle", "most deliveries"),
            *(f"{TROUBLED}+ deliveries", f"{BADLY_TROUBLED}+", "owners"),
            *(f"owners idle {since}+", "owners unknown"),
        ),
        rows=(
            *(
                (visible(r["stream"]), visible(r["consumer_group"]), *_overview_numbers(r))
                for r in shown
            ),
            total,
        ),
        notes=(
            *not_shown(totals["groups"] - len(shown), "groups"),
            *counted(
                totals["groups_without_instant"],
                "groups have no instant: how long their"
                " entries have been idle is not known (--now gives one)",
            ),
            *counted(totals["groups_not_known"], "groups are not in the table groups"),
        ),
        document={
            "command": "xpending",
            "stalled_after_ms": stalled_ms,
            "totals": totals,
            "groups": shown,
            "groups_not_shown": totals["groups"] - len(shown),
        },
    )


def _overview_numbers(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        *(row["pending"], row["stalled"], duration(row["oldest_idle_ms"])),
        *(row["highest_delivery_count"], row["troubled"], row["badly_troubled"]),
        *(row["owners"], row["dead_owners"], row["unknown_owners"]),
    )


def of_summary(stream: bytes, group: bytes, found: PendingSummary) -> Report:
    """What XPENDING says of one group."""
    ids = [None if one is None else str(one) for one in (found.smallest, found.largest)]
    owners = [(spell(name), number) for name, number in found.consumers]
    return Report(
        title=f"Pending in {visible(spell(stream))} / {visible(spell(group))}: {found.number:,}"
        + (f", from {ids[0]} to {ids[1]}" if found.number else ""),
        columns=("consumer", "pending"),
        rows=tuple((visible(name), number) for name, number in owners),
        notes=(),
        document={
            "command": "xpending",
            "stream": spell(stream),
            "consumer_group": spell(group),
            "pending": found.number,
            "smallest_id": ids[0],
            "largest_id": ids[1],
            "consumers": dict(owners),
        },
    )


def of_range(stream: bytes, group: bytes, found: ShownRange) -> Report:
    """The rows that XPENDING shows of one group, and where those begin that are not shown."""
    shown = [
        {
            "id": str(StreamId(from_bigint(row["id_ms"]), from_bigint(row["id_seq"]))),
            **{name: row[name] for name in ("consumer", "idle_ms", "delivery_count")},
        }
        for row in found.rows
    ]
    hidden = found.total - len(shown)
    next_start = f"({shown[-1]['id']}" if hidden else None
    return Report(
        title=f"Pending in {visible(spell(stream))} / {visible(spell(group))}",
        columns=("id", "consumer", "idle", "deliveries"),
        rows=tuple(
            (
                row["id"],
                visible(row["consumer"]),
                duration(row["idle_ms"]),
                row["delivery_count"],
            )
            for row in shown
        ),
        notes=(
            *counted(
                hidden,
                f"more entries not shown: {len(shown):,} are printed at most; --start"
                f" '{next_start}' shows the next, and in Python"
                " claimlib.commands.xpending.pending_range has all of them as a DataFrame",
            ),
        ),
        document={
            "command": "xpending",
            "stream": spell(stream),
            "consumer_group": spell(group),
            "rows": shown,
            "rows_not_shown": hidden,
            "next_start": next_start,
        },
    )


# ------------------------------------------------------------------- other commands


_MIRROR_COUNTS = ("streams", "groups", "pending_read", "entries_read", "pending_written")


def of_snapshot(reply: SnapshotReply) -> Report:
    """What was read of the server, and what changed in the store; other counts if not 0."""
    notes = tuple(_of_server(reply.counts))
    return _of_mirror("snapshot", f"Snapshot of {reply.source}", reply, notes)


def of_import(reply: ImportReply) -> Report:
    """What was read of the given tables, what changed in the store, and what a sweep will lack."""
    return _of_mirror("import", f"Import of {reply.source}", reply, tuple(_lacking(reply.counts)))


def _of_mirror(
    command: str, title: str, reply: SnapshotReply | ImportReply, notes: tuple[str, ...]
) -> Report:
    hidden = {*_MIRROR_COUNTS, *_OF_SERVER}
    others = sorted(name for name, n in reply.counts.items() if n and name not in hidden)
    return Report(
        title=f"{title}, run {reply.run_seq} ({command}:{reply.run_id})",
        columns=("what", "count"),
        rows=tuple(
            (name.replace("_", " "), reply.counts.get(name, 0))
            for name in (*_MIRROR_COUNTS, *others)
        ),
        notes=notes,
        document={
            "command": command,
            "run_seq": reply.run_seq,
            "run_id": reply.run_id,
            "source": reply.source,
            "counts": dict(reply.counts),
        },
    )


_OF_SERVER = {
    "server_restarted": "the server is another process than that of the last snapshot (another run"
    " id): it was restarted, or another one answers at this address",
    "replication_changed": "the server has another replication id than at the last snapshot: it"
    " was restarted without its data, or a replica took over",
}


def _of_server(counts: Mapping[str, int]) -> Iterable[str]:
    return (note for name, note in _OF_SERVER.items() if counts.get(name))


def _lacking(counts: Mapping[str, int]) -> Iterable[str]:
    if counts.get("groups_without_instant"):
        yield (
            f"{counts['groups_without_instant']:,} groups have no instant: give claimlib xautoclaim"
            " --now, or snapshot_ms in --groups"
        )
    if counts.get("streams_without_proof"):
        yield (
            f"{counts['streams_without_proof']:,} streams have no proof of absence: their groups"
            " are refused where something is pending; give --streams, or --entries-complete"
        )


def of_store(where: str, buckets: int, source: str | None) -> Report:
    """A store that is there now."""
    return Report(
        title=f"Store {where}",
        columns=("what", "value"),
        rows=(("buckets", buckets), ("source", source or "the first snapshot's server")),
        notes=(f"next: claimlib snapshot redis://HOST:PORT {where}, or claimlib import {where} …",),
        document={"command": "init", "store": where, "buckets": buckets, "source": source},
    )


def of_check(where: str, found: Sequence[Finding]) -> Report:
    """What a store lacks, the worst first."""
    refusing = sum(one.refuses for one in found)
    note = f"{refusing} of them make a sweep refuse groups; the others are remarks"
    return Report(
        title=f"Check of {where}",
        columns=("table", "what", "count", "example", "groups refused"),
        rows=tuple(
            (one.table, one.what, one.count, one.example, "yes" if one.refuses else "no")
            for one in found
        ),
        notes=(
            note if found else "nothing found",
            *(f"to mend {one.table}: {one.remedy}" for one in found if one.remedy is not None),
        ),
        document={"store": where, "findings": [asdict(one) for one in found]},
    )


_RUN_COUNTS = ("base_run", "claimed", "forced", "deleted", "acked", "lost", "refused")


def of_runs(where: str, found: RunList) -> Report:
    """The newest runs of a store, newest first."""
    hidden = found.total - len(found.runs)
    return Report(
        title=f"Runs of {where}",
        columns=("run", "key", "since run", *_RUN_COUNTS[1:], "took", "--now"),
        rows=tuple(_run_cells(run) for run in found.runs),
        notes=(
            *not_shown(hidden, "runs"),
            *(() if found.runs else ("no run yet",)),
            *(
                f"{key} is decided and not finished: the next run does it"
                for key in found.unfinished
            ),
            *(note for run in found.runs for note in _given_up(run)),
        ),
        document={
            "runs": [_run_document(run) for run in found.runs],
            "runs_not_shown": hidden,
            "unfinished": list(found.unfinished),
        },
    )


def _run_cells(run: Finished) -> tuple[Cell, ...]:
    counts = [run.counts.get(name) for name in _RUN_COUNTS]
    took = duration(sum(run.phase_ms.values()))
    return (run.run_seq, visible(run.key), *counts, took, instant(run.now_ms))


def of_run(finished: Finished, remark: str | None = None) -> Report:
    """One run: what it was asked, what it did, how long each phase took; and how it was decided, in
    words (null: there is nothing to say)."""
    asked = json.loads(finished.request)
    rows: list[tuple[Cell, ...]] = [
        (f"asked: {name}", _said(value)) for name, value in asked.items() if value is not None
    ]
    rows += sorted(finished.counts.items())
    took = finished.phase_ms
    rows += [(f"{phase} took", duration(took[phase])) for phase in Phase if phase in took]
    return Report(
        title=f"Run {finished.run_seq} ({finished.key})",
        columns=("what", "value"),
        rows=tuple(rows),
        notes=(*_given_up(finished), *([] if remark is None else [remark])),
        document={**_run_document(finished), "remark": remark},
    )


def _given_up(run: Finished) -> Iterable[str]:
    if run.is_abandoned:
        yield f"{visible(run.key)} was given up: it did not do what it was asked"


def _said(value: object) -> str:
    """A part of a request, in one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _run_document(run: Finished) -> dict[str, object]:
    return {
        "run_seq": run.run_seq,
        "run_id": run.run_id,
        "command": run.command,
        "request": json.loads(run.request),
        "now_ms": run.now_ms,
        "counts": dict(run.counts),
        "phase_ms": dict(run.phase_ms),
        "input_versions": dict(run.input_versions),
        "output_versions": dict(run.output_versions),
        "software_version": run.software_version,
    }
