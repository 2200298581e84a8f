"""The recorded vectors as claimlib's own values.

`tests/vectors/*.json` hold what a real server answered (see the README there).  All texts in them
are ASCII, so a name's bytes are its text's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claimlib.ids import parse_id
from claimlib.model import Consumer, Group, PendingEntry
from claimlib.words import Keyspace, Stream

FOLDER = Path(__file__).parents[1] / "vectors"
FILES = ("named.json", "random.json")
KEY = b"s"


@dataclass(frozen=True)
class Step:
    """One command of a vector, on the state that the step before it left."""

    vector: str
    number: int
    now_ms: int
    before: Keyspace
    command: tuple[bytes, ...]
    reply: Any
    after: Keyspace

    @property
    def name(self) -> str:
        return f"{self.vector} / {self.number}"

    @property
    def error(self) -> str | None:
        """The server's error, if it replied one."""
        return self.reply["err"] if isinstance(self.reply, dict) else None


def steps(file: str, command: str) -> Iterator[Step]:
    """The steps of a file that are this command, in order."""
    for vector in json.loads((FOLDER / file).read_text(encoding="ascii"))["vectors"]:
        for step in _steps_of(vector):
            if step.command[0] == command.encode("ascii"):
                yield step


def _steps_of(vector: dict[str, Any]) -> Iterator[Step]:
    entries = {
        parse_id(stream_id): tuple(text.encode("ascii") for text in fields)
        for stream_id, fields in vector["before"]["entries"]
    }
    before = Stream(entries, groups_of(vector["before"]["groups"]))
    for number, step in enumerate(vector["steps"], start=1):
        after = Stream(entries, groups_of(step["after"]["groups"]))
        yield Step(
            vector=vector["name"],
            number=number,
            now_ms=vector["now_ms"],
            before={KEY: before},
            command=tuple(word.encode("ascii") for word in step["command"]),
            reply=step["reply"],
            after={KEY: after},
        )
        before = after


def groups_of(recorded: list[dict[str, Any]]) -> dict[bytes, Group]:
    """The groups of a recorded state, by name."""
    return {group["name"].encode("ascii"): _group_of(group) for group in recorded}


def _group_of(recorded: dict[str, Any]) -> Group:
    return Group(
        last_delivered_id=parse_id(recorded["last_delivered_id"]),
        pending=tuple(
            PendingEntry(
                id=parse_id(entry["id"]),
                consumer=entry["consumer"].encode("ascii"),
                delivery_time_ms=entry["delivery_time_ms"],
                delivery_count=entry["delivery_count"],
            )
            for entry in recorded["pending"]
        ),
        consumers=tuple(
            Consumer(
                name=consumer["name"].encode("ascii"),
                seen_time_ms=consumer["seen_time_ms"],
                active_time_ms=consumer["active_time_ms"],
            )
            for consumer in recorded["consumers"]
        ),
    )
