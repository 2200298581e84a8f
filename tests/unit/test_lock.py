"""Tests of the lock of a store's folder, with processes that only hold it."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from claimlib.errors import StorageError, StoreBusyError
from claimlib.store.lock import FILE, Holder, WriteLock
from tests.lock_holder import holding, release, told

RUN = "xautoclaim:it's\n1"
PATIENCE_S = 60


@pytest.fixture
def lock(tmp_path):
    """Return the lock of a folder that no process holds."""
    return WriteLock(tmp_path, wait_ms=0)


@pytest.fixture
def holder(tmp_path):
    """Return another process that holds the lock."""
    with holding(tmp_path, RUN) as process:
        assert told(process) == "held"
        yield process


def no_waiting(text):
    pytest.fail(f"it waited: {text}")


def is_free(lock):
    with lock.held_for("probe", no_waiting):
        return True


def test_a_process_that_may_not_wait_is_told_which_run_holds_the_lock(lock, holder):
    with pytest.raises(StoreBusyError) as refused, lock.held_for("mine", no_waiting):
        pytest.fail("two processes hold the lock")
    error = refused.value
    assert (error.run, error.process, error.host) == (RUN, holder.pid, socket.gethostname())
    assert (error.where, error.exit_code) == (str(lock.folder), 5)
    assert f"locked by {RUN} (process {holder.pid} on {error.host}, since 20" in error.message
    assert "after 0ms. Nothing was done." in error.message
    release(holder)
    assert is_free(lock)


@pytest.mark.parametrize("end", [release, lambda process: process.send_signal(signal.SIGKILL)])
def test_the_lock_is_waited_for_until_its_process_releases_it_or_is_killed(lock, holder, end):
    said = []

    def tell(text):
        said.append(text)
        end(holder)

    lock.wait_ms = None
    with lock.held_for("mine", tell):
        assert Holder.read(lock.folder / FILE).run == "mine"
    assert [text.partition(" (")[0] for text in said] == [f"waiting for {RUN}"]
    assert Holder.read(lock.folder / FILE) is None


def test_a_waiting_process_is_told_each_process_that_it_waits_for(lock, holder, tmp_path):
    said = []

    def tell(text):
        said.append(text)
        if len(said) == 1:
            # As if a third process had taken the lock first.
            other = Holder("xack:2", 7, "elsewhere", 0)
            (tmp_path / FILE).write_text(json.dumps(asdict(other)), encoding="utf-8")
        else:
            release(holder)

    lock.wait_ms = None
    with lock.held_for("mine", tell):
        pass
    assert said[0].startswith(f"waiting for {RUN} (")
    assert said[1:] == [
        "waiting for xack:2 (process 7 on elsewhere, since 1970-01-01T00:00:00.000Z)"
    ]


def test_waiting_ends_after_its_time(lock, holder):
    said = []
    lock.wait_ms = 30
    with pytest.raises(StoreBusyError, match="still writes to it after 30ms"):
        lock.held_for("mine", said.append).__enter__()
    assert len(said) == 1
    assert holder.poll() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"run": 1}', '{"run":"r","process":"x"}', "[" * 99]
)
def test_a_process_that_does_not_name_itself_is_another_process(lock, holder, tmp_path, text):
    """For example `flock` of the shell."""
    del holder
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(StoreBusyError, match="locked by another process, which") as refused:
        is_free(lock)
    assert (refused.value.run, refused.value.since_ms) == (None, None)


def test_a_process_that_was_started_by_a_killed_holder_does_not_keep_the_lock(lock, tmp_path):
    """For example Spark's JVM, which ends a moment after its holder."""
    sleeper = (sys.executable, "-c", f"import time; time.sleep({PATIENCE_S})")
    with holding(tmp_path, RUN, *sleeper) as process:
        child = int(told(process))
        process.kill()
        process.wait(PATIENCE_S)
        assert is_free(lock)
        os.kill(child, signal.SIGKILL)


def test_threads_of_one_process_share_the_lock_by_any_path(lock, tmp_path):
    link = tmp_path.with_name(f"{tmp_path.name}-link")
    link.symlink_to(tmp_path)
    other = WriteLock(link, wait_ms=0)
    with ThreadPoolExecutor(1) as thread, lock.held_for("first", no_waiting):
        second = other.held_for("second", no_waiting)
        thread.submit(second.__enter__).result(PATIENCE_S)
        assert Holder.read(tmp_path / FILE).run == "first"
    assert Holder.read(tmp_path / FILE).run == "second"
    assert not taken_elsewhere(tmp_path), "the other thread still has it"
    second.__exit__(None, None, None)
    assert taken_elsewhere(tmp_path)


def taken_elsewhere(folder):
    """Return True if another process, here a pipeline, gets the lock at once."""
    program = (
        "import fcntl, sys\n"
        "try: fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: sys.exit(3)"
    )
    ended = subprocess.run([sys.executable, "-c", program, folder / FILE], check=False)
    return {0: True, 3: False}[ended.returncode]


def test_the_lock_is_released_if_the_run_fails(lock, tmp_path):
    with pytest.raises(InterruptedError), lock.held_for("mine", no_waiting):
        raise InterruptedError
    assert taken_elsewhere(tmp_path)


def test_a_forked_process_neither_has_the_lock_nor_keeps_it(lock, tmp_path):
    lock_of_child = WriteLock(tmp_path, wait_ms=0)
    with lock.held_for("mine", no_waiting):
        child = os.fork()
        if child == 0:
            try:
                is_free(lock_of_child)
            except StoreBusyError:
                os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        _, status = os.waitpid(child, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "the child took the lock of its parent"
    assert taken_elsewhere(tmp_path), "the child, which goes on, keeps it"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("call", [(fcntl, "flock"), (os, "open")])
def test_a_run_continues_and_says_so_if_the_file_system_has_no_locks(lock, monkeypatch, call):
    said = []

    def refused(*_arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(*call, refused)
    before = number_of_open_files()
    with lock.held_for("mine", said.append):
        assert said == ["the store cannot be locked (No locks available): start no other command"]
    assert number_of_open_files() == before


def number_of_open_files():
    return len(list(Path("/dev/fd").iterdir()))


def test_a_file_that_may_not_be_opened_is_refused(lock, monkeypatch):
    def refused(*_arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(
        StorageError, match=r"no permission to write to the lock file .*/\.claimlib\.lock: "
    ):
        is_free(lock)


@pytest.mark.parametrize("call", [(fcntl, "flock"), (os, "open")])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENOSPC])
def test_without_a_lock_nothing_is_written_if_the_fault_may_pass(lock, monkeypatch, call, number):
    def refused(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*call, refused)
    with pytest.raises(StorageError, match=rf"cannot be locked \({os.strerror(number)}\)"):
        is_free(lock)


def test_a_store_elsewhere_has_no_lock():
    with WriteLock(None, wait_ms=0).held_for("mine", no_waiting):
        assert is_free(WriteLock(None, wait_ms=0))
