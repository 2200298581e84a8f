"""Folders that this user may not write to, as a user meets them."""

import os

import pytest

from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.errors import StorageError
from tests.edge.commands import COMMANDS, WRITING

PARTS = ("", "pending", "journal/_delta_log", "entries/bucket=3")


@pytest.fixture
def forbid(monkeypatch):
    """Root may write anywhere, so the system's answer is changed."""
    access = os.access

    def forbid(folder):
        monkeypatch.setattr(
            "os.access", lambda path, mode: os.fspath(path) != str(folder) and access(path, mode)
        )

    return forbid


@pytest.mark.parametrize("command", WRITING)
def test_a_command_that_writes_is_refused_at_once_and_names_the_folder(
    claimlib, store_path, forbid, command
):
    (store_path / "entries" / "bucket=3").mkdir()
    for part in PARTS if command == "xautoclaim" else PARTS[1:2]:
        forbid(store_path / part if part else store_path)
        refused = claimlib(command, *COMMANDS[command].on(store_path))
        assert (refused.code, refused.out) == (4, "")
        folder = str(store_path / part).rstrip("/")
        (line,) = refused.err.splitlines()
        assert f"no permission to write to {folder}: change its permissions" in line


def test_what_only_reads_goes_on_and_doctor_says_what_to_do(claimlib, store_path, forbid):
    forbid(store_path / "journal")
    assert claimlib("xpending", store_path).code == 0
    assert claimlib("xautoclaim", *COMMANDS["xautoclaim"].on(store_path), "--dry-run").code == 0
    said = claimlib("doctor", store_path)
    assert said.code == 4
    (line,) = (line for line in said.out.splitlines() if "permissions" in line)
    assert line.startswith("TO DO")
    assert str(store_path / "journal") in line
    forbid("nothing")
    assert f"this user may write to {store_path}" in claimlib("doctor", store_path).out


def test_a_run_is_refused_before_it_reads_a_server(store, forbid):
    forbid(os.path.join(store.where, "pel_snapshots"))  # noqa: PTH118 - as the library has it
    with pytest.raises(StorageError, match=r"no permission to write to .*pel_snapshots"):
        snapshot(store, SnapshotRequest("cache:6379/0"), lambda _: pytest.fail("it was read"))
