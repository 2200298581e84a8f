"""Check recorded vectors against the reference and against the tables, step by step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.reply import Reply
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.commands.xpending import Reading, pending_range, pending_summary, read_store
from claimlib.engine.relation import Record
from claimlib.errors import ReplyError, RequestError
from claimlib.plans.survey import NOT_IN_GROUPS
from claimlib.semantics import words
from claimlib.semantics.ids import END_OF_SCAN, StreamId, from_bigint, parse_id
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest, Profile
from claimlib.semantics.names import unspell
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, request_table, write_keyspace
from claimlib.testing.vectors import KEY, Answer, Step, as_text, by_reference, text_of

COVERED = ("XAUTOCLAIM", "XCLAIM", "XPENDING", "XACK")
Names = tuple[bytes, bytes]
T = TypeVar("T")


@dataclass(frozen=True)
class Verdict:
    """Hold the result for some vector files.

    A step counts twice: once for the answer of the reference, and once for that of the tables.

    Attributes:
        passed: the number of answers that were like the server's.
        failed: a text for each answer that was different.
        not_covered: by name of a command that the tables do not implement yet, its number of steps.
    """

    passed: int
    failed: Sequence[str]
    not_covered: Mapping[str, int]


def check(store: Store, recorded: Sequence[Step]) -> Verdict:
    """Compare the recorded answers of a server with those of the reference and of the tables.

    Args:
        store: an empty store.  Afterwards it contains one stream per step.
        recorded: the steps.
    """
    covered = [step for step in recorded if _command(step) in COVERED]
    others = Counter(_command(step) for step in recorded if _command(step) not in COVERED)
    answers_by_way = {
        "reference": list(map(by_reference, covered)),
        "tables": _by_tables(store, covered),
    }
    failed = [
        f"{step.name}, {way}: {difference}"
        for way, answers in answers_by_way.items()
        for step, answer in zip(covered, answers, strict=True)
        if (difference := step.difference(answer)) is not None
    ]
    return Verdict(2 * len(covered) - len(failed), failed, others)


def _command(step: Step) -> str:
    return text_of(step.command[0]).upper()


def _by_tables(store: Store, recorded: Sequence[Step]) -> list[Answer]:
    """Return the answers of the tables, one per step.

    In the store, each step is a stream of its own, with the state before the step.  All steps of a
    command that writes are one run.  Commands that only read come first, and need no run.
    """
    streams = {b"%d" % number: step for number, step in enumerate(recorded)}
    keyspace = {stream: step.before[KEY] for stream, step in streams.items()}
    write_keyspace(store, keyspace, {stream: step.now_ms for stream, step in streams.items()})
    reading = read_store(store)
    by_command: dict[str, dict[bytes, Step]] = defaultdict(dict)
    for stream, step in streams.items():
        by_command[_command(step)][stream] = step
    replies = {
        stream: _read(reading, stream, step) for stream, step in by_command["XPENDING"].items()
    }
    for command, execute in (("XAUTOCLAIM", _autoclaim), ("XCLAIM", _claim), ("XACK", _ack)):
        if by_command[command]:
            replies |= execute(store, by_command[command])
    groups = read_groups(store)
    return [Answer(replies[stream], groups.get(stream, {})) for stream in streams]


def _autoclaim(store: Store, streams: Mapping[bytes, Step]) -> dict[bytes, Any]:
    """Return the replies of one run of all XAUTOCLAIMs, by stream."""
    parsed = {stream: _parsed(step, stream) for stream, step in streams.items()}
    requests = {call[0]: call[1] for call in parsed.values() if not isinstance(call, ReplyError)}
    reply = xautoclaim(store, request_table(store.engine, requests)) if requests else None
    results = _Results.of(reply) if reply is not None else _Results({}, {}, {}, {})
    replies: dict[bytes, Any] = {}
    for stream, call in parsed.items():
        if isinstance(call, ReplyError):
            replies[stream] = {"err": call.message}
        elif call[0] in results.refused:
            replies[stream] = {
                "err": _with_recorded_key(results.refused[call[0]], streams[stream], stream)
            }
        else:
            replies[stream] = results.reply(*call)
    return replies


def _claim(store: Store, streams: Mapping[bytes, Step]) -> dict[bytes, Any]:
    """Return the replies of one run of all XCLAIMs, by stream.

    The server looks for the group before it looks at the arguments.  So if the arguments are wrong,
    the tables get an XCLAIM that changes nothing.  The tables refuse it if the group is unknown.
    """
    parsed = {stream: _or_error(words.parse_xclaim, step) for stream, step in streams.items()}
    numbers = _numbered(streams, words=6)
    claims = [
        NamedClaim(
            *_names_of(streams[stream], stream), _claim_request(parsed[stream], streams[stream])
        )
        for stream in numbers
    ]
    reply = xclaim(store, claims) if claims else None
    refused = _refused(reply)
    ids = _ids_of(reply)
    replies: dict[bytes, Any] = {}
    for stream, call in parsed.items():
        number = numbers.get(stream, 0)  # 0 if the step has too few words to be a request
        if number in refused:
            replies[stream] = {"err": _with_recorded_key(refused[number], streams[stream], stream)}
        elif isinstance(call, ReplyError):
            replies[stream] = {"err": call.message}
        else:
            rows = [row for row in ids.get(number, []) if row["status"] in _CLAIMED_STATUSES]
            replies[stream] = [
                row["id"] if call.justid else [row["id"], _flat(row["fields"])] for row in rows
            ]
    return replies


_CLAIMED_STATUSES = ("claimed", "forced", "superseded")
# In this profile, an XCLAIM that claims nothing creates no consumer.
_NO_CLAIM = ClaimRequest(b"nobody", 0, (), profile=Profile.REDIS_7_0)


def _claim_request(parsed: ClaimRequest | ReplyError, step: Step) -> ClaimRequest:
    """Return the parsed request under the rules of the step, or a request that changes nothing."""
    if isinstance(parsed, ReplyError):
        return _NO_CLAIM
    return replace(parsed, idle_rule=step.idle_rule, profile=step.profile)


def _ack(store: Store, streams: Mapping[bytes, Step]) -> dict[bytes, Any]:
    """Return the replies of one run of all XACKs, by stream.

    The tables refuse unknown groups with an error that names all of them.  A server that does not
    know the group replies 0, without looking at the ids.
    """
    parsed = {stream: _or_error(words.parse_xack, step) for stream, step in streams.items()}
    acks = {
        stream: NamedAck(*_names_of(streams[stream], stream), _ids_or_empty(parsed[stream]))
        for stream in _numbered(streams, words=4)
    }
    unknown = _unknown_groups(store, list(acks.values()))
    known = {stream: ack for stream, ack in acks.items() if (ack.stream, ack.group) not in unknown}
    ids = _ids_of(xack(store, list(known.values())) if known else None)
    numbers = {stream: number for number, stream in enumerate(known, start=1)}
    replies: dict[bytes, Any] = {}
    for stream, parsed_ids in parsed.items():
        if stream in acks and stream not in known:
            replies[stream] = 0
        elif isinstance(parsed_ids, ReplyError):
            replies[stream] = {"err": parsed_ids.message}
        else:
            statuses = [row["status"] for row in ids.get(numbers[stream], [])]
            replies[stream] = statuses.count("acked")
    return replies


def _ids_or_empty(parsed: tuple[StreamId, ...] | ReplyError) -> tuple[StreamId, ...]:
    return () if isinstance(parsed, ReplyError) else parsed


def _unknown_groups(store: Store, acks: Sequence[NamedAck]) -> set[Names]:
    """Return the groups whose XACKs the tables refuse, because the tables lack these groups."""
    try:
        xack(store, acks, dry_run=True)
    except RequestError as error:
        return {(unspell(stream), unspell(group)) for stream, group in error.groups}
    return set()


def _or_error(parse: Callable[[Sequence[bytes]], T], step: Step) -> T | ReplyError:
    try:
        return parse(step.command)
    except ReplyError as error:
        return error


def _numbered(streams: Mapping[bytes, Step], words: int) -> dict[bytes, int]:
    """Number, from 1, the steps with enough words that the server would look up their group."""
    complete = [stream for stream, step in streams.items() if len(step.command) >= words]
    return {stream: number for number, stream in enumerate(complete, start=1)}


def _names_of(step: Step, stream: bytes) -> Names:
    return _stream_of(step.command[1], stream), step.command[2]


def _refused(reply: BulkReply | None) -> dict[int, str]:
    """Return the reasons for which requests were refused, by number of the request."""
    refused = [] if reply is None else reply.requests.where("status = 'refused'").collect()
    return {row["request"]: row["reason"] for row in refused}


def _with_recorded_key(message: str, step: Step, stream: bytes) -> str:
    """Return an error message of the tables, as the server words it for a step's recorded key.

    In the store, the stream has another name, and messages have a hint (`NOT_IN_GROUPS`).
    """
    key = step.command[1] if len(step.command) > 1 else KEY
    ours, theirs = (f"No such key '{text_of(name)}'" for name in (_stream_of(key, stream), key))
    return message.removesuffix(NOT_IN_GROUPS).replace(ours, theirs)


def _ids_of(reply: BulkReply | None) -> dict[int, list[Record]]:
    """Return the rows for the ids of each request, by number, in the order of the request."""
    ids: dict[int, list[Record]] = defaultdict(list)
    for row in [] if reply is None else reply.ids.collect():
        ids[row["request"]].append(row)
    for rows in ids.values():
        if [row["position"] for row in rows] != list(range(len(rows))):
            raise AssertionError(f"ids that are out of order: {rows}")
    return ids


def _read(reading: Reading, stream: bytes, step: Step) -> Any:
    """Return the reply to an XPENDING."""
    key, group = step.command[1:3] if len(step.command) > 2 else (KEY, b"")
    names = (_stream_of(key, stream), group)
    try:
        query = words.parse_xpending(step.command)
        if query is None:
            return as_text(words.summary_reply(pending_summary(reading, *names)))
        rows = pending_range(reading, *names, query).collect()
    except ReplyError as error:
        return {"err": _with_recorded_key(error.message, step, stream)}
    return [
        [_id(row), text_of(unspell(row["consumer"])), row["idle_ms"], row["delivery_count"]]
        for row in rows
    ]


def _id(row: Any) -> str:
    return str(StreamId(from_bigint(row["id_ms"]), from_bigint(row["id_seq"])))


def _stream_of(key: bytes, stream: bytes) -> bytes:
    """Return the stream that a step's key names.

    `KEY` names the step's stream.  Other keys name streams that do not exist.
    """
    return stream if key == KEY else stream + b":" + key


def _parsed(step: Step, stream: bytes) -> tuple[Names, AutoclaimRequest] | ReplyError:
    """Return the group and the request of an XAUTOCLAIM, or the server's error.

    The returned group is a pair of names.  In it, the step's stream replaces `KEY`.
    """
    try:
        key, group, request = words.parse_xautoclaim(step.command)
    except ReplyError as error:
        return error
    count = None if step.is_sweep else request.count
    request = replace(request, count=count, idle_rule=step.idle_rule, profile=step.profile)
    return (_stream_of(key, stream), group), request


@dataclass(frozen=True)
class _Results:
    """Hold the reply of a run, by group.

    Attributes:
        claimed: the fields of each claimed entry, by id.
        deleted: the ids of deleted entries.
        cursors: the next id.
        refused: the reasons for which groups were refused.
    """

    claimed: Mapping[Names, Mapping[StreamId, Any]]
    deleted: Mapping[Names, list[StreamId]]
    cursors: Mapping[Names, str]
    refused: Mapping[Names, str]

    @classmethod
    def of(cls, reply: Reply) -> _Results:
        claimed: dict[Names, dict[StreamId, Any]] = defaultdict(dict)
        deleted: dict[Names, list[StreamId]] = defaultdict(list)
        for row in reply.claimed.collect():
            claimed[_names(row)][parse_id(row["id"])] = row["fields"]
        for row in reply.deleted.collect():
            deleted[_names(row)].append(parse_id(row["id"]))
        cursors = {_names(row): row["next_id"] for row in reply.cursors.collect()}
        rows = reply.groups.where("status = 'refused'").collect()
        refused = {_names(row): row["reason"] for row in rows}
        return cls(claimed, deleted, cursors, refused)

    def reply(self, names: Names, request: AutoclaimRequest) -> Any:
        """Return the reply to one request, in the form of the vectors."""
        claimed = dict(sorted(self.claimed.get(names, {}).items()))
        rows = [
            str(stream_id) if request.justid else [str(stream_id), _flat(fields)]
            for stream_id, fields in claimed.items()
        ]
        deleted = sorted(self.deleted.get(names, []))
        # A sweep has no cursor of its own, because it continued until 0-0.
        cursor = str(END_OF_SCAN) if request.count is None else self.cursors.get(names)
        return [cursor, rows, list(map(str, deleted))]


def _flat(fields: Any) -> list[str] | None:
    if fields is None:
        return None
    return [text_of(bytes(part)) for pair in fields for part in pair.values()]


def _names(row: Any) -> Names:
    return unspell(row["stream"]), unspell(row["consumer_group"])
