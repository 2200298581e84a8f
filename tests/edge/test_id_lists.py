"""Files of ids that cannot be read, and pipes, which can; no Spark is needed to tell."""

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from claimlib.commands import id_lists
from claimlib.commands.id_lists import read_ids
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.errors import InputError
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace

NOW_MS = 1_750_000_000_000
STORE = SimpleNamespace(engine=EmbeddedEngine())


def test_what_is_in_a_file_in_place_of_its_name_is_refused():
    ids = "\n".join(f"{n}-0" for n in range(1000))
    with pytest.raises(InputError, match=r"^the file of ids 0-0") as raised:
        read_ids(ids).requests(STORE)
    assert raised.value.exit_code == 4
    assert "(File name too long): give the path of a file" in raised.value.message
    assert len(raised.value.message) < 300


def test_a_file_whose_storage_fails_is_named():
    with pytest.raises(InputError, match=r"^the file of ids /proc/self/mem cannot be read \(Input"):
        read_ids("/proc/self/mem").requests(STORE)


def test_a_file_that_may_not_be_read_is_named(monkeypatch, tmp_path):
    def refused(_path, _mode):
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "ids"
    file.write_text("1-0\n", encoding="utf-8")
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(InputError, match=rf"^the file of ids {file} .* \(Permission denied\)"):
        read_ids(str(file)).requests(STORE)


def test_ids_may_come_through_a_pipe():
    there, here = os.pipe()
    os.write(here, b"1-0\n2\n")
    os.close(here)
    with os.fdopen(there):
        rows = read_ids(f"/dev/fd/{there}").requests(STORE)
    assert rows.collect() == [{"request": 1, "ids": ["1-0", "2-0"]}]


def test_a_long_list_is_several_requests_and_an_empty_one_names_no_id(monkeypatch, tmp_path):
    monkeypatch.setattr(id_lists, "_IDS_PER_REQUEST", 2)
    file = tmp_path / "ids"
    file.write_text("5-1\n\n4-0\n5-1\n", encoding="utf-8")
    assert read_ids(str(file)).requests(STORE).collect() == [
        {"request": 1, "ids": ["5-1", "4-0"]},
        {"request": 2, "ids": ["5-1"]},
    ]
    file.write_text("\n", encoding="utf-8")
    assert read_ids(str(file)).requests(STORE).collect() == [{"request": 1, "ids": []}]


@contextlib.contextmanager
def standard_input(text):
    """Let the process read a text from its standard input."""
    there, here = os.pipe()
    os.write(here, text)
    os.close(here)
    kept = os.dup(0)
    os.dup2(there, 0)
    os.close(there)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_the_claimed_ids_of_a_run_go_from_standard_output_to_standard_input(claimlib, store):
    owned = [PendingEntry(StreamId(n, 0), b"bob", NOW_MS - 90_000, 1) for n in (1, 2, 3)]
    entries = {entry.id: (b"f", b"v") for entry in owned}
    group = Group(StreamId(9, 0), tuple(owned), (Consumer(b"bob", NOW_MS, None),))
    write_keyspace(store, {b"s": Stream(entries, {b"g": group})}, NOW_MS)
    page = ("--consumer", "c", "--min-idle", "1m", "--count", "2", "--run-id", "r")
    assert claimlib("xautoclaim", store.where, *page).code == 0
    listed = ("runs", store.where, "xautoclaim:r", "--claimed")
    printed = claimlib(*listed, "--columns", "id", "--output", "csv")
    assert printed.out == "id\n1-0\n2-0\n"
    claim = ("xclaim", store.where, "s", "g", "bob", "--min-idle", "0ms", "--ids-from", "-")
    with standard_input(printed.out.encode()):
        back = claimlib(*claim, "--output", "csv", "--columns", "id,status,consumer")
    assert (back.code, back.out) == (0, "id,status,consumer\n1-0,claimed,bob\n2-0,claimed,bob\n")
    with standard_input(claimlib(*listed, "--output", "csv").out.encode()):
        refused = claimlib(*claim)
    assert refused.code == 4
    assert "standard input, line 1: 'stream,consumer_group," in refused.err
    assert "give only the column id (--columns id)" in refused.err


def test_only_the_first_line_may_be_a_header():
    with (
        standard_input(b"1-0\nid\n"),
        pytest.raises(InputError, match=r"^standard input, line 2: 'id' is not"),
    ):
        read_ids("-").requests(STORE)
