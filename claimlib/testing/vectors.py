"""Recorded vectors: what a server answered, as values; and what the reference answers.

A vector file is JSON: `{"server", "profile", "idle_rule", "vectors": [...]}`; a vector has `name`,
`now_ms`, `before` (`last_generated_id`, `entries`, `groups`) and `steps`, each `command` (the
words), `reply` and `after` (`groups`), on the state that the step before it left.  The stream's key
is `s`; it never changes.  A reply is lists, texts, integers and null, an error `{"err": message}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claimlib import words
from claimlib.errors import ConfigError, ReplyError
from claimlib.ids import parse_id
from claimlib.model import Consumer, Group, IdleRule, PendingEntry, Profile
from claimlib.words import Keyspace, Stream

KEY = b"s"


@dataclass(frozen=True)
class Step:
    """One command of a vector, on the state that the step before it left."""

    vector: str
    number: int
    now_ms: int
    idle_rule: IdleRule
    profile: Profile
    before: Keyspace
    command: tuple[bytes, ...]
    reply: Any
    after: Keyspace

    @property
    def name(self) -> str:
        """The step as people name it."""
        return f"{self.vector} / {self.number}"

    @property
    def error(self) -> str | None:
        """The server's error, if it replied one."""
        return self.reply["err"] if isinstance(self.reply, dict) else None


@dataclass(frozen=True)
class Answer:
    """A reply as the vectors hold it, and the groups afterwards."""

    reply: Any
    groups: Mapping[bytes, Group]


def steps(file: Path, idle_rule: IdleRule | None = None) -> Iterator[Step]:
    """The steps of a vector file, in order.

    Args:
        idle_rule: instead of the file's.

    Raises:
        ConfigError: the file is not there, or is no vector file; it is named.
    """
    try:
        recorded = json.loads(file.read_text(encoding="utf-8"))
        rule = idle_rule or IdleRule(recorded["idle_rule"])
        profile = Profile(recorded["profile"])
        vectors = recorded["vectors"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is no vector file: {error!r}", file=str(file)) from error
    for vector in vectors:
        try:
            yield from _steps_of(vector, rule, profile)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{file}: vector {vector.get('name')} cannot be read: {error!r}", file=str(file)
            ) from error


def by_reference(step: Step) -> Answer:
    """Reply and state after, as the reference gives them; an error leaves the state as it was."""
    try:
        after, reply = words.execute(
            step.before, step.command, step.now_ms, step.idle_rule, step.profile
        )
    except ReplyError as error:
        return Answer({"err": error.message}, step.before[KEY].groups)
    return Answer(as_text(reply), after[KEY].groups)


# ---------------------------------------------------------------- JSON to values


def _steps_of(vector: dict[str, Any], rule: IdleRule, profile: Profile) -> Iterator[Step]:
    entries = {
        parse_id(stream_id): tuple(map(as_bytes, fields))
        for stream_id, fields in vector["before"]["entries"]
    }
    before = Stream(entries, _groups_of(vector["before"]["groups"]))
    for number, step in enumerate(vector["steps"], start=1):
        after = Stream(entries, _groups_of(step["after"]["groups"]))
        yield Step(
            vector=vector["name"],
            number=number,
            now_ms=vector["now_ms"],
            idle_rule=rule,
            profile=profile,
            before={KEY: before},
            command=tuple(map(as_bytes, step["command"])),
            reply=step["reply"],
            after={KEY: after},
        )
        before = after


def _groups_of(recorded: list[dict[str, Any]]) -> dict[bytes, Group]:
    """The groups of a recorded state, by name."""
    return {as_bytes(group["name"]): _group_of(group) for group in recorded}


def _group_of(recorded: dict[str, Any]) -> Group:
    return Group(
        last_delivered_id=parse_id(recorded["last_delivered_id"]),
        pending=tuple(
            PendingEntry(
                id=parse_id(entry["id"]),
                consumer=None if entry["consumer"] is None else as_bytes(entry["consumer"]),
                delivery_time_ms=entry["delivery_time_ms"],
                delivery_count=entry["delivery_count"],
            )
            for entry in recorded["pending"]
        ),
        consumers=tuple(
            Consumer(
                name=as_bytes(consumer["name"]),
                seen_time_ms=consumer["seen_time_ms"],
                active_time_ms=consumer["active_time_ms"],
            )
            for consumer in recorded["consumers"]
        ),
    )


def as_text(reply: words.Reply) -> Any:
    """A reply with its byte strings as text, as the vectors hold it."""
    if isinstance(reply, list):
        return [as_text(item) for item in reply]
    return text_of(reply) if isinstance(reply, bytes) else reply


def as_bytes(text: object) -> bytes:
    """A text of the vectors as the server was sent it."""
    return str(text).encode("utf-8", "surrogateescape")


def text_of(name: bytes) -> str:
    """The text of the vectors for what a server said."""
    return name.decode("utf-8", "surrogateescape")
