"""Files of ids that cannot be read, and pipes, which can; no Spark is needed to tell."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from claimlib.commands import id_lists
from claimlib.commands.id_lists import ids_from
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.errors import InputError

STORE = SimpleNamespace(engine=EmbeddedEngine())


def test_what_is_in_a_file_in_place_of_its_name_is_refused():
    ids = "\n".join(f"{n}-0" for n in range(1000))
    with pytest.raises(InputError, match=r"^the file of ids 0-0") as raised:
        ids_from(STORE, ids)
    assert raised.value.exit_code == 4
    assert "(File name too long): give the path of a file" in raised.value.message
    assert len(raised.value.message) < 300


def test_a_file_whose_storage_fails_is_named():
    with pytest.raises(InputError, match=r"^the file of ids /proc/self/mem cannot be read \(Input"):
        ids_from(STORE, "/proc/self/mem")


def test_a_file_that_may_not_be_read_is_named(monkeypatch, tmp_path):
    def refused(_path, _mode):
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "ids"
    file.write_text("1-0\n", encoding="utf-8")
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(InputError, match=rf"^the file of ids {file} .* \(Permission denied\)"):
        ids_from(STORE, str(file))


def test_ids_may_come_through_a_pipe():
    there, here = os.pipe()
    os.write(here, b"1-0\n2\n")
    os.close(here)
    with os.fdopen(there):
        rows = ids_from(STORE, f"/dev/fd/{there}")
    assert rows.collect() == [{"request": 1, "ids": ["1-0", "2-0"]}]


def test_a_long_list_is_several_requests_and_an_empty_one_names_no_id(monkeypatch, tmp_path):
    monkeypatch.setattr(id_lists, "_IDS_PER_REQUEST", 2)
    file = tmp_path / "ids"
    file.write_text("5-1\n\n4-0\n5-1\n", encoding="utf-8")
    assert ids_from(STORE, str(file)).collect() == [
        {"request": 1, "ids": ["5-1", "4-0"]},
        {"request": 2, "ids": ["5-1"]},
    ]
    file.write_text("\n", encoding="utf-8")
    assert ids_from(STORE, str(file)).collect() == [{"request": 1, "ids": []}]
