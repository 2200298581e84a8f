"""Recorded vectors against the reference and against the tables: each step both ways."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from claimlib import words
from claimlib.commands.reply import Reply
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.errors import ReplyError
from claimlib.ids import END_OF_SCAN, StreamId, parse_id
from claimlib.model import AutoclaimRequest
from claimlib.names import unspell
from claimlib.store import Store
from claimlib.testing.tables import read_groups, request_table, write_keyspace
from claimlib.testing.vectors import KEY, Answer, Step, by_reference, text_of

COVERED = ("XAUTOCLAIM",)
Names = tuple[bytes, bytes]


@dataclass(frozen=True)
class Verdict:
    """What came of some vector files; a step counts twice, once per way.

    Attributes:
        passed: steps that were answered as the server did.
        failed: a text for each that was not.
        not_covered: how many steps are of each command that is not there yet.
    """

    passed: int
    failed: Sequence[str]
    not_covered: Mapping[str, int]


def check(spark: SparkSession, folder: Path, recorded: Sequence[Step]) -> Verdict:
    """Each step through the reference and, all in one run, through the tables of a new store."""
    covered = [step for step in recorded if _command(step) in COVERED]
    others = Counter(_command(step) for step in recorded if _command(step) not in COVERED)
    ways = {
        "reference": list(map(by_reference, covered)),
        "tables": _by_tables(spark, folder, covered),
    }
    failed = [
        f"{step.name}, {way}: {difference}"
        for way, answers in ways.items()
        for step, answer in zip(covered, answers, strict=True)
        if (difference := step.difference(answer)) is not None
    ]
    return Verdict(2 * len(covered) - len(failed), failed, others)


def _command(step: Step) -> str:
    return text_of(step.command[0]).upper()


def _by_tables(spark: SparkSession, folder: Path, recorded: Sequence[Step]) -> list[Answer]:
    """Each step is a stream of its own with the state before it: one store, one run."""
    streams = {b"%d" % number: step for number, step in enumerate(recorded)}
    parsed = [_parsed(step, stream) for stream, step in streams.items()]
    store = Store.init(spark, str(folder))
    keyspace = {stream: step.before[KEY] for stream, step in streams.items()}
    write_keyspace(store, keyspace, {stream: step.now_ms for stream, step in streams.items()})
    requests = {one[0]: one[1] for one in parsed if not isinstance(one, ReplyError)}
    reply = xautoclaim(store, request_table(spark, requests)) if requests else None
    found = _Found.of(reply) if reply is not None else _Found({}, {}, {}, set())
    groups = read_groups(store)
    answers = []
    for (stream, step), one in zip(streams.items(), parsed, strict=True):
        after = groups.get(stream, {})
        if isinstance(one, ReplyError):
            answers.append(Answer({"err": one.message}, after))
        elif one[0] in found.unknown:
            error = words.no_group(step.command[1], step.command[2])
            answers.append(Answer({"err": error.message}, after))
        else:
            answers.append(Answer(found.reply(*one), after))
    return answers


def _parsed(step: Step, stream: bytes) -> tuple[Names, AutoclaimRequest] | ReplyError:
    """Who is asked for what, with the step's stream for `KEY`; or the server's error."""
    try:
        key, group, request = words.parse_xautoclaim(step.command)
    except ReplyError as error:
        return error
    name = stream if key == KEY else stream + b":" + key
    count = None if step.is_sweep else request.count
    ruled = replace(request, count=count, idle_rule=step.idle_rule, profile=step.profile)
    return (name, group), ruled


@dataclass(frozen=True)
class _Found:
    """What a run replied, by group: fields by claimed id, deleted ids, cursors, unknown groups."""

    claimed: Mapping[Names, Mapping[StreamId, Any]]
    deleted: Mapping[Names, list[StreamId]]
    cursors: Mapping[Names, str]
    unknown: set[Names]

    @classmethod
    def of(cls, reply: Reply) -> _Found:
        claimed: dict[Names, dict[StreamId, Any]] = defaultdict(dict)
        deleted: dict[Names, list[StreamId]] = defaultdict(list)
        for row in reply.claimed.collect():
            claimed[_names(row)][parse_id(row["id"])] = row["fields"]
        for row in reply.deleted.collect():
            deleted[_names(row)].append(parse_id(row["id"]))
        cursors = {_names(row): row["next_id"] for row in reply.cursors.collect()}
        refused = reply.groups.where("status = 'refused'").collect()
        unknown = {_names(row) for row in refused if row["reason"].startswith("unknown group")}
        return cls(claimed, deleted, cursors, unknown)

    def reply(self, names: Names, request: AutoclaimRequest) -> Any:
        """The reply to one request, as the vectors hold it."""
        claimed = dict(sorted(self.claimed.get(names, {}).items()))
        rows = [
            str(stream_id) if request.justid else [str(stream_id), _flat(fields)]
            for stream_id, fields in claimed.items()
        ]
        deleted = sorted(self.deleted.get(names, []))
        # A sweep has no cursor of its own: it went on until 0-0.
        cursor = str(END_OF_SCAN) if request.count is None else self.cursors.get(names)
        return [cursor, rows, list(map(str, deleted))]


def _flat(fields: Any) -> list[str] | None:
    if fields is None:
        return None
    return [text_of(bytes(part)) for pair in fields for part in pair]


def _names(row: Any) -> Names:
    return unspell(row["stream"]), unspell(row["consumer_group"])
