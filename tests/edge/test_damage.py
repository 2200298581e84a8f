"""A damaged store in a local folder: a command names table, version and file, changes nothing, and
succeeds once the file is there again.  No JVM is needed."""

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from claimlib.commands.sweep_request import SweepRequest
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.runs.journal import find_decided
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store import lock
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, keyspace
from tests.delta.steps import opened

SWEEP = ("--consumer", "carl", "--min-idle", "1s", "--run-id", "r", "--quiet")


def newest_commit(table):
    return max(table.glob("_delta_log/*.json"))


def first_commit(table):
    return min(table.glob("_delta_log/*.json"))


def checkpoint(table):
    return max(table.glob("_delta_log/*.checkpoint.parquet"))


def newest_data(table):
    return max(
        (path for path in table.rglob("part-*.parquet")), key=lambda path: path.stat().st_mtime_ns
    )


def halve(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file):
    file.write_bytes(b"")


DAMAGES = {
    "half a commit": ("pending", newest_commit, halve, "is damaged"),
    "half a commit of the journal": ("journal", newest_commit, halve, "is damaged"),
    "an empty commit": ("pending", newest_commit, empty, "is empty"),
    "an empty commit of the journal": ("journal", newest_commit, empty, "is empty"),
    "no first commit": ("entries", first_commit, Path.unlink, "is missing"),
    "half a checkpoint": ("consumers", checkpoint, halve, "is damaged"),
    "no checkpoint": ("consumers", checkpoint, Path.unlink, "_last_checkpoint names is missing"),
    "half a data file": ("runs", newest_data, halve, "is damaged"),
    "an empty data file": ("groups", newest_data, empty, "is damaged"),
    **{
        f"no data file of {table}": (table, newest_data, Path.unlink, "is missing")
        for table in ("pending", "entries", "groups", "runs", "streams")
    },
}


@pytest.fixture(scope="module")
def lived(empty_store, tmp_path_factory):
    """The folder of a store with a run, and a checkpoint of `consumers`."""
    folder = shutil.copytree(empty_store, tmp_path_factory.mktemp("lived") / "store")
    store = opened(folder)
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(AutoclaimRequest(b"alice", 0, count=3), cursor="page"))
    DeltaTable(str(folder / "consumers")).create_checkpoint()
    return folder


@pytest.fixture
def damaged(lived, tmp_path, monkeypatch):
    """A copy of that store, where no JVM may start."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    return shutil.copytree(lived, tmp_path / "store")


def files_of(folder):
    """Return size and time of each file, without the file of the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != lock.FILE)
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_named_and_the_command_succeeds_once_it_is_restored(
    claimlib, damaged, name
):
    table, choose, damage, cause = DAMAGES[name]
    file = choose(damaged / table)
    log = {path: path.stat().st_size for path in (damaged / table).glob("_delta_log/*.json")}
    whole = file.read_bytes()
    damage(file)
    before = files_of(damaged)
    said = claimlib("xautoclaim", damaged, *SWEEP)
    (line,) = said.err.splitlines()
    assert (said.code, said.out) == (4, "")
    version = 0 if choose is first_commit else len(log) - 1
    assert f"version {version} of the table {table} cannot be read, because " in line
    assert cause in line
    assert str(file) in line or "_last_checkpoint" in line
    assert files_of(damaged) == before
    file.write_bytes(whole)
    assert claimlib("xautoclaim", damaged, *SWEEP).code == 0
    rows = opened(damaged).relation("pending").collect()
    assert {row["consumer"] for row in rows if row["id_ms"] % 2 and row["id_ms"] > 3} == {"carl"}


def test_a_run_whose_decision_cannot_be_read_back_is_finished_once_the_file_is_restored(
    claimlib, damaged, tmp_path, monkeypatch
):
    lost = []

    def find_without_a_file(store, run_seq):
        lost.append(newest_data(damaged / "journal"))
        lost[0].rename(tmp_path / "lost")
        return find_decided(store, run_seq)

    with monkeypatch.context() as patch:
        patch.setattr("claimlib.runs.protocol.find_decided", find_without_a_file)
        said = claimlib("xautoclaim", damaged, *SWEEP)
    assert said.code == 4
    (file,) = lost
    assert f"version 2 of the table journal cannot be read, because {file} is missing" in said.err
    (tmp_path / "lost").rename(file)
    assert claimlib("xautoclaim", damaged, *SWEEP).code == 0
    assert opened(damaged).relation("runs").count() == 2


def test_a_run_does_not_need_the_journal_files_of_other_runs(claimlib, damaged):
    newest_data(damaged / "journal").unlink()
    assert claimlib("xautoclaim", damaged, *SWEEP).code == 0


def test_a_damaged_checkpoint_is_deleted_as_the_message_says(claimlib, damaged):
    file = checkpoint(damaged / "consumers")
    halve(file)
    said = claimlib("describe", damaged)
    assert said.err.rstrip().endswith(f"delete it and {file.with_name('_last_checkpoint')}")
    file.unlink()
    file.with_name("_last_checkpoint").unlink()
    assert claimlib("describe", damaged).code == 0


def test_a_log_whose_note_of_the_last_checkpoint_is_damaged_is_read(claimlib, damaged):
    halve(damaged / "consumers" / "_delta_log" / "_last_checkpoint")
    assert claimlib("xautoclaim", damaged, *SWEEP).code == 0


def test_a_checkpoint_whose_earlier_commits_are_gone_must_be_restored(claimlib, damaged):
    first_commit(damaged / "consumers").unlink()
    assert claimlib("describe", damaged).code == 0
    halve(checkpoint(damaged / "consumers"))
    assert "is damaged: restore it from a backup" in claimlib("describe", damaged).err
