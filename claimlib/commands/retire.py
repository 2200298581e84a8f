"""Retirement of a consumer: all its pending entries go to its recipients, and it is removed.

The server's own way, XGROUP DELCONSUMER, drops what the consumer has pending; nothing is ever
dropped here.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from claimlib.commands.bulk import BulkRequests, Decided, decide, known
from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.preconditions import ENTRY_IDS, check_ms, refuse_unknown_group
from claimlib.commands.reply import Call, answer
from claimlib.commands.xclaim import NamedClaim, claim_table
from claimlib.engine.relation import Relation
from claimlib.errors import InputError, RequestError
from claimlib.plans import bulk, previous
from claimlib.plans.keys import GROUP, is_group, is_stream
from claimlib.runs import Begun, Decision, Progress
from claimlib.schema import Kind, quote_text
from claimlib.semantics.model import ClaimRequest
from claimlib.semantics.names import literal_name, spell
from claimlib.store.tables import Store

COMMAND = "retire"


@dataclass(frozen=True, slots=True)
class Retirement:
    """Who is retired, and who gets what it has pending.

    Attributes:
        recipients: of the entries that the stream still has, the n-th by id (from 0) goes to
            recipient n modulo their number.

    Raises:
        RequestError: there is no recipient, one is named twice, or the consumer is one of them.

    Examples:
        >>> Retirement(b"orders", b"workers", b"bob", recipients=(b"alice", b"carol")).consumer
        b'bob'
        >>> Retirement(b"orders", b"workers", b"bob", recipients=())
        Traceback (most recent call last):
        claimlib.errors.RequestError: --to must name at least one other consumer, and each only once
    """

    stream: bytes
    group: bytes
    consumer: bytes
    recipients: tuple[bytes, ...]

    def __post_init__(self) -> None:
        """Check the recipients."""
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
        """What is kept with the run."""
        return {
            "stream": spell(self.stream),
            "consumer_group": spell(self.group),
            "consumer": spell(self.consumer),
            "recipients": list(map(spell, self.recipients)),
        }


def retire(
    store: Store,
    retirement: Retirement,
    *,
    run_id: str | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> BulkReply:
    """Give all pending entries of a consumer to other consumers, regardless of their idle time, as
    XCLAIM with min-idle 0 and JUSTID does: delivery counts stay the same, and the delivery time
    becomes now.  Entries that the streams no longer have become tombstones.  The consumer is
    removed in the same run, unless it receives entries meanwhile (`counts["retired"]` is 0 then:
    retire it again).

    Args:
        run_id: the key of the run together with the command; the same key again changes nothing.
        now_ms: the time of the claims, ms since the epoch; null: the group's snapshot time.
        dry_run: decide and show, and write nothing.
        progress: told each phase as it begins, and again with each new detail.

    Returns: one request per recipient; dangling ids are under the first recipient's.

    Raises:
        RequestError: the group, the consumer or a recipient is not known.
        InputError: the group cannot be judged: it has no snapshot time, negative times or counts,
            two rows of one id, or an id outside the range that is proven complete.
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.
    """
    check_ms(now_ms=now_ms)

    def decided(begun: Begun, *, refuse_duplicates: bool) -> Decision:
        groups = known(begun)
        refuse_unknown(begun, retirement)
        wanted = [
            NamedClaim(
                retirement.stream, retirement.group, ClaimRequest(recipient, 0, (), justid=True)
            )
            for recipient in retirement.recipients
        ]
        claims = bulk.claims(claim_table(store.engine, wanted), groups, now_ms).fetched()
        ids = bulk.handed_over(*_owned(begun, retirement), claims, len(wanted)).reused().kept()
        result = decide(
            begun,
            BulkRequests(claims, ids, bulk.KINDS),
            groups,
            refuse_duplicates=refuse_duplicates,
        )
        _refuse_refused(result)
        retired = _retired_row(store, retirement)
        named = retired.select(*GROUP, "consumer")
        before = previous.consumer_rows(named, begun.relation("consumers"))
        return result.decision(retired, before)

    call = Call(run_id, now_ms, dry_run, progress)
    return answer(BulkReply, store, COMMAND, retirement.as_json, decided, call)


def _owned(begun: Begun, retirement: Retirement) -> tuple[Relation, Relation]:
    """What the consumer has pending, and the entries of its stream."""
    stream, group = spell(retirement.stream), spell(retirement.group)
    near = is_stream(stream, begun.store.buckets)
    owned = f"{is_group(stream, group)} AND consumer = {quote_text(spell(retirement.consumer))}"
    pending = begun.relation("pending").where(f"{near} AND {owned}")
    return pending, begun.relation("entries").select(*ENTRY_IDS).where(near)


def _retired_row(store: Store, retirement: Retirement) -> Relation:
    names = map(spell, (retirement.stream, retirement.group, retirement.consumer))
    return store.rows("journal", [(str(Kind.RETIRED), *names)], ["kind", *GROUP, "consumer"])


def refuse_unknown(begun: Begun, retirement: Retirement) -> None:
    """Raise RequestError if the store does not know the group, the consumer or a recipient."""
    refuse_unknown_group(begun.relation("groups"), retirement.stream, retirement.group)
    stream, group = spell(retirement.stream), spell(retirement.group)
    of_group = is_group(stream, group)
    names = [spell(name) for name in (retirement.consumer, *retirement.recipients)]
    wanted = f"{of_group} AND consumer IN ({', '.join(map(quote_text, names))})"
    known, owning = begun.relation("consumers"), begun.relation("pending")
    rows = known.where(wanted).sql(
        "SELECT consumer FROM {this} AS this UNION SELECT consumer FROM {owning} AS owning",
        owning=owning.where(f"{wanted} AND {is_stream(stream, begun.store.buckets)}"),
    )
    existing = {row["consumer"] for row in rows.collect()}
    missing = [name for name in names if name not in existing]
    if missing:
        _refuse_missing(begun.store.where, (stream, group), missing)


def _as_globs(key: tuple[str, str]) -> tuple[str, ...]:
    """The names, where they are globs of themselves; else none, which stands for all."""
    is_plain = all(name and literal_name(name) is not None for name in key)
    return key if is_plain else ()


def _refuse_missing(where: str, key: tuple[str, str], missing: Collection[str]) -> NoReturn:
    what = "consumer" if len(missing) == 1 else "consumers"
    raise RequestError(
        f"{' / '.join(key)} has no {what} {' and '.join(missing)}; nothing was done."
        f" claimlib describe {shlex.join((where, *_as_globs(key)))} lists its consumers",
        consumers=list(missing),
    )


def _refuse_refused(decided: Decided) -> None:
    refused = decided.judged.where("reason IS NOT NULL").first()
    if refused is not None:
        raise InputError(
            f"{refused['stream']}/{refused['consumer_group']}: {refused['reason']}; nothing was"
            " done",
            group=f"{refused['stream']}/{refused['consumer_group']}",
        )
