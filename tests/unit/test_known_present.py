"""Whom an incremental sweep need not look for: a model of what is kept about a store, beside the
store itself, over thousands of random histories.

The model keeps what the tables keep: of each pending row the number of the run that wrote it, and a
list of deleted entries with the version that deleted them.  Nothing of it knows which entries are
there; that the store says, after each step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from claimlib.semantics import rules

HISTORIES = 3_000
STEPS = 30
IDS = range(6)


@dataclass
class Model:
    """One group.  Where `base_seq` is null there is no base."""

    random: Random
    entries: set[int] = field(default_factory=set)
    pending: dict[int, int] = field(default_factory=dict)
    deletions: list[tuple[int, int]] = field(default_factory=list)
    version: int = 0
    run_seq: int = 0
    base_seq: int | None = None
    base_version: int = 0
    known: int = 0
    looked_for: int = 0

    def step(self) -> None:
        steps = (self.add, self.delete, self.ack, self.write, self.sweep, self.sweep, self.lose)
        self.random.choice(steps)()
        self.check()

    def add(self) -> None:
        self.entries.add(self.random.choice(IDS))
        self.version += 1

    def delete(self) -> None:
        gone = self.random.choice(IDS)
        self.version += 1
        if gone in self.entries:
            self.entries.remove(gone)
            self.deletions.append((self.version, gone))

    def ack(self) -> None:
        self.run_seq += 1
        self.pending.pop(self.random.choice(IDS), None)

    def write(self) -> None:
        """A snapshot, a claim or an XCLAIM with FORCE: rows that bear the run's number, of entries
        that are there or not."""
        self.run_seq += 1
        for entry_id in self.random.sample(IDS, 2):
            self.pending[entry_id] = self.run_seq

    def lose(self) -> None:
        """Somebody writes rows that bear whatever number: then there is no base any more."""
        if self.random.random() < 0.2:
            self.pending[self.random.choice(IDS)] = self.random.randrange(self.run_seq + 1)
            self.base_seq = None

    def sweep(self) -> None:
        """Deletes what it looks for and does not find; it may claim what it knows."""
        self.run_seq += 1
        for entry_id in sorted(self.pending):
            present = self.is_known(entry_id)
            self.known += present
            if not present:
                self.looked_for += 1
                present = entry_id in self.entries
            if not present:
                del self.pending[entry_id]
            elif self.random.random() < 0.3:
                self.pending[entry_id] = self.run_seq
        self.base_seq, self.base_version = self.run_seq, self.version

    def is_known(self, entry_id: int) -> bool:
        if self.base_seq is None:
            return False
        changed = {gone for version, gone in self.deletions if version > self.base_version}
        return bool(
            rules.is_known_present(
                is_new=self.pending[entry_id] > self.base_seq, is_changed=entry_id in changed
            )
        )

    def check(self) -> None:
        known = {entry_id for entry_id in self.pending if self.is_known(entry_id)}
        assert known <= self.entries, "an entry that is gone would stay in the PEL"


def test_whatever_a_base_tells_to_be_there_is_there_in_thousands_of_histories() -> None:
    known, looked_for = 0, 0
    for seed in range(HISTORIES):
        model = Model(Random(seed))
        for _ in range(STEPS):
            model.step()
        known += model.known
        looked_for += model.looked_for
    # Both are common, so that neither is passed by.
    assert known > HISTORIES
    assert looked_for > HISTORIES
