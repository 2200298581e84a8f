"""Report finished runs, and the entries that one of them changed, to people and to programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from claimlib.commands.reply import CLAIMED_NAMES, ENTRY_NAMES
from claimlib.commands.runs import RunList
from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP, ID_ORDER
from claimlib.report.counts import MEANINGS
from claimlib.report.headings import headings
from claimlib.report.report_model import Cell, Report
from claimlib.report.rows import Record, fetch_rows
from claimlib.report.text import (
    duration,
    entries_text,
    idle,
    instant,
    missing_payloads,
    not_shown,
    plain_row,
    visible,
)
from claimlib.runs import FinishedRun, Phase, RunRow
from claimlib.runs.request_text import parameter_name, parameter_text


def entry_columns(kind: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the headings of a list of entries by column, and the names in its records.

    Args:
        kind: `claimed`, `deleted` or `lost`.
    """
    columns = headings(
        *GROUP,
        "id",
        "from_consumer",
        "from_delivery_time_ms",
        "from_idle_ms",
        "from_delivery_count",
    )
    if kind != "claimed":
        return columns, ENTRY_NAMES
    return columns | headings("consumer"), CLAIMED_NAMES


def report_of_entries(
    finished: FinishedRun, kind: str, rows: Relation, limit: int | None
) -> Report:
    """Return the claimed, deleted or lost entries of one run, by stream, group and id.

    Args:
        kind: `claimed`, `deleted` or `lost`.
        rows: these entries.
        limit: the most entries to show, or None for all.
    """
    run = {
        "run_seq": finished.run_seq,
        "run_id": finished.run_id,
        "command": finished.command,
    }
    title = f"{kind} by run {finished.run_seq} ({finished.key})"
    number = finished.counts.get(kind, 0)
    none_note = f"no entry was {kind} by this run"
    if number:
        none_note = f"no entry matches the filter: this run {kind} {entries_text(number)}"
    return _entries_report(title, none_note, run, kind, rows, limit)


def report_of_dry_run(command: str, kind: str, rows: Relation, limit: int | None) -> Report:
    """Return the entries that a dry run would claim or delete.

    The columns are those of `report_of_entries`.
    """
    run = {"run_seq": None, "run_id": None, "command": command, "dry_run": True}
    title = f"would be {kind} by {command} (dry run; nothing was written)"
    return _entries_report(title, f"no entry would be {kind}", run, kind, rows, limit)


def _entries_report(
    title: str,
    none_note: str,
    run: Mapping[str, object],
    kind: str,
    rows: Relation,
    limit: int | None,
) -> Report:
    columns, names = entry_columns(kind)
    total = rows.count()
    entries = fetch_rows(rows, (*GROUP, *ID_ORDER), limit, total, plain_row)
    shown = entries.shown
    has_owner = "consumer" in columns
    return Report(
        title=title,
        columns=columns,
        rows=tuple(_entry_row(row, has_owner=has_owner) for row in shown),
        cut_off=tuple(not_shown(entries.hidden, "entry", "entries", shown=len(shown))),
        notes=(
            *([] if total else [none_note]),
            *missing_payloads(shown),
        ),
        document={**run, kind: entries.records, f"{kind}_not_shown": entries.hidden},
        records=entries.records,
        names=names,
    )


def _entry_row(row: Record, *, has_owner: bool) -> tuple[Cell, ...]:
    values = (
        visible(row["stream"]),
        visible(row["consumer_group"]),
        row["id"],
        visible(row["from_consumer"]),
        instant(row["from_delivery_time_ms"]),
        idle(row["from_idle_ms"]),
        row["from_delivery_count"],
    )
    return (*values, visible(row["consumer"])) if has_owner else values


def report_of_refused(finished: FinishedRun, rows: Relation, limit: int | None) -> Report:
    """Return the groups, or the requests of an XCLAIM or XACK, that a run refused, with reasons."""
    total = rows.count()
    refused = rows.select(*GROUP, "request_number", "reason")
    fetched = fetch_rows(refused, (*GROUP, "request_number"), limit, total)
    shown = fetched.shown
    return Report(
        title=f"refused by run {finished.run_seq} ({finished.key})",
        columns=REFUSED_COLUMNS,
        rows=tuple(
            (
                *(visible(row[name]) for name in GROUP),
                row["request_number"],
                row["reason"],
            )
            for row in shown
        ),
        cut_off=tuple(not_shown(fetched.hidden, "refusal", shown=len(shown))),
        notes=() if total else ("nothing was refused by this run",),
        document={
            "run_seq": finished.run_seq,
            "run_id": finished.run_id,
            "command": finished.command,
            "refused": fetched.records,
            "refused_not_shown": fetched.hidden,
        },
        records=fetched.records,
    )


REFUSED_COLUMNS = headings(*GROUP, "request_number", "reason")

_RUN_COUNTS = ("claimed", "forced", "deleted", "acked", "lost", "refused")


def report_of_runs(where: str, listed: RunList) -> Report:
    """Return the newest runs of a store, newest first."""
    hidden = listed.total - len(listed.runs)
    return Report(
        title=f"Runs of {where}",
        columns=LIST_COLUMNS,
        rows=tuple(_run_row(run) for run in listed.runs),
        cut_off=tuple(not_shown(hidden, "run", shown=len(listed.runs))),
        notes=(
            *(() if listed.runs else ("no run yet",)),
            *(
                f"{key} is unfinished: its decision was written, and the next run on this store"
                " finishes it first"
                for key in listed.unfinished
            ),
            *(note for run in listed.runs for note in _abandoned(run)),
        ),
        document={
            "runs": [run_document(run) for run in listed.runs],
            "runs_not_shown": hidden,
            "unfinished": list(listed.unfinished),
        },
        records=[_run_record(run) for run in listed.runs],
        names=LIST_NAMES,
    )


def with_unfinished_note(report: Report, unfinished: Sequence[RunRow]) -> Report:
    """Return a report with a note on the unfinished runs that it does not show.

    Args:
        unfinished: `Reading.unfinished`.
    """
    notes = list(report.notes)
    if unfinished:
        first = unfinished[0]
        seq = first.run_seq
        before = f", and --as-of {seq - 1} the store before it" if seq > 1 else ""
        notes.append(
            f"run {seq} ({visible(first.key)}) is unfinished: this is the store before it. The next"
            f" run finishes it; then --as-of {seq} shows the store after it{before}"
        )
    document = {**report.document, "unfinished": [run.key for run in unfinished]}
    return replace(report, notes=tuple(notes), document=document)


LIST_COLUMNS = headings("run_seq", "key", "began_ms", "took_ms", "engine", *_RUN_COUNTS, "now_ms")
LIST_NAMES = (
    "run_seq",
    "key",
    "command",
    "run_id",
    "began_ms",
    "ended_ms",
    "took_ms",
    *_RUN_COUNTS,
    "now_ms",
    "request",
    "counts",
    "phase_ms",
    "input_versions",
    "output_versions",
    "software_version",
    "engine",
)


def _run_record(run: FinishedRun) -> dict[str, object]:
    """Return the document of a run, with the values that only the table shows."""
    return {
        **run_document(run),
        "key": run.key,
        **{name: run.counts.get(name) for name in _RUN_COUNTS},
        "took_ms": sum(run.phase_ms.values()),
    }


def _run_row(run: FinishedRun) -> tuple[Cell, ...]:
    counts = [run.counts.get(name) for name in _RUN_COUNTS]
    took = duration(sum(run.phase_ms.values()))
    began = instant(run.began_ms)
    return (run.run_seq, visible(run.key), began, took, run.engine, *counts, instant(run.now_ms))


def report_of_run(finished: FinishedRun) -> Report:
    """Return one run: its request, its counts, and the duration of each phase."""
    requested = json.loads(finished.request)
    request = {name: value for name, value in requested.items() if value is not None}
    rows: list[tuple[Cell, ...]] = [
        (f"request: {parameter_name(name)}", parameter_text(name, value), "")
        for name, value in request.items()
    ]
    rows += [
        (name.replace("_", " "), count, MEANINGS.get(name, ""))
        for name, count in sorted(finished.counts.items())
    ]
    phase_ms = {
        str(phase): finished.phase_ms[phase] for phase in Phase if phase in finished.phase_ms
    }
    details: list[tuple[str, Cell]] = [
        ("began", instant(finished.began_ms)),
        ("ended", instant(finished.ended_ms)),
        ("engine", finished.engine),
        *((f"{phase} took", duration(ms)) for phase, ms in phase_ms.items()),
    ]
    rows += [(*row, "") for row in details]
    parts: list[tuple[str, Mapping[str, object]]] = [
        ("request", request),
        ("counts", dict(sorted(finished.counts.items()))),
        ("phase_ms", phase_ms),
    ]
    when = {"began_ms": finished.began_ms, "ended_ms": finished.ended_ms}
    return Report(
        title=f"Run {finished.run_seq} ({finished.key})",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=tuple(_abandoned(finished)),
        document=run_document(finished),
        records=[
            *({"what": name, "value": ms, "meaning": None} for name, ms in when.items()),
            {"what": "engine", "value": finished.engine, "meaning": None},
            *(
                {
                    "what": f"{part}.{name}",
                    "value": value,
                    "meaning": MEANINGS.get(name) if part == "counts" else None,
                }
                for part, values in parts
                for name, value in values.items()
            ),
        ],
    )


COLUMNS = headings("what", "value", "meaning")


def _abandoned(run: FinishedRun) -> Iterable[str]:
    if run.is_abandoned:
        yield f"{visible(run.key)} was abandoned: it did not do all that was requested"


def run_document(run: FinishedRun) -> dict[str, object]:
    """Return a run for programs, with times in ms.

    The names in each map are sorted.  A map in a table has no order, so two engines could return
    its names in different orders.
    """
    return {
        "run_seq": run.run_seq,
        "run_id": run.run_id,
        "command": run.command,
        "request": json.loads(run.request),
        "now_ms": run.now_ms,
        "counts": dict(sorted(run.counts.items())),
        "phase_ms": dict(sorted(run.phase_ms.items())),
        "began_ms": run.began_ms,
        "ended_ms": run.ended_ms,
        "input_versions": dict(sorted(run.input_versions.items())),
        "output_versions": dict(sorted(run.output_versions.items())),
        "software_version": run.software_version,
        "engine": run.engine,
    }
