"""What the rules meet in a sequence: told by states, words and what the server did."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from claimlib.errors import IdError
from claimlib.semantics import words
from claimlib.semantics.ids import END_OF_SCAN, StreamId, parse_id
from claimlib.semantics.model import (
    DELIVERY_COUNT_MAX,
    AutoclaimRequest,
    ClaimRequest,
    Consumer,
    Group,
    IdleRule,
    PendingEntry,
    PendingRange,
    Profile,
)
from claimlib.testing.vectors import KEY
from tests.batches import Case
from tests.live.commands import GROUP
from tests.live.played import Played, Sent
from tests.live.times import Words

# Every one must be reached.  The first of XAUTOCLAIM are those of `tests.batches` that a server
# knows.
BRANCHES: Mapping[str, tuple[str, ...]] = {
    "XAUTOCLAIM": (
        "dangling and idle",
        "dangling and fresh",
        "dangling, owned by the caller",
        "claimed over min-idle",
        "claimed, one ms over",
        "claimed at equality (server)",
        "claimed at min-idle 0",
        "claimed at min-idle 0, future delivery",
        "claimed from oneself",
        "claimed at the highest count",
        "claimed with JUSTID",
        "claimed without JUSTID",
        "claimed beyond signed numbers",
        "left, one ms short",
        "left fresh",
        "before the start",
        "at the start exactly",
        "left, future delivery",
        "claimed again at one instant",
        "dangling since a delete",
        "dangling since a trim",
        "dangling beyond signed numbers",
        "page to the end",
        "page to the end by COUNT",
        "page to the end by its budget",
        "page ended by COUNT",
        "page ended by its budget",
        "page from the last cursor",
        "page of nothing",
        "of an empty PEL",
        "sweep of one call",
        "sweep of several calls",
        "caller new, nothing claimed",
        "caller new, active",
        "caller known, nothing claimed",
        "caller known, active for the first time",
        "caller known, active again",
        "refused: too few words",
        "refused: min-idle",
        "refused: start",
        "refused: start behind the last id",
        "refused: COUNT",
        "refused: unknown option",
        "refused: COUNT without a number",
        "refused: unknown key",
        "refused: unknown group",
    ),
    "XCLAIM": (
        "claimed over min-idle",
        "claimed, one ms over",
        "claimed at equality",
        "claimed at min-idle 0",
        "claimed at min-idle 0, future delivery",
        "claimed from oneself",
        "claimed at the highest count",
        "claimed with JUSTID",
        "claimed without JUSTID",
        "claimed beyond signed numbers",
        "claimed by a partial id",
        "left fresh",
        "left, one ms short",
        "left, future delivery",
        "dangling and idle",
        "dangling and fresh",
        "dangling, owned by the caller",
        "dangling, forced",
        "dangling since a delete",
        "dangling since a trim",
        "dangling beyond signed numbers",
        "gone, not pending",
        "not pending, without FORCE",
        "FORCE: pending and idle",
        "FORCE: pending and fresh",
        "FORCE: alive, not pending",
        "FORCE: alive, not pending, with JUSTID",
        "FORCE: alive, not pending, at a min-idle above 0",
        "FORCE: gone, not pending",
        "FORCE: beyond signed numbers",
        "repeated, second refused",
        "repeated, second claimed at min-idle 0",
        "repeated, second claimed as dated back",
        "repeated, dangling",
        "repeated, forced",
        "claimed out of order",
        "IDLE, dated back",
        "IDLE 0",
        "IDLE below 0 is now",
        "IDLE before 1970 is now",
        "IDLE back to 1970",
        "TIME, dated back",
        "TIME 0",
        "TIME 1",
        "TIME -1 is now",
        "TIME below -1 is now",
        "TIME to come is now",
        "TIME is now",
        "IDLE and TIME, TIME last",
        "IDLE and TIME, IDLE last",
        "RETRYCOUNT 0",
        "RETRYCOUNT below 0",
        "RETRYCOUNT above 0",
        "RETRYCOUNT with JUSTID",
        "RETRYCOUNT of the highest count",
        "LASTID raised",
        "LASTID raised beyond signed numbers",
        "LASTID raised, nothing claimed",
        "LASTID not raised",
        "LASTID twice, the lower one last",
        "LASTID twice, the higher one last",
        "no ids",
        "no ids, LASTID",
        "of an empty PEL",
        "option words in odd case",
        "options in odd order",
        "caller new, nothing claimed",
        "caller new, active",
        "caller known, nothing claimed",
        "caller known, active for the first time",
        "caller known, active again",
        "refused: too few words",
        "refused: min-idle",
        "refused: IDLE",
        "refused: TIME",
        "refused: RETRYCOUNT",
        "refused: LASTID",
        "refused: no id and no option",
        "refused: id behind an option",
        "refused: option without its value",
        "refused: unknown key",
        "refused: unknown group",
    ),
    "XPENDING": (
        "summary",
        "summary of several consumers",
        "summary with dangling",
        "summary of an empty PEL",
        "of an empty PEL",
        "row",
        "row, dangling",
        "row, future delivery",
        "row at the highest count",
        "row beyond signed numbers",
        "IDLE: row over it",
        "IDLE: row at equality",
        "IDLE: row left out, one ms short",
        "IDLE: row left out, future delivery",
        "IDLE 0",
        "IDLE below 0",
        "IDLE below 0, future delivery",
        "IDLE and a consumer",
        "IDLE in odd case",
        "consumer that owns some",
        "consumer that owns nothing",
        "consumer that is unknown",
        "words behind the consumer",
        "COUNT 0",
        "COUNT below 0",
        "cut by COUNT",
        "start exclusive, pending",
        "end exclusive, pending",
        "start at a pending id",
        "end at a pending id",
        "partial end",
        "start behind the end",
        "refused: too few words",
        "refused: number of words",
        "refused: no integer",
        "refused: bound",
        "refused: start behind the last id",
        "refused: end before the first id",
        "refused: unknown key",
        "refused: unknown group",
    ),
    "XACK": (
        "acknowledged",
        "acknowledged, dangling",
        "acknowledged by a partial id",
        "acknowledged beyond signed numbers",
        "repeated",
        "alive, not pending",
        "gone, not pending",
        "acknowledged, the last one pending",
        "of an empty PEL",
        "refused: too few words",
        "refused: id",
        "refused: id behind a pending one",
        "unknown key",
        "unknown group",
    ),
    "XDEL": ("of something",),
    "XTRIM": ("of something",),
}

Branch = tuple[str, str]
"""A command, and what it met."""
_OF_A_STANDING_CLOCK = (
    *("one ms", "at equality", "future delivery", "TIME is now", "IDLE back to 1970"),
    *("active again",),
)


def expected(profile: Profile) -> list[Branch]:
    """The branches that sequences must reach.  Where the clock goes on nothing is at equality; no
    command writes times to come; and Redis 7.0 knows no active times."""
    left_out = _OF_A_STANDING_CLOCK if profile is Profile.REDIS_7_0 else ()
    return [
        (command, name)
        for command, names in BRANCHES.items()
        for name in names
        if not any(part in name for part in left_out)
    ]


def is_of_sweep(branch: Branch) -> bool:
    """Whether it tells of a sweep as a whole."""
    return branch[1].startswith("sweep of")


def branches(played: Played) -> list[list[Branch]]:
    """What each command of a sequence met; a sweep is told at its first call."""
    calls_of = Counter(sent.number for sent in played.sent)
    removed: dict[StreamId, str] = {}
    claimed: set[StreamId] = set()
    cursor, numbers, met = END_OF_SCAN, set(), []
    for sent in played.sent:
        command = sent.words[0].decode()
        names = [] if sent.is_refused else list(_MET[command](sent, removed))
        if sent.is_refused:
            names.append(f"refused: {_refusal(sent)}")
        elif command in ("XDEL", "XTRIM"):
            gone = sent.before.entries.keys() - sent.after.entries.keys()
            removed |= dict.fromkeys(gone, "delete" if command == "XDEL" else "trim")
        elif command in ("XAUTOCLAIM", "XCLAIM"):
            got = _claimed(sent)
            if command == "XAUTOCLAIM":
                names += ["claimed again at one instant"] * len(claimed & got.keys())
                if cursor != END_OF_SCAN and parsed(sent.words)[2].start == cursor:
                    names.append("page from the last cursor")
                cursor = parse_id(sent.reply[0])
            claimed |= got.keys()
        if played.is_sweep(sent.number) and sent.number not in numbers:
            calls = "one call" if calls_of[sent.number] == 1 else "several calls"
            names.append(f"sweep of {calls}")
        numbers.add(sent.number)
        met.append([(command, name) for name in names])
    return met


def parsed(command: Words) -> tuple[bytes, bytes, AutoclaimRequest]:
    """Key, group and request of an XAUTOCLAIM, by the rule of servers."""
    key, group, request = words.parse_xautoclaim(command)
    return key, group, replace(request, idle_rule=IdleRule.SERVER)


def _group(sent: Sent) -> Group:
    return sent.before.groups[GROUP]


def _claimed(sent: Sent) -> Counter[StreamId]:
    """How often the server gave each id."""
    rows = sent.reply[1] if sent.words[0] == b"XAUTOCLAIM" else sent.reply
    return Counter(parse_id(row if isinstance(row, bytes) else row[0]) for row in rows)


def _is_unsigned(stream_id: StreamId) -> bool:
    """Whether it lies where signed numbers do not reach."""
    return max(stream_id) >= 2**63


def _if(names: Mapping[str, bool]) -> Iterator[str]:
    return (name for name, is_met in names.items() if is_met)


def _caller(group: Group, name: bytes, *, is_active: bool) -> str:
    known = {consumer.name: consumer for consumer in group.consumers}
    caller: Consumer | None = known.get(name)
    if caller is None:
        return "caller new, active" if is_active else "caller new, nothing claimed"
    if not is_active:
        return "caller known, nothing claimed"
    if caller.active_time_ms is None:
        return "caller known, active for the first time"
    return "caller known, active again"


# ---- XAUTOCLAIM ----


def _of_xautoclaim(sent: Sent, removed: Mapping[StreamId, str]) -> Iterator[str]:
    """What the rule meets, once per entry, page or caller.  `removed`: how an id was removed by an
    earlier step."""
    _, name, request = parsed(sent.words)
    case = Case(sent.before.groups[name], request, sent.between_ms[0], sent.before.entries)
    cursor = parse_id(sent.reply[0])
    hits = examined = 0
    for entry in case.group.pending:
        if cursor != END_OF_SCAN and entry.id >= cursor:
            break
        names = [name for name in case.branches_of(entry) if name != "claimed"]
        is_dangling = names[0].startswith("dangling")
        hits += is_dangling or "claimed with JUSTID" in names or "claimed without JUSTID" in names
        examined += entry.id >= request.start
        yield from names
        if is_dangling:
            yield from _of_dangling(entry.id, removed)
        if "left fresh" in names and entry.delivery_time_ms > case.now_ms:
            yield "left, future delivery"
    yield _end(case, cursor, hits, examined)
    if not case.group.pending:
        yield "of an empty PEL"
    yield _caller(case.group, request.consumer, is_active=bool(sent.reply[1]))


def _of_dangling(stream_id: StreamId, removed: Mapping[StreamId, str]) -> Iterator[str]:
    if stream_id in removed:
        yield f"dangling since a {removed[stream_id]}"
    if _is_unsigned(stream_id):
        yield "dangling beyond signed numbers"


def _end(case: Case, cursor: StreamId, hits: int, examined: int) -> str:
    count = case.request.count
    assert count is not None
    if not case.examined:
        return "page of nothing"
    by = "by COUNT" if hits == count else "by its budget" if examined == 10 * count else ""
    if cursor != END_OF_SCAN:
        return f"page ended {by}"
    return f"page to the end {by}".rstrip()


# ---- XCLAIM ----


@dataclass(frozen=True)
class _Claim:
    """One XCLAIM: state and request, and how often the server gave each id."""

    sent: Sent
    request: ClaimRequest
    got: Counter[StreamId]
    pending: Mapping[StreamId, PendingEntry]
    now_ms: int

    def of_id(self, stream_id: StreamId, removed: Mapping[StreamId, str]) -> Iterator[str]:
        """What the rule meets at one of the ids."""
        entry, is_present = self.pending.get(stream_id), stream_id in self.sent.before.entries
        request, is_repeated = self.request, self.request.ids.count(stream_id) > 1
        if not is_present:
            if entry is not None:
                yield "dangling and idle" if self._is_idle(entry) else "dangling and fresh"
                yield from _of_dangling(stream_id, removed)
            else:
                yield "FORCE: gone, not pending" if request.force else "gone, not pending"
            yield from _if(
                {
                    "dangling, owned by the caller": entry is not None
                    and entry.consumer == request.consumer,
                    "dangling, forced": entry is not None and request.force,
                    "repeated, dangling": entry is not None and is_repeated,
                }
            )
        elif entry is None:
            yield from self._of_not_pending(stream_id, is_repeated=is_repeated)
        else:
            yield from self._of_pending(entry)
        if is_present and self.got[stream_id] and is_repeated:
            yield self._of_repeated(stream_id)

    def _of_not_pending(self, stream_id: StreamId, *, is_repeated: bool) -> Iterator[str]:
        if not self.request.force:
            yield "not pending, without FORCE"
            return
        yield "FORCE: alive, not pending"
        yield from _if(
            {
                "FORCE: alive, not pending, with JUSTID": self.request.justid,
                "FORCE: alive, not pending, at a min-idle above 0": self.request.min_idle_ms > 0,
                "FORCE: beyond signed numbers": _is_unsigned(stream_id),
                "repeated, forced": is_repeated,
            }
        )

    def _of_pending(self, entry: PendingEntry) -> Iterator[str]:
        idle_ms, least_ms = self.now_ms - entry.delivery_time_ms, self.request.min_idle_ms
        is_claimed, is_future = bool(self.got[entry.id]), idle_ms < 0
        if self.request.force:
            yield "FORCE: pending and idle" if is_claimed else "FORCE: pending and fresh"
        if not is_claimed:
            yield from _if(
                {
                    "left fresh": True,
                    "left, one ms short": idle_ms == least_ms - 1,
                    "left, future delivery": is_future,
                }
            )
            return
        yield from _if(
            {
                "claimed over min-idle": idle_ms > least_ms > 0,
                "claimed, one ms over": idle_ms == least_ms + 1 and least_ms > 0,
                "claimed at equality": idle_ms == least_ms > 0,
                "claimed at min-idle 0": least_ms == 0,
                "claimed at min-idle 0, future delivery": least_ms == 0 and is_future,
                "claimed from oneself": entry.consumer == self.request.consumer,
                "claimed at the highest count": self.request.retrycount is None
                and not self.request.justid
                and entry.delivery_count == DELIVERY_COUNT_MAX,
                "claimed beyond signed numbers": _is_unsigned(entry.id),
                "claimed by a partial id": b"%d" % entry.id.ms in self.sent.words[5:],
            }
        )

    def _is_idle(self, entry: PendingEntry) -> bool:
        least_ms = self.request.min_idle_ms
        return least_ms == 0 or self.now_ms - entry.delivery_time_ms >= least_ms

    def _of_repeated(self, stream_id: StreamId) -> str:
        if self.got[stream_id] == 1:
            return "repeated, second refused"
        at_0 = self.request.min_idle_ms == 0
        return f"repeated, second claimed {'at min-idle 0' if at_0 else 'as dated back'}"

    def of_times(self) -> Iterator[str]:
        """What IDLE and TIME mean; nothing, where nothing is claimed."""
        words_given = [word.upper() for word in self.sent.words[5:]]
        if b"IDLE" in words_given and b"TIME" in words_given:
            is_idle = self.request.idle_ms is not None
            yield f"IDLE and TIME, {'IDLE' if is_idle else 'TIME'} last"
        if self.request.idle_ms is not None:
            yield _of_idle(self.request.idle_ms, self.now_ms)
        if self.request.time_ms is not None:
            yield _of_time(self.request.time_ms, self.now_ms)

    def of_counts(self) -> Iterator[str]:
        """What becomes of delivery counts."""
        written, retrycount = dict(self.options()).get(b"RETRYCOUNT"), self.request.retrycount
        if retrycount is None:
            yield "claimed with JUSTID" if self.request.justid else "claimed without JUSTID"
        yield from _if(
            {
                "RETRYCOUNT 0": retrycount == 0,
                "RETRYCOUNT below 0": written is not None and retrycount is None,
                "RETRYCOUNT above 0": retrycount is not None and retrycount > 0,
                "RETRYCOUNT with JUSTID": retrycount is not None and self.request.justid,
                "RETRYCOUNT of the highest count": retrycount == DELIVERY_COUNT_MAX,
            }
        )

    def of_last_id(self) -> Iterator[str]:
        """What LASTID does."""
        ids = [parse_id(value) for name, value in self.options() if name == b"LASTID"]
        before, after = (stream.groups[GROUP].last_delivered_id for stream in _states(self.sent))
        yield from _if(
            {
                "LASTID raised": after > before,
                "LASTID raised beyond signed numbers": after > before and _is_unsigned(after),
                "LASTID raised, nothing claimed": after > before and not self.got,
                "LASTID not raised": bool(ids) and after == before,
                "LASTID twice, the lower one last": len(ids) > 1
                and ids[-1] < max(ids)
                and max(ids) > before,
                "LASTID twice, the higher one last": len(ids) > 1
                and ids[-1] > min(ids)
                and after > before,
                "no ids, LASTID": bool(ids) and not self.request.ids,
            }
        )

    def of_words(self) -> Iterator[str]:
        """How the options were written."""
        names = [word for word in self.sent.words[5:] if word.isalpha()]
        places = [_USUAL_ORDER.index(name.upper()) for name in names]
        yield from _if(
            {
                "option words in odd case": any(not word.isupper() for word in names),
                "options in odd order": places != sorted(places),
            }
        )

    def options(self) -> Iterator[tuple[bytes, bytes]]:
        """The options that have a value."""
        sent_words = self.sent.words
        for at, word in enumerate(sent_words[5:-1], start=5):
            if word.upper() in _USUAL_ORDER[:4]:
                yield word.upper(), sent_words[at + 1]


_USUAL_ORDER = (b"IDLE", b"TIME", b"RETRYCOUNT", b"LASTID", b"FORCE", b"JUSTID")


def _states(sent: Sent) -> tuple:
    return sent.before, sent.after


def _of_xclaim(sent: Sent, removed: Mapping[StreamId, str]) -> Iterator[str]:
    request, group = words.parse_xclaim(sent.words), _group(sent)
    got = _claimed(sent)
    pending = {entry.id: entry for entry in group.pending}
    claim = _Claim(sent, request, got, pending, sent.between_ms[0])
    for stream_id in dict.fromkeys(request.ids):
        yield from claim.of_id(stream_id, removed)
    if got:
        yield from claim.of_times()
        yield from claim.of_counts()
    yield from claim.of_last_id()
    yield from claim.of_words()
    yield from _if(
        {
            "claimed out of order": list(got) != sorted(got),
            "no ids": not request.ids,
            "of an empty PEL": not pending,
        }
    )
    yield _caller(group, request.consumer, is_active=bool(got))


def _of_idle(idle_ms: int, now_ms: int) -> str:
    if idle_ms < 0:
        return "IDLE below 0 is now"
    if idle_ms == 0:
        return "IDLE 0"
    if idle_ms > now_ms:
        return "IDLE before 1970 is now"
    return "IDLE back to 1970" if idle_ms == now_ms else "IDLE, dated back"


def _of_time(time_ms: int, now_ms: int) -> str:
    if time_ms in (-1, 0, 1):
        return f"TIME {time_ms}{' is now' * (time_ms < 0)}"
    if time_ms < 0:
        return "TIME below -1 is now"
    if time_ms > now_ms:
        return "TIME to come is now"
    return "TIME is now" if time_ms == now_ms else "TIME, dated back"


# ---- XPENDING ----


def _of_xpending(sent: Sent, _: Mapping[StreamId, str]) -> Iterator[str]:
    query, group = words.parse_xpending(sent.words), _group(sent)
    dangling = {entry.id for entry in group.pending} - sent.before.entries.keys()
    if query is None:
        yield from _if(
            {
                "summary": bool(group.pending),
                "summary of several consumers": len(sent.reply[3] or ()) > 1,
                "summary with dangling": bool(dangling),
                "summary of an empty PEL": not group.pending,
            }
        )
        return
    shown = {parse_id(row[0]) for row in sent.reply}
    for entry in group.pending:
        yield from _of_row(entry, query, sent, is_shown=entry.id in shown)
    yield from _of_range(query, sent)
    yield from _of_owner(query, group, shown)


def _of_row(
    entry: PendingEntry, query: PendingRange, sent: Sent, *, is_shown: bool
) -> Iterator[str]:
    idle_ms, least_ms = sent.between_ms[0] - entry.delivery_time_ms, query.min_idle_ms or 0
    if is_shown:
        yield from _if(
            {
                "row": True,
                "row, dangling": entry.id not in sent.before.entries,
                "row, future delivery": idle_ms < 0,
                "row at the highest count": entry.delivery_count == DELIVERY_COUNT_MAX,
                "row beyond signed numbers": _is_unsigned(entry.id),
                "IDLE: row over it": idle_ms > least_ms > 0,
                "IDLE: row at equality": idle_ms == least_ms > 0,
                "IDLE below 0, future delivery": least_ms < 0 and idle_ms < 0,
            }
        )
    elif query.start <= entry.id <= query.end and query.consumer is None and query.count >= 100:
        yield from _if(
            {
                "IDLE: row left out, one ms short": idle_ms == least_ms - 1 and least_ms > 0,
                "IDLE: row left out, future delivery": idle_ms < 0 < least_ms,
            }
        )


def _of_range(query: PendingRange, sent: Sent) -> Iterator[str]:
    arguments = sent.words[3:]
    has_idle = query.min_idle_ms is not None
    start, end = arguments[2:4] if has_idle else arguments[:2]
    ids = {entry.id for entry in _group(sent).pending}
    within = sum(query.start <= stream_id <= query.end for stream_id in ids)
    yield from _if(
        {
            "of an empty PEL": not ids,
            "IDLE 0": query.min_idle_ms == 0,
            "IDLE below 0": has_idle and query.min_idle_ms < 0,
            "IDLE in odd case": has_idle and not arguments[0].isupper(),
            "COUNT 0": query.count == 0 and within > 0,
            "COUNT below 0": query.count < 0 and within > 0,
            "cut by COUNT": 0 < query.count == len(sent.reply) < within and not has_idle,
            "start exclusive, pending": _excluded(start) in ids,
            "end exclusive, pending": _excluded(end) in ids,
            "start at a pending id": start != b"-" and query.start in ids,
            "end at a pending id": end != b"+" and query.end in ids,
            "partial end": end.isdigit(),
            "start behind the end": query.start > query.end,
            "words behind the consumer": not has_idle and len(arguments) > 4,
        }
    )


def _excluded(bound: bytes) -> StreamId | None:
    """The id that a bound leaves out."""
    return parse_id(bound[1:]) if bound.startswith(b"(") else None


def _of_owner(query: PendingRange, group: Group, shown: set[StreamId]) -> Iterator[str]:
    if query.consumer is None:
        return
    is_known = query.consumer in {consumer.name for consumer in group.consumers}
    owns = any(entry.consumer == query.consumer for entry in group.pending)
    yield from _if(
        {
            "IDLE and a consumer": query.min_idle_ms is not None and bool(shown),
            "consumer that owns some": bool(shown),
            "consumer that owns nothing": is_known and not owns,
            "consumer that is unknown": not is_known and bool(group.pending),
        }
    )


# ---- XACK ----


def _of_xack(sent: Sent, _: Mapping[StreamId, str]) -> Iterator[str]:
    _, key, name, *texts = sent.words
    if key != KEY or name != GROUP:
        yield "unknown key" if key != KEY else "unknown group"
        return
    pending = {entry.id for entry in _group(sent).pending}
    ids = list(map(parse_id, texts))
    for stream_id in dict.fromkeys(ids):
        is_pending, is_present = stream_id in pending, stream_id in sent.before.entries
        yield from _if(
            {
                "acknowledged": is_pending,
                "acknowledged, dangling": is_pending and not is_present,
                "acknowledged by a partial id": is_pending and b"%d" % stream_id.ms in texts,
                "acknowledged beyond signed numbers": is_pending and _is_unsigned(stream_id),
                "repeated": is_pending and ids.count(stream_id) > 1,
                "alive, not pending": is_present and not is_pending,
                "gone, not pending": not is_present and not is_pending,
            }
        )
    if not pending:
        yield "of an empty PEL"
    elif not sent.after.groups[GROUP].pending:
        yield "acknowledged, the last one pending"


def _of_removal(sent: Sent, _: Mapping[StreamId, str]) -> Iterator[str]:
    if sent.before.entries.keys() - sent.after.entries.keys():
        yield "of something"


_MET = {
    "XAUTOCLAIM": _of_xautoclaim,
    "XCLAIM": _of_xclaim,
    "XPENDING": _of_xpending,
    "XACK": _of_xack,
    "XDEL": _of_removal,
    "XTRIM": _of_removal,
}


# ---- what the server refuses ----

_KINDS = {
    "wrong number of arguments for": "too few words",
    "Invalid min-idle-time argument": "min-idle",
    "Invalid (IDLE|TIME|RETRYCOUNT) option argument": r"\1",
    "COUNT must be > 0": "COUNT",
    "value is not an integer": "no integer",
    "invalid start ID for the interval": "start behind the last id",
    "invalid end ID for the interval": "end before the first id",
}


def _refusal(sent: Sent) -> str:
    """What the server refused, by its error."""
    message, command = sent.reply["err"], sent.words[0].decode()
    for pattern, kind in _KINDS.items():
        if match := re.search(pattern, message):
            return match.expand(kind)
    if message.startswith("NOGROUP"):
        return "unknown key" if sent.words[1] != KEY else "unknown group"
    if "Invalid stream ID" in message:
        return _bad_id(sent)
    if command == "XCLAIM":
        return _unrecognized(sent)
    assert message == "ERR syntax error", message
    if command == "XPENDING":
        return "number of words"
    return "COUNT without a number" if sent.words[-1].upper() == b"COUNT" else "unknown option"


def _bad_id(sent: Sent) -> str:
    if sent.words[0] != b"XACK":
        return {b"XAUTOCLAIM": "start", b"XCLAIM": "LASTID", b"XPENDING": "bound"}[sent.words[0]]
    pending = {entry.id for entry in _group(sent).pending}
    return "id behind a pending one" if _id_of(sent.words[3]) in pending else "id"


def _unrecognized(sent: Sent) -> str:
    named = re.search("'(.*)'$", sent.reply["err"])
    assert named is not None, sent.reply
    word = named[1].encode()
    if word.upper() in _USUAL_ORDER:
        return "option without its value"
    return "id behind an option" if _id_of(word) is not None else "no id and no option"


def _id_of(word: bytes) -> StreamId | None:
    try:
        return parse_id(word)
    except IdError:
        return None
