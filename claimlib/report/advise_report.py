"""Report the advice on minimum idle times as tables for people and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterable

from claimlib.commands.advise import COUNTS, Advice, GroupAdvice
from claimlib.engine.relation import Record
from claimlib.plans.keys import GROUP
from claimlib.report.headings import headings
from claimlib.report.report_model import Cell, Report
from claimlib.report.run_report import SCHEMA_VERSION, Section, table
from claimlib.report.text import duration, entries_text, instant, not_shown, visible
from claimlib.terminal import number_of
from claimlib.times import format_duration_ms

_CHOICE = ("min_idle_ms", "claimed", "done_twice_share", *COUNTS[1:], "wait_ms")
COLUMNS = headings(*GROUP, "recommended_min_idle_ms", *_CHOICE[1:])
NAMES = (*GROUP, "min_idle_ms", *COUNTS, "wait_ms", "recommended")


def report_of_advice(advice: Advice) -> Report:
    """Return a table with the recommended value of each group, and the document of the advice."""
    choices = [
        {"stream": group.stream, "consumer_group": group.consumer_group, **choice}
        for group in advice.groups
        for choice in _choices(group)
    ]
    return Report(
        title=verdict(advice),
        columns=COLUMNS,
        rows=tuple(
            (
                visible(group.stream),
                visible(group.consumer_group),
                *_choice_row(group.recommended, has_outcomes=True, if_none="none"),
            )
            for group in advice.groups
        ),
        cut_off=tuple(not_shown(advice.not_shown, "group", shown=len(advice.groups))),
        notes=tuple(_remarks(advice)),
        document={
            "schema_version": SCHEMA_VERSION,
            "command": "advise",
            "store": advice.where,
            "verdict": verdict(advice),
            "snapshots": advice.snapshots,
            "first_ms": advice.first_ms,
            "last_ms": advice.last_ms,
            "max_done_twice": advice.max_done_twice,
            "all_groups": _choices(advice.all_groups),
            "groups": choices,
            "not_shown": advice.not_shown,
        },
        records=choices,
        names=NAMES,
    )


def verdict(advice: Advice) -> str:
    """Return the sentence with which the report begins."""
    smallest, chosen = advice.all_groups.choices[0], advice.all_groups.recommended
    seen = number_of(advice.snapshots, "snapshot")
    if not smallest["claimed"]:
        return f"No entry was idle for longer than {_exact(smallest)} at {seen}"
    if advice.snapshots < 2:
        return (
            "No min-idle is recommended, because one snapshot does not show what became of the"
            f" {entries_text(smallest['claimed'])} that {_exact(smallest)} would have claimed."
            " Take another snapshot, and ask again"
        )
    if chosen is None:
        return (
            f"No min-idle is recommended for all groups together ({seen}): with each value that"
            f" claims an entry, the work of more than {100 * advice.max_done_twice:g}% of the"
            " claimed entries would have been done twice"
        )
    share = _share(chosen)
    waited = chosen["wait_ms"]
    wait = "" if waited is None else f". The others had waited for {duration(waited)} (median)"
    return (
        f"min-idle {_exact(chosen)} is recommended for all groups together"
        f" ({seen}): it would have claimed {entries_text(chosen['claimed'])}, and the work of"
        f" {chosen['acknowledged']:,} ({share}) would have been done twice{wait}"
        f"{_still_pending(chosen)}"
    )


def _still_pending(choice: Record) -> str:
    """Return a sentence with the number of entries that were still pending at the last snapshot."""
    number = choice["still_pending"]
    if not number:
        return ""
    was = "was" if number == 1 else "were"
    return f". {number:,} of these entries {was} still pending at the last snapshot"


def sections(advice: Advice) -> tuple[Section, ...]:
    """Return the parts of a report, without those that have no rows."""
    main = report_of_advice(advice)
    all_choices, has_outcomes = advice.all_groups.choices, advice.snapshots > 1
    parts = (
        Section(table("Groups", main.columns, main.rows, notes=main.cut_off)),
        Section(
            table(
                "All groups together",
                headings(*_CHOICE),
                (_choice_row(choice, has_outcomes=has_outcomes) for choice in all_choices),
            )
        ),
    )
    return tuple(part for part in parts if part.table.rows)


def _exact(choice: Record) -> str:
    """Return the minimum idle time of a choice in the form in which a user can type it."""
    return format_duration_ms(choice["min_idle_ms"])


def _share(choice: Record) -> str | None:
    """Return the share of claimed entries that their earlier owners acknowledged afterwards."""
    return f"{choice['acknowledged'] / choice['claimed']:.0%}" if choice["claimed"] else None


def _choice_row(
    choice: Record | None, *, has_outcomes: bool, if_none: str | None = None
) -> tuple[Cell, ...]:
    if choice is None:
        return (if_none, *(None for _ in _CHOICE[1:]))
    if not has_outcomes:  # one snapshot does not show what became of an entry
        return (_exact(choice), choice["claimed"], *(None for _ in _CHOICE[2:]))
    return (
        _exact(choice),
        choice["claimed"],
        _share(choice),
        *(choice[name] for name in COUNTS[1:]),
        duration(choice["wait_ms"]),
    )


def _choices(advice: GroupAdvice) -> list[Record]:
    """Return one record per minimum idle time.  In the best one, `recommended` is True."""
    return [{**choice, "recommended": choice == advice.recommended} for choice in advice.choices]


def _remarks(advice: Advice) -> Iterable[str]:
    yield (
        f"based on {number_of(advice.snapshots, 'snapshot')} from {instant(advice.first_ms)} to"
        f" {instant(advice.last_ms)}; what happened between two snapshots is not seen"
    )
    yield (
        "done twice share: the share of the claimed entries that the earlier owner still"
        " acknowledged after the claim. wait: the median idle time of the claimed entries that"
        " were neither acknowledged nor deleted"
    )
