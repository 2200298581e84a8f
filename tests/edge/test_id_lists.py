"""Files of ids that cannot be read, and pipes, which can; no Spark is needed to tell."""

import os
from pathlib import Path

import pytest

from claimlib.commands import id_lists
from claimlib.commands.id_lists import ids_from
from claimlib.errors import InputError


@pytest.fixture
def rows(monkeypatch):
    """The requests that become a frame."""
    kept = []
    monkeypatch.setattr(id_lists, "frame_of", lambda _spark, rows, _columns: kept.extend(rows))
    return kept


def test_what_is_in_a_file_in_place_of_its_name_is_refused():
    ids = "\n".join(f"{n}-0" for n in range(1000))
    with pytest.raises(InputError, match=r"^the file of ids 0-0") as raised:
        ids_from(None, ids)
    assert raised.value.exit_code == 4
    assert "(File name too long): give the path of a file" in raised.value.message
    assert len(raised.value.message) < 300


def test_a_file_whose_storage_fails_is_named():
    with pytest.raises(InputError, match=r"^the file of ids /proc/self/mem cannot be read \(Input"):
        ids_from(None, "/proc/self/mem")


def test_a_file_that_may_not_be_read_is_named(monkeypatch, tmp_path):
    def refused(_path, _mode):
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "ids"
    file.write_text("1-0\n", encoding="utf-8")
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(InputError, match=rf"^the file of ids {file} .* \(Permission denied\)"):
        ids_from(None, str(file))


def test_ids_may_come_through_a_pipe(rows):
    there, here = os.pipe()
    os.write(here, b"1-0\n2\n")
    os.close(here)
    with os.fdopen(there):
        ids_from(None, f"/dev/fd/{there}")
    assert rows == [(1, ["1-0", "2-0"])]
