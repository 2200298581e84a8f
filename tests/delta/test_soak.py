"""Do hundreds of runs of all kinds on one store.  Interrupt many of them, and repeat them.

After each run, the store is compared with a model in Python.  A replay of the journal finds no
difference.  One store mirrors a real server, another is filled by imports.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, cycle
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq
import pytest
import redis
from deltalake import write_deltalake

from claimlib.commands.check import check
from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.commands.maintain import maintain
from claimlib.commands.reset_cursor import reset_cursor
from claimlib.commands.retire import Retirement, retire
from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.commands.sweep_request import SweepRequest
from claimlib.commands.undo import undo
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.live.reading import ServerReading
from claimlib.plans.differences import Scope
from claimlib.schema import TABLES
from claimlib.semantics import scan
from claimlib.semantics.ids import MIN_ID, StreamId, parse_id
from claimlib.semantics.model import (
    AutoclaimRequest,
    ClaimRequest,
    Consumer,
    Group,
    PendingEntry,
    RemovalLimits,
)
from claimlib.semantics.words import Stream
from claimlib.store.commits import change_table
from claimlib.store.creation import create
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups
from claimlib.testing.server_process import Server
from tests.delta import given_files
from tests.delta.server_groups import FAST, GROUP, HOUR_MS, state
from tests.delta.steps import definitions, opened, watch_steps
from tests.live.figures import COUNTED

STREAMS = (b"s", b"t", b"u")
W = GROUP.encode()
CONSUMERS = (b"alice", b"bob", b"carol", b"dave")
CURSOR = "nightly"
ANYTHING = RemovalLimits(max_removed_share=1)
RUNS = {"live": 200, "given": 100}
REPLAYED = 5
"""The journal is replayed after every 5th run, and after each run that was interrupted.  A replay
takes as long as a run."""
PART = 50
"""The number of runs between two lines of figures.  The seconds are those of all processors."""
MOST_FILES = 400
"""A maintenance, which is one of 25 runs, leaves few files in the tables."""
# The share of runs that are interrupted at a step, and the share of repeats.
ENDED_SHARE = 0.4
NO_RETENTION = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}

Key = tuple[bytes, StreamId | None]
Value = PendingEntry | StreamId
Groups = Mapping[bytes, Group]


# ------------------------------------------------------------------- the account


@dataclass
class Account:
    """Hold the rows that the store must have.

    Attributes:
        state: the entry of a stream and an id; without an id the start of the stream's next page.
        present: the ids of each stream's entries, at the last reading of the source.
        now_ms: by stream, the instant of that reading.
        changes: by run since that reading, the values before the run.
        changed_by: by value, the last run that changed it.
    """

    state: dict[Key, Value] = field(default_factory=dict)
    present: dict[bytes, set[StreamId]] = field(default_factory=dict)
    now_ms: dict[bytes, int] = field(default_factory=dict)
    changes: dict[int, dict[Key, Value | None]] = field(default_factory=dict)
    changed_by: dict[Key, int] = field(default_factory=dict)

    def group(self, stream: bytes) -> Group:
        """Return the group of a stream, without its consumers."""
        entries = [
            value
            for key, value in self.state.items()
            if key[0] == stream and isinstance(value, PendingEntry)
        ]
        return Group(MIN_ID, tuple(sorted(entries, key=lambda entry: entry.id)), ())

    def cursors(self) -> dict[bytes, Value]:
        """Return where the next pages begin, by stream."""
        return {stream: value for (stream, id_), value in self.state.items() if id_ is None}

    def read(
        self, groups: Groups, present: dict[bytes, set[StreamId]], now_ms: dict[bytes, int]
    ) -> None:
        """Hold what a source has."""
        cursors = {key: value for key, value in self.state.items() if key[1] is None}
        entries = {(s, e.id): e for s, group in groups.items() for e in group.pending}
        self.state = {**cursors, **entries}
        self.present, self.now_ms = present, now_ms
        self.changes, self.changed_by = {}, {}

    def run(self, run_seq: int, after: Mapping[Key, Value | None]) -> None:
        """Hold what a run wrote; None means that it is gone."""
        self.changes[run_seq] = {key: self.state.get(key) for key in after}
        for key, value in after.items():
            self.changed_by[key] = run_seq
            self.state.pop(key, None)
            if value is not None:
                self.state[key] = value

    def undo(self, run_seq: int, undone: int) -> None:
        """Restore the values that a run changed and that no later run has changed."""
        before = self.changes.pop(undone)
        self.run(run_seq, {k: of for k, of in before.items() if self.changed_by[k] == undone})


# ------------------------------------------------------------------- the sources


class Source(Protocol):
    """Fill a store, and change meanwhile."""

    def live(self, draw: random.Random) -> None:
        """Let its consumers work, and some of them die."""
        ...

    def read(self, store: Store, run_id: str) -> Any:
        """Take a snapshot, or import."""
        ...

    def account(self) -> tuple[Groups, dict[bytes, set[StreamId]]]:
        """Return what it has."""
        ...


@dataclass
class Live:
    """A real server."""

    server: Server
    client: redis.Redis
    number: int = 0

    def live(self, draw: random.Random) -> None:
        for stream in STREAMS:
            if not self.client.exists(stream):
                self.client.xgroup_create(stream, GROUP, id="0", mkstream=True)
            for _ in range(draw.randrange(3, 12)):
                self.number += 1
                self.client.xadd(stream, {"n": self.number}, id=f"{self.number}-0")
            for name in draw.sample(CONSUMERS, 2):
                got = self.client.xreadgroup(GROUP, name, {stream: ">"}, count=draw.randrange(1, 6))
                ids = [entry for _, entries in got for entry, _ in entries]
                if not ids:
                    continue
                if draw.random() < 0.5:  # it works
                    self.client.xack(stream, GROUP, *ids)
                elif draw.random() < 0.5:  # it died an hour ago
                    dated = ("IDLE", HOUR_MS, "RETRYCOUNT", draw.randrange(1, 4))
                    self.client.execute_command("XCLAIM", stream, GROUP, name, 0, *ids, *dated)
            waiting = list(state(self.client, stream))
            if len(waiting) > 10:
                self.client.xack(stream, GROUP, *draw.sample(waiting, len(waiting) - 8))
                self.client.xdel(stream, draw.choice(waiting))

    def read(self, store: Store, run_id: str) -> Any:
        reading = ServerReading(self.server.url, **FAST)
        return snapshot(
            store, SnapshotRequest(reading.label, limits=ANYTHING), reading, run_id=run_id
        )

    def account(self) -> tuple[Groups, dict[bytes, set[StreamId]]]:
        groups, present = {}, {}
        for stream in STREAMS:
            entries = (
                PendingEntry(parse_id(id_), owner.encode(), at_ms, count)
                for id_, (owner, at_ms, count) in state(self.client, stream).items()
            )
            by_id = sorted(entries, key=lambda entry: entry.id)
            groups[stream] = Group(MIN_ID, tuple(by_id), ())
            present[stream] = {parse_id(id_.decode()) for id_, _ in self.client.xrange(stream)}
        return groups, present


@dataclass
class Imported:
    """Tables of a user."""

    folder: Path
    groups: dict[bytes, Group] = field(default_factory=dict)
    present: dict[bytes, set[StreamId]] = field(default_factory=dict)
    now_ms: int = 1_750_000_000_000
    number: int = 0

    def live(self, draw: random.Random) -> None:
        self.now_ms += 60_000
        for stream in STREAMS:
            old = self.groups[stream].pending if stream in self.groups else ()
            kept = [entry for entry in old if draw.random() < 0.7]
            for _ in range(draw.randrange(2, 7)):
                self.number += 1
                idle_ms = draw.choice([5, HOUR_MS])
                owner = draw.choice(CONSUMERS)
                count = draw.randrange(1, 4)
                at_ms = self.now_ms - idle_ms
                kept.append(PendingEntry(StreamId(self.number, 0), owner, at_ms, count))
            names = sorted({entry.consumer for entry in kept if entry.consumer is not None})
            seen = tuple(Consumer(name, self.now_ms, None) for name in names)
            self.groups[stream] = Group(StreamId(self.number, 0), tuple(kept), seen)
            ids = {entry.id for entry in kept}
            self.present[stream] = {id_ for id_ in ids if draw.random() < 0.9}
        self._write()

    def _write(self) -> None:
        keyspace = {
            stream: Stream(dict.fromkeys(self.present[stream], (b"f", b"v")), {W: group})
            for stream, group in self.groups.items()
        }
        for name, rows in given_files.of_keyspace(keyspace, self.now_ms).items():
            if name == "pending":
                write_deltalake(self.folder / name, rows, mode="overwrite")
            else:
                pq.write_table(rows, self.folder / name)

    def read(self, store: Store, run_id: str) -> Any:
        places = {path.name: str(path) for path in self.folder.iterdir()}
        maps = {name: given_files.MAPS[name] for name in places}
        request = ImportRequest(**places, maps=maps, limits=ANYTHING, entries_complete=True)
        return import_tables(store, request, run_id=run_id)

    def account(self) -> tuple[Groups, dict[bytes, set[StreamId]]]:
        return self.groups, self.present


# ------------------------------------------------------------------- the runs

Call = Callable[[Store], Any]
"""Does a command under its run id, and returns what has the number of its run."""
Booking = Callable[[int], None]
"""Enters a finished run into the account, by its number."""


@dataclass
class Soak:
    """A store, its source, and what it must hold."""

    where: Path
    source: Source
    draw: random.Random
    account: Account = field(default_factory=Account)
    number: int = 0

    def next_run(self) -> tuple[str, Call, Booking]:
        """Return a run: the name of its kind, what does it, and what enters it."""
        self.number += 1
        kinds = {
            "read": 3,
            "sweep": 3,
            "page": 4,
            "claim": 4,
            "ack": 3,
            "retire": 1,
            "maintain": 1,
            "undo": 4 if self.account.changes else 0,
            "reset": 1 if self.account.cursors() else 0,
        }
        (kind,) = (
            self.draw.choices([*kinds], [*kinds.values()]) if self.account.now_ms else ["read"]
        )
        call, book = getattr(self, f"_{kind}")(f"{self.number}")
        return kind, call, book

    def _read(self, run_id: str) -> tuple[Call, Booking]:
        self.source.live(self.draw)

        def book(_run_seq: int) -> None:
            rows = opened(self.where).relation("groups").collect()
            instants = {row["stream"].encode(): row["snapshot_ms"] for row in rows}
            self.account.read(*self.source.account(), instants)

        return lambda store: self.source.read(store, run_id), book

    def _sweep(self, run_id: str) -> tuple[Call, Booking]:
        words = AutoclaimRequest(self._name(), self.draw.choice([0, HOUR_MS // 2]))

        def book(run_seq: int) -> None:
            swept = [self._swept(stream, words)[0] for stream in STREAMS]
            self.account.run(run_seq, dict(chain.from_iterable(map(dict.items, swept))))

        return lambda store: xautoclaim(store, SweepRequest(words), run_id=run_id), book

    def _page(self, run_id: str) -> tuple[Call, Booking]:
        words = AutoclaimRequest(self._name(), self.draw.choice([0, HOUR_MS // 2]), count=2)
        request = SweepRequest(words, cursor=CURSOR, resume=True)

        def book(run_seq: int) -> None:
            after: dict[Key, Value | None] = {}
            for stream in STREAMS:
                start = self.account.cursors().get(stream, MIN_ID)
                assert isinstance(start, StreamId)
                swept, after[stream, None] = self._swept(stream, replace(words, start=start))
                after |= swept
            self.account.run(run_seq, after)

        return lambda store: xautoclaim(store, request, run_id=run_id), book

    def _swept(
        self, stream: bytes, words: AutoclaimRequest
    ) -> tuple[dict[Key, Value | None], StreamId]:
        now_ms, present = self.account.now_ms[stream], self.account.present[stream]
        after, reply = scan.xautoclaim(self.account.group(stream), words, now_ms, present)
        return _written(stream, after, (*reply.claimed, *reply.deleted)), reply.cursor

    def _claim(self, run_id: str) -> tuple[Call, Booking]:
        stream = self.draw.choice(STREAMS)
        min_idle_ms = self.draw.choice([0, HOUR_MS // 2])
        is_silent = self.draw.random() < 0.5
        words = ClaimRequest(self._name(), min_idle_ms, self._ids(stream), justid=is_silent)
        call = partial(xclaim, requests=[NamedClaim(stream, W, words)], run_id=run_id)
        return call, partial(self._book_claims, stream, [words])

    def _book_claims(self, stream: bytes, claims: list[ClaimRequest], run_seq: int) -> None:
        written: dict[Key, Value | None] = {}
        now_ms, present = self.account.now_ms[stream], self.account.present[stream]
        for words in claims:
            after, reply = scan.xclaim(self.account.group(stream), words, now_ms, present)
            written |= _written(stream, after, (*reply.claimed, *reply.deleted))
        self.account.run(run_seq, written)

    def _ack(self, run_id: str) -> tuple[Call, Booking]:
        stream = self.draw.choice(STREAMS)
        ids = self._ids(stream)

        def book(run_seq: int) -> None:
            self.account.run(run_seq, dict.fromkeys((stream, id_) for id_ in ids))

        call = partial(xack, requests=[NamedAck(stream, W, ids)], run_id=run_id)
        return partial(call, to_write_back=isinstance(self.source, Live)), book

    def _retire(self, run_id: str) -> tuple[Call, Booking]:
        stream = self.draw.choice(STREAMS)
        known = [of.name for of in read_groups(opened(self.where))[stream][W].consumers]
        if len(known) < 3:
            return self._sweep(run_id)
        leaving, *recipients = self.draw.sample(known, 3)
        owned = [e.id for e in self.account.group(stream).pending if e.consumer == leaving]
        turn = cycle(recipients)
        there = self.account.present[stream]
        claims = [
            ClaimRequest(next(turn) if id_ in there else recipients[0], 0, (id_,), justid=True)
            for id_ in owned
        ]
        call = partial(retire, retirement=Retirement(stream, W, leaving, tuple(recipients)))
        return partial(call, run_id=run_id), partial(self._book_claims, stream, claims)

    def _undo(self, run_id: str) -> tuple[Call, Booking]:
        undone = self.draw.choice([*self.account.changes])
        call = partial(undo, run_name=f"{undone}", run_id=run_id)
        return call, partial(self.account.undo, undone=undone)

    def _reset(self, run_id: str) -> tuple[Call, Booking]:
        to = self.draw.choice(self._ids(self.draw.choice(STREAMS)) or (MIN_ID,))

        def book(run_seq: int) -> None:
            self.account.run(run_seq, {(s, None): to for s in self.account.cursors()})

        return partial(reset_cursor, name=CURSOR, scope=Scope(), to=to, run_id=run_id), book

    def _maintain(self, run_id: str) -> tuple[Call, Booking]:
        keep_ms = self.draw.choice([None, 0])
        return partial(maintain, keep_history_ms=keep_ms, run_id=run_id), lambda _run_seq: None

    def _name(self) -> bytes:
        return self.draw.choice(CONSUMERS)

    def _ids(self, stream: bytes) -> tuple[StreamId, ...]:
        ids = [entry.id for entry in self.account.group(stream).pending]
        return tuple(sorted(self.draw.sample(ids, min(len(ids), 4))))

    def check(self, *, replay: bool) -> None:
        """Compare the store with the account, and on request with its journal."""
        store = opened(self.where)
        groups = read_groups(store)
        for stream in STREAMS:
            assert groups[stream][W].pending == self.account.group(stream).pending, stream
        cursors = store.relation("cursors").collect()
        starts = {of["stream"].encode(): StreamId(of["next_ms"], of["next_seq"]) for of in cursors}
        assert starts == self.account.cursors()
        problems = check(store, replay=replay)
        assert [of for of in problems if of.is_difference or of.refuses] == []


def _written(stream: bytes, after: Group, ids: Iterable[StreamId]) -> dict[Key, Value | None]:
    """Return the entries of some ids after a command; None if one is gone."""
    entries = {entry.id: entry for entry in after.pending}
    return {(stream, id_): entries.get(id_) for id_ in ids}


class EndedError(Exception):
    """The process ends here."""


def end_at(step: int) -> Callable[[str], None]:
    """Return a callback that raises at a step, and at each later one."""
    numbers = count(1)

    def begin(name: str) -> None:
        if next(numbers) >= step:
            raise EndedError(name)

    return begin


def complete(soak: Soak, call: Call) -> tuple[int, int]:
    """Do a run, which may be ended at steps.  Return its number, and how often it was ended."""
    ended = 0
    while soak.draw.random() < ENDED_SHARE:
        with pytest.MonkeyPatch.context() as patched, suppress(EndedError):
            watch_steps(end_at(soak.draw.randrange(1, 16)), patched.setattr)
            ended += 1
            call(opened(soak.where))
            ended -= 1
    run_seq = call(opened(soak.where)).run_seq
    assert run_seq is not None
    return run_seq, ended


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "runs"), RUNS.items())
def test_hundreds_of_runs_lose_nothing_and_do_nothing_twice(
    server: Server, client: redis.Redis, tmp_path: Path, kind: str, runs: int
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    source = Live(server, client) if kind == "live" else Imported(folder)
    soak = Soak(tmp_path / "store", source, random.Random(46))
    create(definitions(soak.where), buckets=2)
    for table in TABLES:
        local = opened(soak.where).logs.readable(table)
        change_table(soak.where / table, local, (), NO_RETENTION)
    figures, kinds = [], Counter[str]()
    took_s, ended = 0.0, 0
    for number in range(1, runs + 1):
        name, call, book = soak.next_run()
        began = time.process_time()
        run_seq, times = complete(soak, call)
        took_s += time.process_time() - began
        book(run_seq)
        kinds[name], ended = kinds[name] + 1, ended + times
        try:
            soak.check(replay=times > 0 or number % REPLAYED == 0)
        except AssertionError as error:
            raise AssertionError(f"run {run_seq} ({name} {number}), ended {times} times") from error
        if number % PART == 0:
            figures.append(_figures(soak.where, number, took_s / PART, ended))
            took_s = 0.0
    COUNTED.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, row)) for row in (COLUMNS, *figures)]
    (COUNTED / f"soak-{kind}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(dict(kinds), *lines, sep="\n")
    seconds, files = ([row[number] for row in figures] for number in (1, 3))
    assert seconds[-1] < 2 * seconds[0]
    assert max(files) < MOST_FILES


COLUMNS = ("runs", "seconds per run", "runs ended", "files of tables", "files on disk", "bytes")


def _figures(where: Path, runs: int, run_s: float, ended: int) -> tuple[float, ...]:
    store = opened(where)
    files = sum(len(store.writer.files(table)) for table in TABLES)
    on_disk = [path.stat().st_size for path in where.rglob("*") if path.is_file()]
    return runs, round(run_s, 2), ended, files, len(on_disk), sum(on_disk)
