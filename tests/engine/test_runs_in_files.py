"""The rows of some runs are read from the files that may have them, and from no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs.journal import decided_by
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.local import version_at_checkpoint
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, keyspace

SWEPT = 4


@pytest.fixture
def swept(folder_store: Store) -> Store:
    """A store in which several runs have claimed the same entries again."""
    write_keyspace(folder_store, keyspace(b"s", b"t"), NOW_MS)
    for number in range(SWEPT):
        request = AutoclaimRequest(b"c%d" % number, 1)
        xautoclaim(folder_store, SweepRequest(request), now_ms=NOW_MS * (number + 2))
    return folder_store


def rows(store: Store, first: int, last: int | None) -> list[str]:
    journal = store.relation("journal").of_runs(first, last)
    return sorted(repr(sorted(row.items(), key=str)) for row in journal.collect())


@pytest.mark.parametrize(("first", "last"), [(1, 1), (2, 3), (3, None), (0, 0), (9, None)])
def test_the_rows_of_runs_are_those_of_a_condition(swept, first, last):
    most = 2**62 if last is None else last
    of_condition = swept.relation("journal").where(f"run_seq BETWEEN {first} AND {most}").collect()
    of_runs = rows(swept, first, last)
    assert of_runs == sorted(repr(sorted(row.items(), key=str)) for row in of_condition)
    assert (of_runs == []) == (first in {0, 9})


def test_files_of_other_runs_are_not_read(swept):
    before = rows(swept, 2, 3)
    decided = decided_by(swept, 2).counts
    journal = Path(swept.where, "journal")
    actions = DeltaTable(journal).get_add_actions(flatten=True)
    ends = (actions.column(name).to_pylist() for name in ("path", "min.run_seq", "max.run_seq"))
    others = [path for path, low, high in zip(*ends, strict=True) if high < 2 or low > 3]
    assert len(others) > 1
    for path in others:
        (journal / path).unlink()
    assert rows(swept, 2, 3) == before
    assert decided_by(swept, 2).counts == decided


def test_a_checkpoint_is_written_after_ten_versions(folder_store):
    write_keyspace(folder_store, keyspace(b"s"), NOW_MS)
    journal = Path(folder_store.where, "journal")
    newest = []
    for number in range(12):
        request = SweepRequest(AutoclaimRequest(b"c%d" % number, 1))
        xautoclaim(folder_store, request, now_ms=NOW_MS * (number + 2))
        newest.append(folder_store.version("journal") - version_at_checkpoint(journal))
    assert max(newest) == 9
    assert min(newest[1:]) == 0
    commits = sorted((journal / "_delta_log").glob("*.json"))
    assert len(commits) == folder_store.version("journal") + 1
