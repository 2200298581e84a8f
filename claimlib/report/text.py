"""Format the cells and the notes of reports: names, durations, times and counts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from claimlib.plans.keys import GROUP
from claimlib.report.report_model import MOST_ROWS, Cell
from claimlib.semantics.names import spell
from claimlib.terminal import number_of, one_line
from claimlib.times import format_instant_ms, round_duration_ms


def visible(name: str | None) -> str | None:
    """Return a name for a terminal.

    Characters that would move the cursor are written as escapes.  An empty name is `(empty)`.
    """
    return None if name is None else one_line(name) or "(empty)"


def duration(ms: int | None) -> str | None:
    """Return a duration in two units, rounded down.  JSON has the milliseconds."""
    return None if ms is None else round_duration_ms(ms)


def idle(ms: int | None) -> str | None:
    """Return an idle time, or `delivered later` if it is negative.

    It is negative if the entry was delivered after the time of the report.
    """
    return "delivered later" if ms is not None and ms < 0 else duration(ms)


def instant(ms: int | None) -> str | None:
    """Return a time in UTC."""
    return None if ms is None else format_instant_ms(ms)


def with_times(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the text in UTC of each of its times.

    For example, the text of `delivery_time_ms` is in `delivery_time`.
    """
    times = {name: ms for name, ms in row.items() if name.endswith("_time_ms")}
    return row | {name.removesuffix("_ms"): instant(ms) for name, ms in times.items()}


def group_row(row: Mapping[str, Any], numbers: Iterable[str]) -> tuple[Cell, ...]:
    """Return the cells of a group: its names, and some of its numbers."""
    return (*(visible(row[name]) for name in GROUP), *(row[name] for name in numbers))


def groups_text(count: int) -> str:
    """Return a number of groups, such as `1 group` or `2 groups`."""
    return number_of(count, "group")


def entries_text(count: int) -> str:
    """Return a number of entries, such as `1 entry` or `2 entries`."""
    return number_of(count, "entry", "entries")


def not_shown(
    count: int, singular: str, many: str | None = None, *, shown: int = 0
) -> Iterable[str]:
    """Yield a note if a limit has cut rows off.

    Args:
        count: the number of rows that were cut off.
        shown: the number of rows in the report.
    """
    if count > 0:
        number = number_of(count, f"more {singular}", f"more {many or singular + 's'}")
        if shown >= MOST_ROWS:
            most = f"a table has at most {MOST_ROWS:,} rows"
            yield f"{number} not shown: {most}; --output json, csv or jsonl has all"
        else:
            yield f"{number} not shown; use --limit to show more"


def counted(count: int, singular: str, many: str) -> Iterable[str]:
    """Yield a note if the count is not 0."""
    if count:
        yield number_of(count, singular, many)


def missing_payloads(shown: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield a note for each reason why shown entries have no payload."""
    missing = Counter(row.get("payload") for row in shown)
    yield from counted(
        missing["gone"],
        "of these has no payload, because its stream entry no longer exists",
        "of these have no payload, because their stream entries no longer exist",
    )
    yield from counted(
        missing["not_kept"],
        "of these has no payload, because the store never had it",
        "of these have no payload, because the store never had it",
    )


def unowned(count: int) -> Iterable[str]:
    """Yield a note if entries have no owner.

    The table has rows of owners only, so no row counts these entries.
    """
    yield from counted(count, "entry has no owner", "entries have no owner")


def repeated(run_seq: int | None, *, is_repeat: bool) -> Iterable[str]:
    """Yield a note if an earlier call with the same run id has already done the run."""
    if is_repeat:
        yield f"run {run_seq} was already done: nothing was changed"


def only_in_store(counts: Mapping[str, int] | None) -> Iterable[str]:
    """Yield a note if runs have changed entries in the store only, not on the server.

    Args:
        counts: `commands.server_view.only_in_store`.  None if the store mirrors no server.
    """
    if not counts or not any(counts.values()):
        return
    parts = [
        number_of(counts[name], *nouns)
        for name, nouns in (
            ("claimed", ("claim",)),
            ("restored", ("undone claim",)),
            ("deleted", ("deletion",)),
        )
        if counts[name]
    ]
    is_single = sum(counts.values()) == 1
    verb, origin = (
        ("exists", "It is from a run") if is_single else ("exist", "They are from all runs")
    )
    yield (
        f"{' and '.join(parts)} {verb} only in this store, not on the server."
        f" {origin} since the snapshot."
    )


def only_in_store_after(
    counts: Mapping[str, int] | None, of_run: Mapping[str, int], place: str, key: str
) -> Iterable[str]:
    """Yield the note of `only_in_store` for the report of a run, with the next step.

    Args:
        counts: see `only_in_store`.
        of_run: the counts of the run.
        place: where the store is.
        key: the run, as command:run_id.
    """
    from claimlib.plans.server_view_plan import CHANGING

    has_own = any(of_run.get(str(kind)) for kind in CHANGING)
    next_step = (
        f"make those of this run on the server: claimlib writeback {shlex.quote(place)}"
        f" {shlex.quote(key)} URL"
        if has_own
        else f"list the runs: claimlib runs {shlex.quote(place)}"
    )
    for note in only_in_store(counts):
        yield f"{note} To {next_step}"


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for JSON, without the two numbers of its id, which it also has as text.

    Names and values of fields are spelled like the names in the tables (`names.spell`).
    """
    for half in ("id_ms", "id_seq"):
        del row[half]
    fields = row.get("fields")
    if fields is not None:
        row["fields"] = [[spell(bytes(f["name"])), spell(bytes(f["value"]))] for f in fields]
    return row


def not_named(number: int, *, of_old_history: bool) -> list[str]:
    """Return the line on refused groups or requests that are not named, or no line if none are.

    Args:
        number: the number of these groups or requests.
        of_old_history: True if `maintain --keep-history` has deleted their names.
    """
    if not number:
        return []
    detail = " (maintain has deleted their names)" if of_old_history else " more"
    return [f"refused: {number:,}{detail}"]
