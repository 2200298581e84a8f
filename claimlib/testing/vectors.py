"""Read the recorded answers of a server (vectors), and compute those of the reference.

A vector file is JSON: `{"server", "profile", "idle_rule", "vectors": [...]}`.  A vector has `name`,
`now_ms`, `before` (`last_generated_id`, `entries`, `groups`) and `steps`.  Each step has `command`
(the words), `reply` and `after` (`groups`).  Each step begins with the groups that the step before
left.  The stream's key is `s`, and its entries never change.  A reply consists of lists, texts,
integers and null.  An error is `{"err": message}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claimlib.errors import ReplyError, StateError
from claimlib.semantics import words
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import COUNT_MAX, Consumer, Group, IdleRule, PendingEntry, Profile
from claimlib.semantics.words import Keyspace, Stream
from claimlib.testing.recorded import Recorded, read

KEY = b"s"


@dataclass(frozen=True)
class Step:
    """Hold one command of a vector, with the states before and after it.

    Attributes:
        is_sweep: True if the command was repeated with its cursor until the cursor was 0-0.  Then
            `reply` combines all replies.
    """

    vector: str
    number: int
    now_ms: int
    idle_rule: IdleRule
    profile: Profile
    before: Keyspace
    command: tuple[bytes, ...]
    reply: Any
    after: Keyspace
    is_sweep: bool = False

    @property
    def name(self) -> str:
        """Return the name of the step, as messages show it."""
        return f"{self.vector} / {self.number}"

    @property
    def error(self) -> str | None:
        """Return the server's error, or None if the reply is not an error."""
        return self.reply["err"] if isinstance(self.reply, dict) else None

    @property
    def expected(self) -> Answer:
        """Return the answer of the server."""
        return Answer(self.reply, self.after[KEY].groups)

    def difference(self, answer: Answer) -> str | None:
        """Return a text on how an answer differs from the server's, or None if it does not.

        The text names the command, the differences, and the stream before the command.
        """
        lines = [
            f"  {name}:\n    expected {expected}\n    found    {actual}"
            for name, expected, actual in (
                ("reply", self.expected.reply, answer.reply),
                ("groups", self.expected.groups, answer.groups),
            )
            if expected != actual
        ]
        command = " ".join(map(text_of, self.command))
        return "\n".join([command, *lines, f"  before:\n    {self.before[KEY]}"]) if lines else None


@dataclass(frozen=True)
class Answer:
    """Hold a reply in the form of the vectors, and the groups after it."""

    reply: Any
    groups: Mapping[bytes, Group]


def steps(file: Path, idle_rule: IdleRule | None = None) -> Iterator[Step]:
    """Yield the steps of a vector file, in order.

    Args:
        idle_rule: the rule to use instead of the file's.  None means the file's rule.

    Raises:
        ConfigError: the file does not exist, or is not a vector file.  The message names the place.
    """
    recorded = read(file)
    rule = idle_rule or IdleRule(recorded.member("idle_rule").one_of(IdleRule))
    profile = Profile(recorded.member("profile").one_of(Profile))
    for vector in recorded.member("vectors").items():
        yield from _steps_of(vector, rule, profile)


def by_reference(step: Step) -> Answer:
    """Return the reply and the state afterwards, as the reference computes them.

    After an error, the state is as before.  A sweep is one call with a COUNT that is larger than
    any PEL.
    """
    sweep = (b"COUNT", b"%d" % COUNT_MAX) if step.is_sweep else ()
    try:
        after, reply = words.execute(
            step.before, (*step.command, *sweep), step.now_ms, step.idle_rule, step.profile
        )
    except ReplyError as error:
        return Answer({"err": error.message}, step.before[KEY].groups)
    return Answer(as_text(reply), after[KEY].groups)


# ---------------------------------------------------------------- JSON to values


def _steps_of(vector: Recorded, rule: IdleRule, profile: Profile) -> Iterator[Step]:
    name, now_ms = text_of(vector.member("name").text()), vector.member("now_ms").integer()
    before = vector.member("before")
    entries = _entries_of(before.member("entries"))
    state = Stream(entries, _groups_of(before.member("groups")))
    for number, step in enumerate(vector.member("steps").items(), start=1):
        after = Stream(entries, _groups_of(step.member("after").member("groups")))
        yield Step(
            vector=name,
            number=number,
            now_ms=now_ms,
            idle_rule=rule,
            profile=profile,
            before={KEY: state},
            command=_command_of(step.member("command")),
            reply=_reply_of(step.member("reply")),
            after={KEY: after},
        )
        state = after


def _command_of(recorded: Recorded) -> tuple[bytes, ...]:
    words = recorded.texts()
    if not words:
        raise recorded.unfit("a command's words")
    return words


def _reply_of(recorded: Recorded) -> Any:
    """Check that a value is a reply, and return it unchanged.

    Raises:
        ConfigError: the value is not a reply.
    """
    if isinstance(recorded.value, dict):
        recorded.member("err").text()
        return recorded.value
    unchecked = [recorded]
    while unchecked:
        node = unchecked.pop()
        if isinstance(node.value, list):
            unchecked += node.items()
        elif isinstance(node.value, str):
            node.text()
        elif node.value is not None and type(node.value) is not int:
            raise node.unfit("a list, a text, a whole number or null")
    return recorded.value


def _entries_of(recorded: Recorded) -> dict[StreamId, tuple[bytes, ...]]:
    return recorded.keyed(_entry_of(entry) for entry in recorded.items())


def _entry_of(recorded: Recorded) -> tuple[StreamId, tuple[bytes, ...]]:
    parts = recorded.items()
    if len(parts) != 2:
        raise recorded.unfit("an id and a list of names and values")
    fields = parts[1].texts()
    if len(fields) % 2:
        raise parts[1].unfit("a value for each name")
    return parts[0].id(), fields


def _groups_of(recorded: Recorded) -> dict[bytes, Group]:
    """Return the groups of a recorded state, by name."""
    return recorded.keyed(
        (group.member("name").text(), _group_of(group)) for group in recorded.items()
    )


def _group_of(recorded: Recorded) -> Group:
    pending, consumers = recorded.member("pending"), recorded.member("consumers")
    last_delivered_id = recorded.member("last_delivered_id").id()
    try:
        return Group(
            last_delivered_id=last_delivered_id,
            pending=tuple(map(_pending_entry_of, pending.items())),
            consumers=tuple(map(_consumer_of, consumers.items())),
        )
    except StateError as error:
        raise recorded.unfit(f"a group of a server ({error.message})") from error


def _pending_entry_of(recorded: Recorded) -> PendingEntry:
    consumer = recorded.member("consumer")
    return PendingEntry(
        id=recorded.member("id").id(),
        consumer=None if consumer.value is None else consumer.text(),
        delivery_time_ms=recorded.member("delivery_time_ms").integer(),
        delivery_count=recorded.member("delivery_count").integer(),
    )


def _consumer_of(recorded: Recorded) -> Consumer:
    active_time = recorded.member("active_time_ms")
    return Consumer(
        name=recorded.member("name").text(),
        seen_time_ms=recorded.member("seen_time_ms").integer(),
        active_time_ms=None if active_time.value is None else active_time.integer(),
    )


def as_text(reply: words.Reply) -> Any:
    """Return a reply in the form of the vectors, with texts instead of byte strings."""
    if isinstance(reply, list):
        return [as_text(item) for item in reply]
    return text_of(reply) if isinstance(reply, bytes) else reply


def text_of(name: bytes) -> str:
    """Return the text that stands for a server's bytes in the vectors."""
    return name.decode("utf-8", "surrogateescape")
