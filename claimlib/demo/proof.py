"""Compare a store with a server: every fact of their end states, one by one.

The server's facts come from `oracle`.  The store's facts are read from its tables, and from the
reply of a run.  This run made the same claims in the store as the server made in its streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from claimlib.commands.reply import Reply
from claimlib.demo.oracle import GroupAnswer, Key, ServerAnswer
from claimlib.engine.relation import Record, Relation
from claimlib.runs import FinishedRun
from claimlib.semantics.ids import StreamId, from_bigint
from claimlib.semantics.model import Group, PendingEntry
from claimlib.semantics.names import spell
from claimlib.store.tables import Store

LEAST_GROUPS = 3
"""Set the least number of groups in which entries must be claimed, deleted and left alone."""


class Subject(NamedTuple):
    """Name the subject of a fact: a group, or one of its entries or consumers.

    Names are spelled as in the tables.

    Attributes:
        of: the id of an entry, the name of a consumer, or empty for the group.
    """

    stream: str
    group: str
    of: str = ""

    def __str__(self) -> str:
        return " / ".join(self if self.of else self[:2])


Facts = dict[str, dict[Subject, object]]
"""Map each kind of fact and each subject to the value of the fact.

If the kind is one of `_THINGS`, the value is the number of its rows.  If one side lacks a thing,
the difference is reported once, for the thing itself.  Its details are not compared.
"""

_THINGS = frozenset({"pending entry", "claim", "deletion", "consumer", "group"})


@dataclass(frozen=True, slots=True)
class Difference:
    """Hold one fact on which the server and the store disagree.

    Attributes:
        what: the kind of the fact.
        server, store: the values.  The value of a side that lacks the subject is None.
    """

    what: str
    subject: Subject
    server: object
    store: object

    def __str__(self) -> str:
        return f"{self.what} of {self.subject}: server {self.server!r}, store {self.store!r}"


@dataclass(frozen=True, slots=True)
class Proof:
    """Hold the result of a comparison.

    Attributes:
        compared: the number of facts, by kind.
        differences: the facts on which server and store disagree.
        groups: the numbers of groups in which entries were claimed, deleted and left alone.
    """

    compared: Mapping[str, int]
    differences: tuple[Difference, ...]
    groups: Mapping[str, int]

    @property
    def total(self) -> int:
        """Return the number of facts that were compared."""
        return sum(self.compared.values())

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """Return the reasons why the workload proves too little.  Empty if it was large enough."""
        return tuple(
            f"entries were {outcome} in {count} groups, and must be in {LEAST_GROUPS} at least"
            for outcome, count in self.groups.items()
            if count < LEAST_GROUPS
        )

    @property
    def holds(self) -> bool:
        """Return True if enough facts were compared, and all of them are equal."""
        return not self.differences and not self.shortfalls


def prove(server: ServerAnswer, store: Store, run: FinishedRun) -> Proof:
    """Compare a server after its XAUTOCLAIM loops with a store after the run that did the same.

    Args:
        server: the results and the end state of the server.
        store: a store whose last snapshot was taken right before the loops.
        run: the sweep over all groups at the server's time, with `idle_rule=server`.
    """
    of_server = _server_facts(server)
    of_store = _store_facts(store, run)
    subjects = {what: _subjects(what, of_server, of_store) for what in of_store}
    differences = (
        Difference(what, subject, of_server[what].get(subject), of_store[what].get(subject))
        for what, compared in subjects.items()
        for subject in sorted(compared)
    )
    return Proof(
        compared={what: len(compared) for what, compared in subjects.items()},
        differences=tuple(
            difference for difference in differences if difference.server != difference.store
        ),
        groups=_groups_by_outcome(server.groups.values()),
    )


def differences_of_servers(
    server: ServerAnswer, other: Mapping[Key, Group]
) -> tuple[Difference, ...]:
    """Return the pending entries that have another owner or delivery count on a second server.

    An entry that is pending on one server only is a difference, too.

    Args:
        server: the server after its loops.
        other: the groups of the other server.  A difference shows it as the store.
    """
    left = _owners({key: answer.after for key, answer in server.groups.items()})
    right = _owners(other)
    return tuple(
        Difference("owner and count", subject, left.get(subject), right.get(subject))
        for subject in sorted(left.keys() | right.keys())
        if left.get(subject) != right.get(subject)
    )


def _owners(groups: Mapping[Key, Group]) -> dict[Subject, object]:
    return {
        _entry(spell(stream), spell(group), entry.id): (entry.consumer, entry.delivery_count)
        for (stream, group), state in groups.items()
        for entry in state.pending
    }


def _subjects(what: str, of_server: Facts, of_store: Facts) -> set[Subject]:
    """Return the subjects whose facts of one kind are compared."""
    left, right = of_server[what].keys(), of_store[what].keys()
    return left | right if what in _THINGS else left & right


def _groups_by_outcome(answers: Iterable[GroupAnswer]) -> dict[str, int]:
    groups = {"claimed": 0, "deleted": 0, "left alone": 0}
    for answer in answers:
        groups["claimed"] += bool(answer.reply.claimed)
        groups["deleted"] += bool(answer.reply.deleted)
        groups["left alone"] += answer.left > 0
    return groups


# ------------------------------------------------------------ the server's facts


def _server_facts(server: ServerAnswer) -> Facts:
    all_facts: Facts = {}
    for key, answer in server.groups.items():
        for what, facts in _group_facts(key, answer, server.now_ms):
            all_facts.setdefault(what, {}).update(facts)
    return all_facts


def _group_facts(
    key: Key, answer: GroupAnswer, now_ms: int
) -> Iterator[tuple[str, dict[Subject, object]]]:
    group = spell(key[0]), spell(key[1])
    before = {entry.id: (*_state(entry), now_ms) for entry in answer.before.pending}
    pending = {_entry(*group, entry.id): _state(entry) for entry in answer.after.pending}
    consumers = {
        Subject(*group, spell(consumer.name)): consumer for consumer in answer.after.consumers
    }
    claims = {_entry(*group, entry_id): before[entry_id] for entry_id in answer.reply.claimed}
    purges = {_entry(*group, entry_id): before[entry_id] for entry_id in answer.reply.deleted}
    yield "pending entry", dict.fromkeys(pending, 1)
    yield "owner", {subject: state[0] for subject, state in pending.items()}
    yield "delivery time", {subject: state[1] for subject, state in pending.items()}
    yield "delivery count", {subject: state[2] for subject, state in pending.items()}
    yield "claim", dict.fromkeys(claims, 1)
    yield "claimed from, at", dict(claims)
    yield (
        "payload",
        {_entry(*group, entry_id): fields for entry_id, fields in answer.payloads.items()},
    )
    yield "deletion", dict.fromkeys(purges, 1)
    yield "deleted from, at", dict(purges)
    yield "consumer", dict.fromkeys(consumers, 1)
    yield "seen time", {subject: consumer.seen_time_ms for subject, consumer in consumers.items()}
    yield (
        "active time",
        {subject: consumer.active_time_ms for subject, consumer in consumers.items()},
    )
    yield "group", {Subject(*group): 1}
    yield "last delivered id", {Subject(*group): str(answer.after.last_delivered_id)}


def _entry(stream: str, group: str, entry_id: StreamId) -> Subject:
    return Subject(stream, group, str(entry_id))


def _state(entry: PendingEntry) -> tuple[str | None, int, int]:
    owner = None if entry.consumer is None else spell(entry.consumer)
    return owner, entry.delivery_time_ms, entry.delivery_count


# ------------------------------------------------------------ the store's facts


def _store_facts(store: Store, run: FinishedRun) -> Facts:
    pending = _by_subject(store.relation("pending"))
    claims = _by_subject(Reply.of_finished(store, run).claimed)
    purges = _by_subject(store.relation("tombstones").where(f"run_seq = {run.run_seq:d}"))
    consumers = _by_subject(store.relation("consumers"))
    groups = _by_subject(store.relation("groups"))
    return {
        "pending entry": _numbers(pending),
        "owner": _values(pending, "consumer"),
        "delivery time": _values(pending, "delivery_time_ms"),
        "delivery count": _values(pending, "delivery_count"),
        "claim": _numbers(claims),
        "claimed from, at": _values(
            claims, "from_consumer", "from_delivery_time_ms", "from_delivery_count", "at_ms"
        ),
        "payload": {subject: _payload(rows[0]) for subject, rows in claims.items()},
        "deletion": _numbers(purges),
        "deleted from, at": _values(
            purges, "consumer", "delivery_time_ms", "delivery_count", "purged_at_ms"
        ),
        "consumer": _numbers(consumers),
        "seen time": _values(consumers, "seen_time_ms"),
        "active time": _values(consumers, "active_time_ms"),
        "group": _numbers(groups),
        "last delivered id": {
            subject: str(_id(rows[0], "last_delivered")) for subject, rows in groups.items()
        },
    }


Rows = dict[Subject, list[Record]]


def _by_subject(rows: Relation) -> Rows:
    by_subject: Rows = {}
    for row in rows.collect():
        by_subject.setdefault(_subject(row), []).append(row)
    return by_subject


def _subject(row: Record) -> Subject:
    if "id_ms" in row:
        return _entry(row["stream"], row["consumer_group"], _id(row, "id"))
    if "consumer" in row:
        return Subject(row["stream"], row["consumer_group"], row["consumer"])
    return Subject(row["stream"], row["consumer_group"])


def _numbers(rows: Rows) -> dict[Subject, object]:
    return {subject: len(of_subject) for subject, of_subject in rows.items()}


def _values(rows: Rows, *columns: str) -> dict[Subject, object]:
    """Return the value of one column, or the tuple of several."""
    if len(columns) == 1:
        return {subject: of_subject[0][columns[0]] for subject, of_subject in rows.items()}
    return {
        subject: tuple(of_subject[0][column] for column in columns)
        for subject, of_subject in rows.items()
    }


def _payload(row: Record) -> object:
    fields = row["fields"]
    return fields and tuple((field["name"], field["value"]) for field in fields)


def _id(row: Record, name: str) -> StreamId:
    return StreamId(from_bigint(row[f"{name}_ms"]), from_bigint(row[f"{name}_seq"]))
