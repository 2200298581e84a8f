"""Retire consumers: remove them, and give all their pending entries to recipients.

The server's command XGROUP DELCONSUMER drops the pending entries of a consumer.  A retirement drops
none.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NoReturn

from claimlib.commands.bulk import BulkRequests, Decided, decide, known
from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.preconditions import ENTRY_IDS, check_ms, refuse_unknown_group
from claimlib.commands.reply import Call, answer
from claimlib.commands.xclaim import NamedClaim, claim_table
from claimlib.engine.relation import Relation
from claimlib.errors import InputError, RequestError
from claimlib.plans import bulk_plan as bulk
from claimlib.plans import previous
from claimlib.plans.keys import GROUP, GROUP_SQL, glob_sql, is_group, is_stream
from claimlib.plans.requests import instant
from claimlib.runs import Begun, Decision, Progress
from claimlib.schema import Kind, quote_text
from claimlib.semantics.model import MAX_I64, ClaimRequest
from claimlib.semantics.names import glob_pattern, literal_name, spell
from claimlib.store.tables import Store

COMMAND = "retire"


@dataclass(frozen=True, slots=True)
class Retirement:
    """State which consumers are retired, and which recipients get their pending entries.

    Attributes:
        consumer: the name of one consumer (bytes), or a glob for the names of several (str).
            Recipients are never retired, even if the glob matches their names.
        recipients: the consumers that get the entries that the stream still has, in turn.  The n-th
            by id (from 0) goes to recipient n modulo the number of recipients.
        idle_ms: retire only consumers whose seen time is at least this long ago.  A consumer whose
            seen time is unknown stays.  None means that consumers are retired at any seen time.

    Raises:
        RequestError: there is no recipient, a recipient is named twice, the consumer is a
            recipient, or idle_ms is out of range.
        GlobError: see `names.glob_pattern`.

    Examples:
        >>> Retirement(b"orders", b"workers", b"bob", recipients=(b"alice", b"carol")).consumer
        b'bob'
        >>> Retirement(b"orders", b"workers", b"bob", recipients=())
        Traceback (most recent call last):
        claimlib.errors.RequestError: --to must name at least one other consumer, and each only once
    """

    stream: bytes
    group: bytes
    consumer: bytes | str
    recipients: tuple[bytes, ...]
    idle_ms: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if isinstance(self.consumer, str):
            glob_pattern(self.consumer)
        if self.idle_ms is not None and not 0 <= self.idle_ms <= MAX_I64:
            raise RequestError(
                f"idle_ms must be between 0 and 2^63-1, not {self.idle_ms}", field="idle_ms"
            )
        if (
            not self.recipients
            or len(set(self.recipients)) < len(self.recipients)
            or self.consumer in self.recipients
        ):
            raise RequestError(
                "--to must name at least one other consumer, and each only once",
                option="to",
            )

    def as_json(self) -> dict[str, object]:
        """Return the JSON values that are stored with the run."""
        return {
            "stream": spell(self.stream),
            "consumer_group": spell(self.group),
            **(
                {"consumer_glob": self.consumer}
                if isinstance(self.consumer, str)
                else {"consumer": spell(self.consumer)}
            ),
            "recipients": list(map(spell, self.recipients)),
            # Omitted if None, so that the request of a repeat equals that of an earlier version.
            **({} if self.idle_ms is None else {"idle_ms": self.idle_ms}),
        }

    def matches(self) -> str:
        """Return the SQL condition for the names of consumers that are to be retired."""
        if not isinstance(self.consumer, str):
            return f"consumer = {quote_text(spell(self.consumer))}"
        recipients = ", ".join(quote_text(spell(name)) for name in self.recipients)
        return f"{glob_sql('consumer', self.consumer)} AND consumer NOT IN ({recipients})"


def retire(
    store: Store,
    retirement: Retirement,
    *,
    run_id: str | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> BulkReply:
    """Give all pending entries of consumers to other consumers, and remove the consumers.

    The entries change owner as in XCLAIM with min-idle 0 and JUSTID.  So their idle times do not
    matter, their delivery counts stay the same, and their delivery times become `now_ms`.  Entries
    that the streams no longer have become tombstones.

    A consumer that receives entries meanwhile stays, and must be retired again.  It is not counted
    in `counts["retired"]`.  `counts["not_idle"]` is the number of consumers that stay because of
    `idle_ms`.

    Args:
        run_id: identifies the run, together with the command.  A repeat with the same run id
            changes nothing.
        now_ms: the time of the claims, ms since the epoch.  None means the group's snapshot time.
        dry_run: True to decide, but write nothing.
        progress: called as each phase begins, and again with each new detail.

    Returns: the reply, with one request per recipient.  Deleted entries belong to the request of
    the first recipient.

    Raises:
        RequestError: the group, the consumer or a recipient is not known.
        InputError: the group is refused.  It has no snapshot time, negative times or counts, two
            rows of one id, or an id outside the range that is proven complete.
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.
    """
    check_ms(now_ms=now_ms)

    def decide_retirement(begun: Begun, *, refuse_duplicates: bool) -> Decision:
        groups = known(begun)
        matching = matching_consumers(begun, retirement).fetched()
        leaving = _idle(matching, groups, retirement, now_ms).fetched()
        named_claims = [
            NamedClaim(
                retirement.stream, retirement.group, ClaimRequest(recipient, 0, (), justid=True)
            )
            for recipient in retirement.recipients
        ]
        claims = bulk.claims(claim_table(store.engine, named_claims), groups, now_ms).fetched()
        pending, entries = _owned_entries(begun, retirement, leaving)
        ids = bulk.handover_ids(pending, entries, claims, len(named_claims)).reused().kept()
        result = decide(
            begun,
            BulkRequests(claims, ids, bulk.KINDS),
            groups,
            refuse_duplicates=refuse_duplicates,
        )
        _check_accepted(result)
        retired = leaving.select(f"'{Kind.RETIRED}' AS kind", *GROUP, "consumer")
        before = previous.consumer_rows(leaving, begun.relation("consumers"))
        decision = result.decision(retired, before)
        counts = {"retired": leaving.count()}
        if retirement.idle_ms is not None:
            counts["not_idle"] = matching.count() - leaving.count()
        return replace(decision, counts={**decision.counts, **counts})

    call = Call(run_id, now_ms, dry_run, progress)
    return answer(BulkReply, store, COMMAND, retirement.as_json, decide_retirement, call)


def _owned_entries(
    begun: Begun, retirement: Retirement, leaving: Relation
) -> tuple[Relation, Relation]:
    """Return the pending entries of the leaving consumers, and all entries of their stream."""
    stream, group = spell(retirement.stream), spell(retirement.group)
    is_in_stream = is_stream(stream, begun.store.buckets)
    is_owned = f"{is_in_stream} AND {is_group(stream, group)} AND {retirement.matches()}"
    pending = (
        begun.relation("pending")
        .where(is_owned)
        .sql(
            "SELECT /*+ BROADCAST(leaving) */ this.* FROM {this} AS this"
            " LEFT SEMI JOIN {leaving} AS leaving ON this.consumer = leaving.consumer",
            leaving=leaving,
        )
    )
    return pending, begun.relation("entries").select(*ENTRY_IDS).where(is_in_stream)


def _idle(
    matching: Relation, groups: Relation, retirement: Retirement, now_ms: int | None
) -> Relation:
    """Return the keys of the `matching_consumers` that have been idle for long enough."""
    idle = matching.sql(
        f"SELECT {GROUP_SQL}, consumer, try_subtract({instant(now_ms)}, seen_time_ms) AS idle_ms"
        f" FROM {{this}} AS this JOIN {{groups}} AS groups USING ({GROUP_SQL})",
        groups=groups,
    )
    is_idle = "true" if retirement.idle_ms is None else f"idle_ms >= {retirement.idle_ms:d}"
    return idle.where(is_idle).select(*GROUP, "consumer")


def matching_consumers(begun: Begun, retirement: Retirement) -> Relation:
    """Return one row per consumer that the retirement matches.

    Columns: stream, consumer_group, consumer and seen_time_ms, which is None if only `pending` has
    the consumer.

    Raises:
        RequestError: the store does not know the group, the consumer or a recipient, or no consumer
            matches the glob.
    """
    refuse_unknown_group(begun.relation("groups"), retirement.stream, retirement.group)
    stream, group = spell(retirement.stream), spell(retirement.group)
    recipients = list(map(spell, retirement.recipients))
    is_recipient = f"consumer IN ({', '.join(map(quote_text, recipients))})"
    is_named = f"{is_group(stream, group)} AND ({is_recipient} OR {retirement.matches()})"
    is_in_stream = is_stream(stream, begun.store.buckets)
    consumers = (
        begun.relation("consumers")
        .where(is_named)
        .sql(
            f"""
        SELECT {GROUP_SQL}, consumer, max(seen_time_ms) AS seen_time_ms
        FROM (
            SELECT {GROUP_SQL}, consumer, seen_time_ms FROM {{this}} AS this
            UNION ALL SELECT {GROUP_SQL}, consumer, NULL FROM {{owning}} AS owning
        ) AS known GROUP BY {GROUP_SQL}, consumer
        """,
            owning=begun.relation("pending").where(f"{is_named} AND {is_in_stream}"),
        )
        .fetched()
    )
    existing = {row["consumer"] for row in consumers.collect()}
    missing = [name for name in recipients if name not in existing]
    matching = consumers.where(retirement.matches())
    if matching.is_empty():
        name = retirement.consumer
        missing.insert(0, f"matching {name}" if isinstance(name, str) else spell(name))
    if missing:
        _refuse_missing(begun.store.where, (stream, group), missing)
    return matching


def _as_globs(key: tuple[str, str]) -> tuple[str, ...]:
    """Return the stream and the group as globs for `claimlib describe`.

    If one of the names has a special meaning in a glob, return no globs, which means all groups.
    """
    is_plain = all(name and literal_name(name) is not None for name in key)
    return key if is_plain else ()


def _refuse_missing(where: str, key: tuple[str, str], missing: Collection[str]) -> NoReturn:
    what = "consumer" if len(missing) == 1 else "consumers"
    raise RequestError(
        f"{' / '.join(key)} has no {what} {' and '.join(missing)}; nothing was done."
        f" claimlib describe {shlex.join((where, *_as_globs(key)))} lists its consumers",
        consumers=list(missing),
    )


def _check_accepted(decided: Decided) -> None:
    """Raise InputError if the group is refused."""
    refused = decided.judged.where("reason IS NOT NULL").first()
    if refused is not None:
        raise InputError(
            f"{refused['stream']}/{refused['consumer_group']}: {refused['reason']}; nothing was"
            " done",
            group=f"{refused['stream']}/{refused['consumer_group']}",
        )
