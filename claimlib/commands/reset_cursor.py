"""Set where the next page of a cursor begins.

This is a run, so it is recorded in the journal, and a repeat changes nothing.
"""

from __future__ import annotations

from functools import partial

from claimlib.commands.preconditions import groups_like
from claimlib.engine.relation import Relation, union_by_name
from claimlib.errors import RequestError
from claimlib.plans import previous
from claimlib.plans.differences import Scope
from claimlib.plans.journal_rows import JOURNAL_ROW
from claimlib.plans.keys import GROUP, bigint_sql
from claimlib.runs import Begun, Decision, FinishedRun, Progress, run
from claimlib.schema import Kind, quote_text
from claimlib.semantics.ids import MIN_ID, StreamId, to_bigint
from claimlib.semantics.model import parse_cursor
from claimlib.store.tables import Store
from claimlib.terminal import listed, one_line

COMMAND = "reset-cursor"
_MOST_NAMES = 10


def reset_cursor(
    store: Store,
    name: str,
    scope: Scope,
    *,
    to: StreamId = MIN_ID,
    run_id: str | None = None,
    progress: Progress | None = None,
) -> FinishedRun:
    """Set the id at which the next page of a cursor begins, in each group that two globs match.

    Args:
        name: the name of the cursor, as given with `--cursor`.
        to: the id at which the next page begins.  0-0 means the first entry.

    Raises:
        RequestError: the name is not valid, or no group that the globs match has this cursor.
            Then nothing is written.
        RunKeyConflictError, LostRaceError: see `runs.run`.
    """
    request = {
        "cursor": parse_cursor(name),
        "stream_glob": scope.stream_glob,
        "group_glob": scope.group_glob,
        "to": str(to),
    }
    return run(
        store,
        command=COMMAND,
        request=request,
        decide=partial(_decide, name=name, scope=scope, to=to),
        run_id=run_id,
        progress=progress,
    )


def _not_found_message(where: str, cursors: Relation, name: str, scope: Scope) -> str:
    of_name = cursors.where(f"name = {quote_text(name)}")
    if of_name.is_empty():
        names = cursors.distinct("name")
        shown = [
            one_line(row["name"]) for row in names.order_by("name").limit(_MOST_NAMES).collect()
        ]
        known = "the store has no cursors"
        if shown:
            known = f"known cursors: {listed(shown, names.count())}"
        return f"{where} has no cursor {name}; {known}"
    globs = f"{scope.stream_glob} / {scope.group_glob}"
    return (
        f"no consumer group that matches {globs} (stream / group) has the cursor {name};"
        f" {groups_like(of_name, [globs])}"
    )


def groups_with_cursor(begun: Begun, name: str, scope: Scope) -> Relation:
    """Return the groups of a scope that have a cursor, one row per (stream, consumer_group).

    Raises:
        RequestError: no group has the cursor.
    """
    cursors = begun.relation("cursors")
    # One row per group, even if the table has two rows of the cursor.  The run changes both.
    of_name = cursors.where(f"name = {quote_text(name)} AND {scope.has_group()}")
    groups = of_name.distinct(*GROUP).fetched()
    if groups.is_empty():
        raise RequestError(_not_found_message(begun.store.where, cursors, name, scope), cursor=name)
    return groups


def _decide(begun: Begun, name: str, scope: Scope, to: StreamId) -> Decision:
    groups = groups_with_cursor(begun, name, scope)
    rows = groups.select(
        f"'{Kind.CURSOR}' AS kind",
        *GROUP,
        f"{quote_text(name)} AS cursor_name",
        f"{bigint_sql(to_bigint(to.ms))} AS next_ms",
        f"{bigint_sql(to_bigint(to.seq))} AS next_seq",
    )
    named = groups.select(*GROUP, f"{quote_text(name)} AS name")
    before = previous.cursor_rows(named, begun.relation("cursors"))
    all_rows = union_by_name([rows, before], JOURNAL_ROW)
    # The report replaces this 0 by the number of journal rows of the kind.
    return Decision(all_rows, counts={str(Kind.CURSOR): 0})
