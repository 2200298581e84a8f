"""Acknowledge ids in a store: remove them from the pending entries lists, in one run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from claimlib.commands.bulk import BulkRequests, Decided, decide, known, table_of
from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.reply import Call, answer
from claimlib.commands.sources import server_of
from claimlib.engine.relation import Executor, Record, Relation
from claimlib.errors import (
    ClaimlibError,
    DuplicateRowsError,
    ForeignRunSeqError,
    RequestError,
    SourceMismatchError,
)
from claimlib.plans import bulk_plan as bulk
from claimlib.plans.bulk_plan import ACKS
from claimlib.plans.keys import GROUP
from claimlib.runs import Begun, Decision, Progress
from claimlib.semantics.ids import StreamId
from claimlib.semantics.names import spell
from claimlib.store.tables import Store
from claimlib.terminal import number_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMAND = "xack"


@dataclass(frozen=True, slots=True)
class NamedAck:
    """State one XACK: the stream, the group and the ids.

    Examples:
        >>> NamedAck(b"orders", b"workers", (parse_id("5-3"),)).ids
        (StreamId(ms=5, seq=3),)
    """

    stream: bytes
    group: bytes
    ids: tuple[StreamId, ...]


def xack(
    store: Store,
    requests: Sequence[NamedAck] | Relation | DataFrame,
    *,
    run_id: str | None = None,
    dry_run: bool = False,
    to_write_back: bool = False,
    progress: Progress | None = None,
) -> BulkReply:
    """Remove ids from the pending entries lists.

    This does what Redis' documentation of XACK states and Valkey 9.1 does.  An id is removed for
    any owner, and even if the stream no longer has the entry.  Unlike on a server, an unknown group
    is an error, because it may be a typing error.

    Args:
        requests: the requests in their order, or a table (a DataFrame or a relation).  A table has
            one row per request and the columns of `plans.bulk_plan.ACK_COLUMNS`.  It must return
            the same rows each time it is read.
        run_id: identifies the run, together with the command.  A repeat with the same run id
            changes nothing.
        dry_run: True to decide, but write nothing.
        to_write_back: True to accept a store that mirrors a server, because `writeback` follows.
        progress: called as each phase begins, and again with each new detail.

    Raises:
        SourceMismatchError: the store mirrors a server, and to_write_back is False.  The next
            snapshot would make the ids pending again.
        RequestError: a request cannot be used, or its group is unknown (the error's field `groups`
            lists all refused groups).  Then no request is done.
        DuplicateRowsError: pending has two rows for a named id.
        ForeignRunSeqError: the row of a named id has a run number that this store has not reached,
            so it may be copied from another store.
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.
    """
    checked = ACKS.checked(table_of(store, requests, ack_table))

    def decide_acks(begun: Begun, *, refuse_duplicates: bool) -> Decision:
        if not to_write_back:
            _refuse_mirror(begun)
        groups = known(begun)
        acks = bulk.acks(checked, groups, now_ms=None)
        bulk_requests = BulkRequests.of(acks, bulk.ACK_KINDS, looks=False)
        result = decide(begun, bulk_requests, groups, refuse_duplicates=refuse_duplicates)
        _check_accepted(begun.store, result)
        return result.decision()

    call = Call(run_id, now_ms=None, dry_run=dry_run, progress=progress)
    return answer(BulkReply, store, COMMAND, partial(ACKS.fingerprint, checked), decide_acks, call)


def ack_table(engine: Executor, acks: Sequence[NamedAck]) -> Relation:
    """Return the request table of some XACKs, numbered from 1.

    Raises:
        RequestError: there is no XACK.
    """
    if not acks:
        raise RequestError("there is no request: nothing would be acknowledged")
    rows = [
        (number, spell(ack.stream), spell(ack.group), list(map(str, ack.ids)))
        for number, ack in enumerate(acks, start=1)
    ]
    return ACKS.of_rows(engine, rows)


def _refuse_mirror(begun: Begun) -> None:
    server = server_of(begun)
    if server is not None:
        raise SourceMismatchError(
            f"the store {begun.store.where} mirrors the server {server}: the next snapshot would"
            " make the ids pending again. Add --writeback with the URL of the server, which"
            " acknowledges them there, too",
            kept=server,
        )


def _check_accepted(store: Store, decided: Decided) -> None:
    """Raise an error if a group is refused."""
    rows = decided.judged.where("reason IS NOT NULL").order_by(*GROUP).collect()
    if not rows:
        return
    first = f"{rows[0]['stream']}/{rows[0]['consumer_group']}: {rows[0]['reason']}"
    others = number_of(len(rows) - 1, "more group")
    more = f" (and {others})" if len(rows) > 1 else ""
    is_unknown = rows[0]["in_groups"] is None
    hint = f"claimlib xpending {shlex.quote(store.where)} lists the groups; " if is_unknown else ""
    raise _error_class(rows[0])(
        f"{first}{more}; {hint}nothing was acknowledged",
        groups=[(row["stream"], row["consumer_group"]) for row in rows],
        table="pending",
    )


def _error_class(refused: Record) -> type[ClaimlibError]:
    if refused["in_groups"] is None:
        return RequestError
    return ForeignRunSeqError if refused["ahead"] else DuplicateRowsError
