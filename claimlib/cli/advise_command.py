"""Define the command that recommends a minimum idle time: advise."""

from __future__ import annotations

from typing import Annotated

from claimlib.cli.app import command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import opened_store
from claimlib.cli.options import Output, ScopeOptions, StoreArgument
from claimlib.config.sections import Option
from claimlib.times import parse_duration_ms


@command("advise ./store --since 7d")
def advise(
    store: StoreArgument,
    *,
    scope: ScopeOptions,
    min_idle: Annotated[
        list[str] | None,
        Option(
            "A value to compare; may be repeated.",
            "DURATION",
            unset="1m 5m 10m 15m 30m 45m 1h 1h30m 2h 3h 4h",
        ),
    ] = None,
    since: Annotated[
        str | None,
        Option("Use only snapshots of this time before now.", "DURATION", unset="all"),
    ] = None,
    max_done_twice: Annotated[
        float | None,
        Option(
            "Recommend no value with which the owners of more than this share of the claimed"
            " entries acknowledged them afterwards, so that the work would have been done twice.",
            "SHARE",
            unset="0.1",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Option(
            "Show at most this number of groups; the report counts the others.",
            "ROWS",
            unset="20",
            least=1,
        ),
    ] = None,
    common: Common,
) -> None:
    """Recommend a --min-idle per group, from the series of snapshots in the store.

    For each value, the report shows how many entries a sweep after each snapshot would have
    claimed, and what became of them: acknowledged by their owner (the work would have been done
    twice), deleted from the stream, taken over by another consumer, or still pending. Per group,
    the smallest value is recommended whose share of acknowledged entries is small enough.

    Take snapshots regularly before you ask. Changes nothing.
    """
    from claimlib.cli.output import show_sections
    from claimlib.commands.advise import (
        DEFAULT_GROUPS,
        DEFAULT_MAX_DONE_TWICE,
        DEFAULT_MIN_IDLES_MS,
    )
    from claimlib.commands.advise import advise as run_advise
    from claimlib.report.advise_report import COLUMNS, NAMES, report_of_advice, sections
    from claimlib.runs.rollforward import wall_ms

    view = common.view()
    # A table row is a group.  A record is one minimum idle time of a group.
    view.check(COLUMNS, () if view.output is Output.TABLE else NAMES)
    values = [parse_duration_ms(text) for text in min_idle or ()]
    since_ms = 0 if since is None else max(wall_ms() - parse_duration_ms(since), 0)
    chosen = scope.scope()
    share = DEFAULT_MAX_DONE_TWICE if max_done_twice is None else max_done_twice
    with opened_store(store, common.settings(), common) as (opened, _):
        advice = run_advise(
            opened,
            values or DEFAULT_MIN_IDLES_MS,
            scope=chosen,
            since_ms=since_ms,
            max_done_twice=share,
            most_groups=limit or DEFAULT_GROUPS,
        )
    show_sections(report_of_advice(advice), sections(advice), view)
