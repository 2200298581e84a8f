"""Names that are not ASCII, in the locales of cron jobs, containers and old terminals."""

import csv
import io
import shutil
import subprocess
import sys

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.edge.locales import eight_bit_locale
from tests.edge.processes import ROOT, run_claimlib

NOW_MS = 1_750_000_000_000
# Every character is in ISO 8859-1, too.
STREAM, OWNER, HEIR = "stréam", "ünna", "jürgen"


@pytest.fixture(scope="module")
def filled(empty_store, tmp_path_factory, open_store):
    """The folder of a store with two due entries."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("filled") / "store")
    entries = tuple(
        PendingEntry(StreamId(n, 0), OWNER.encode(), NOW_MS - 90_000, 1) for n in (1, 2)
    )
    group = Group(StreamId(9, 0), entries, (Consumer(OWNER.encode(), NOW_MS, None),))
    kept = {StreamId(n, 0): (b"f", b"v") for n in (1, 2)}
    stream = Stream(kept, {b"g": group})
    write_keyspace(open_store(where), {STREAM.encode(): stream}, NOW_MS)
    return where


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_folders_files_and_names_are_those_of_the_user_in_any_locale(filled, tmp_path, locale):
    home = tmp_path / "naïve"
    home.mkdir()
    where = shutil.copytree(filled, home / "café")
    ids, config, temporary = home / "ïds.txt", home / "cönf.toml", home / "tëmp"
    ids.write_text("1-0\n", encoding="utf-8")
    config.write_text('[spark.conf]\n"spark.app.name" = "über"\n', encoding="utf-8")
    temporary.mkdir()
    environment = {"LC_ALL": locale, "TMPDIR": str(temporary)}
    words = (where, STREAM, "g", HEIR, "--min-idle", "1m", "--ids-from", ids, "--config", config)
    claimed = run_claimlib("xclaim", *words, "--output", "csv", **environment)
    assert claimed.returncode == 0, claimed.stderr
    (row,) = csv.DictReader(io.StringIO(claimed.stdout))
    assert (row["id"], row["from_consumer"], row["consumer"]) == ("1-0", OWNER, HEIR)
    listed = run_claimlib("runs", where, **environment)
    assert (listed.returncode, "xclaim:" in listed.stdout) == (0, True)
    assert sorted(path.name for path in home.iterdir()) == sorted(
        ["café", "ïds.txt", "cönf.toml", "tëmp"]
    ), "nothing was made under another spelling"
    assert not list(temporary.iterdir())


@pytest.mark.long
def test_in_an_8_bit_locale_names_are_those_of_its_encoding(filled, tmp_path):
    environment = eight_bit_locale(tmp_path)
    home = bytes(tmp_path) + b"/na\xefve"
    where = home + b"/caf\xe9"
    subprocess.run(["mkdir", home], check=True)
    subprocess.run(["cp", "-r", filled, where], check=True)

    def claimlib(*words):
        start = "import sys; sys.argv[0] = 'claimlib'; from claimlib.cli import main; main()"
        command = [sys.executable, "-c", start, *words]
        return subprocess.run(
            command, cwd=ROOT, env={**_plain(), **environment}, capture_output=True, check=False
        )

    names = [name.encode("iso-8859-1") for name in (STREAM, "g", HEIR)]
    said = claimlib(b"xclaim", where, *names, b"1-0", b"--min-idle", b"1m", b"--output", b"csv")
    assert said.returncode == 0, said.stderr
    assert HEIR.encode("iso-8859-1") in said.stdout
    assert b"xclaim:" in claimlib(b"runs", where).stdout
    made = subprocess.run(["ls", home], capture_output=True, check=True).stdout
    assert made == b"caf\xe9\n"


def _plain():
    import os

    dropped = ("CLAIMLIB_", "LC_", "LANG", "PYTHONUTF8", "PYTHONIOENCODING")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def test_a_java_that_takes_file_names_for_another_encoding_is_refused_with_what_to_set(
    claimlib, filled, tmp_path, monkeypatch
):
    where = shutil.copytree(filled, tmp_path / "café")
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "koi8-r")
    for words in (("xpending", where), ("init", tmp_path / "naïve")):
        refused = claimlib(*words, "--engine", "spark")
        assert (refused.code, refused.out) == (2, "")
        assert "Java encodes file names as UTF-8, Python as koi8-r" in refused.err
        assert "LC_ALL=C.UTF-8" in refused.err
    assert claimlib("xpending", filled).code == 0, "ASCII is the same for both"
