"""Looking at a store: what a user may type, and what is said if it is wrong."""

import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from claimlib.commands.snapshot import snapshot
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.report.counts import MEANINGS
from claimlib.runs import Phase
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.folder_writer import FolderWriter
from claimlib.testing.keyspace_rows import write_keyspace
from claimlib.testing.server_process import valkey_server
from tests.delta.snapshots import ALL, source, stream
from tests.live.readings import stream_with_group

NOW_MS = 1_750_000_000_000
SWEEP = ("--consumer", "c", "--min-idle", "1m")


@pytest.fixture(scope="module")
def filled(empty_store, open_store, tmp_path_factory):
    """A group with three entries: two have been idle for 90 s, one for 5 ms."""
    idle = {1: 90_000, 2: 90_000, 3: 5}
    pending = tuple(PendingEntry(StreamId(n, 0), b"bob", NOW_MS - ms, n) for n, ms in idle.items())
    group = Group(StreamId(9, 0), pending, (Consumer(b"bob", NOW_MS, None),))
    entries = {StreamId(n, 0): (b"f", b"v") for n in idle}
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("filled") / "store")
    write_keyspace(open_store(where), {b"orders": Stream(entries, {b"g": group})}, NOW_MS)
    return where


@pytest.fixture
def where(filled, tmp_path):
    """The folder of a copy of that store."""
    return str(shutil.copytree(filled, tmp_path / "filled"))


@pytest.fixture(scope="module")
def swept_once(filled, open_store, tmp_path_factory):
    """The store after runs 1, xautoclaim:nightly-1, and 2 and 3, of two commands with one id."""
    where = shutil.copytree(filled, tmp_path_factory.mktemp("swept") / "store")
    store = open_store(where)
    key, claim = (b"orders", b"g"), AutoclaimRequest(b"c", 60_000)
    xautoclaim(store, SweepRequest(replace(claim, count=1)), run_id="nightly-1")
    xautoclaim(store, SweepRequest(claim), run_id="2026-11-28-late")
    ids = (StreamId(3, 0),)
    xclaim(store, [NamedClaim(*key, ClaimRequest(b"d", 0, ids))], run_id="undo")
    xack(store, [NamedAck(*key, ids)], run_id="undo")
    return where


@pytest.fixture
def swept(swept_once, tmp_path):
    """The folder of a copy of that store."""
    return str(shutil.copytree(swept_once, tmp_path / "swept"))


# ---- the counts of a run ----


@pytest.fixture
def by_server(claimlib, store):
    """Fill a store by a snapshot, a sweep, an xclaim, a retirement and a cursor reset."""
    with valkey_server() as server, server.client() as client:
        stream_with_group(client, n=5)
        assert claimlib("snapshot", server.url, store.where).code == 0
        name = f"{server.host}:{server.port}/0"
    sweep = ("xautoclaim", store.where, "--consumer", "c", "--min-idle", "0ms")
    ids = ("s", "g", "d", "1-0", "2-0", "--min-idle", "0ms", "--force")
    assert claimlib(*sweep, "--cursor", "nightly").code == 0
    assert claimlib("xclaim", store.where, *ids).code == 0
    assert claimlib("retire", store.where, "s", "g", "c", "--to", "d").code == 0
    assert claimlib("reset-cursor", store.where, "nightly").code == 0
    return store.where, name


def test_each_count_of_a_run_is_explained(claimlib, by_server):
    where, _ = by_server
    listed = json.loads(claimlib("runs", where, "--output", "json").out)["runs"]
    assert len(listed) == 5
    for run in listed:
        assert run["counts"].keys() <= MEANINGS.keys(), run["command"]
    shown = claimlib("runs", where, listed[-1]["run_seq"]).out
    assert re.search(r"^pending read +\d+ +pending entries read$", shown, re.MULTILINE)
    header, *_ = claimlib("runs", where, 1, "--output", "csv").out.splitlines()
    assert header == "what,value,meaning"


def test_other_buckets_of_a_filled_store_are_refused_with_its_source(
    claimlib, by_server, monkeypatch
):
    where, source = by_server
    folder = Path(where)
    monkeypatch.chdir(folder.parent)
    said = claimlib("init", folder.name, "--buckets", 4)
    assert said.code == 4
    wanted = f"{where} is already a store, with 8 buckets, filled from {source}: leave out"
    assert wanted in said.err


def test_a_config_file_that_is_not_there_is_named_with_its_whole_path(
    claimlib, where, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    said = claimlib("check", where, "--config", "absent.toml")
    assert said.err == f"claimlib: error: the config file {tmp_path}/absent.toml does not exist\n"


# ---- names of runs ----


@pytest.mark.parametrize("name", ["1", "xautoclaim:nightly-1", "nightly-1"])
def test_a_run_is_named_by_its_number_its_key_or_its_run_id_alone(claimlib, swept, name):
    shown = claimlib("runs", swept, name, "--output", "json")
    assert (shown.code, json.loads(shown.out)["run_seq"]) == (0, 1)
    as_of = claimlib("xpending", swept, "orders", "g", "--as-of", name, "--output", "json")
    assert as_of.code == 0, as_of.err
    assert json.loads(as_of.out)["consumers"] == {"bob": 2, "c": 1}


def test_a_run_id_may_begin_with_a_date(claimlib, swept):
    words = ("xpending", swept, "orders", "g", "--as-of")
    assert "c " in claimlib(*words, "2026-11-28-late").out
    refused = claimlib(*words, "2026-11-28-early")
    assert (refused.code, refused.out) == (2, "")
    assert "2026-11-28-early" in refused.err


@pytest.mark.parametrize("words", [("runs", "undo"), ("xpending", "--as-of", "undo")])
def test_a_run_id_of_several_runs_is_refused_and_they_are_listed(claimlib, swept, words):
    command, *rest = words
    said = claimlib(command, swept, *rest, "--quiet")
    assert (said.code, said.out) == (2, "")
    (error,) = said.err.splitlines()
    assert error == (
        "claimlib: error: undo is the run id of 2 runs: xclaim:undo (run 3), xack:undo (run 4)."
        " Name one of them by its number or by command:run_id"
    )


def test_a_typing_error_in_the_name_of_a_run_shows_similar_names(claimlib, swept):
    for name in ("nigthly-1", "xautoclaim:nightly-2"):
        said = claimlib("runs", swept, name, "--quiet")
        assert (said.code, said.out) == (2, "")
        assert f"no finished run {name} (did you mean xautoclaim:nightly-1?)" in said.err


# ---- a run id that was used before ----


def test_a_run_id_of_another_request_shows_only_what_is_different(claimlib, swept):
    words = ("xautoclaim", swept, "--consumer", "c", "--run-id", "2026-11-28-late", "--quiet")
    said = claimlib(*words, "--min-idle", "15m", "--count", "7")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "claimlib: error: the run id of xautoclaim:2026-11-28-late was already used for a different"
        " request: min idle was 1m and is now 15m, count was not given and is now 7. Use another"
        " run id\n"
    )


def test_other_ids_under_a_used_run_id_are_said_to_be_different(claimlib, swept):
    words = ("xclaim", swept, "orders", "g", "d", "--min-idle", "0ms", "--run-id", "undo")
    said = claimlib(*words, "2-0", "--quiet")
    assert said.code == 2
    assert "different request: ids or values of the single requests are different. Use" in said.err
    assert claimlib(*words, "3-0", "--quiet").code == 0


# ---- an unfinished run ----


def _cut_off(run, at):
    """Begin a run, and kill it at a phase."""

    def stop(phase, detail):
        if phase is at:
            raise InterruptedError(detail)

    with pytest.raises(InterruptedError):
        run(stop)


LOOKING = (("xpending",), ("xpending", "orders", "g"), ("describe",))
# Behind the decision, and behind the change of the first table.
CUT = pytest.mark.parametrize("at", [Phase.APPLY, Phase.VERIFY])


def _looked_at(claimlib, where, *words):
    command, *rest = words
    said = claimlib(command, where, *rest, "--now", NOW_MS, "--output", "json")
    assert said.code == 0, said.err
    return json.loads(said.out)


@CUT
def test_an_unfinished_sweep_does_not_keep_users_from_looking(claimlib, open_store, where, at):
    sweep = SweepRequest(AutoclaimRequest(b"c", 60_000))
    before = [_looked_at(claimlib, where, *words) for words in LOOKING]
    store = open_store(where)
    _cut_off(lambda stop: xautoclaim(store, sweep, run_id="cut", progress=stop), at)
    for words, document in zip(LOOKING, before, strict=True):
        assert document["unfinished"] == []
        assert _looked_at(claimlib, where, *words) == document | {"unfinished": ["xautoclaim:cut"]}
        command, *rest = words
        assert claimlib(command, where, *rest).out.splitlines()[-1] == (
            "run 1 (xautoclaim:cut) is unfinished: this is the store before it. The next run"
            " finishes it; then --as-of 1 shows the store after it"
        )
    refused = claimlib("xpending", where, "--as-of", "cut", "--quiet")
    assert refused.code == 2
    assert "no finished run cut (xautoclaim:cut is unfinished: the next run" in refused.err
    refused = claimlib("xautoclaim", where, *SWEEP, "--dry-run", "--quiet")
    assert (refused.code, refused.out) == (5, "")
    assert "Until then claimlib xpending shows the store before this run" in refused.err
    assert claimlib("xautoclaim", where, *SWEEP, "--run-id", "next").code == 0
    assert _looked_at(claimlib, where, "xpending", "orders", "g")["consumers"] == {"bob": 1, "c": 2}


@CUT
def test_an_unfinished_snapshot_shows_the_store_before_it(claimlib, store, at):
    first, second = (
        stream(b"s", dict.fromkeys(ids, b"x"), set(ids), NOW_MS) for ids in ((1, 2), (1, 2, 3))
    )
    snapshot(store, ALL, lambda _: source(first), run_id="first")
    before = [_looked_at(claimlib, store.where, "xpending", *words) for words in ((), ("s", "g"))]
    _cut_off(
        lambda stop: snapshot(store, ALL, lambda _: source(second), run_id="cut", progress=stop), at
    )
    for words, document in zip(((), ("s", "g")), before, strict=True):
        after = _looked_at(claimlib, store.where, "xpending", *words)
        assert after == document | {"unfinished": ["snapshot:cut"]}
    words = ("xpending", store.where, "--fail-on-stalled", "52w", "--now", NOW_MS)
    said = claimlib(*words)
    assert said.code == 3, "the alarm is about the store before the run"
    assert (
        "run 2 (snapshot:cut) is unfinished: this is the store before it. The next run finishes it;"
        " then --as-of 2 shows the store after it, and --as-of 1 the store before it"
    ) in said.out
    assert "is unfinished" in claimlib(*words, "--output", "csv").err


# ---- an interrupted run ----


SIGNALS = pytest.mark.parametrize(
    ("number", "code", "how"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)


def _interrupt(monkeypatch, number, *, is_written):
    """Send a signal before or after the decision is appended."""
    append = FolderWriter.append

    def interrupted(self, table, *arguments, **options):
        if table == "journal" and not is_written:
            signal.raise_signal(number)
        append(self, table, *arguments, **options)
        if table == "journal":
            signal.raise_signal(number)

    monkeypatch.setattr(FolderWriter, "append", interrupted)


@SIGNALS
def test_a_run_that_is_interrupted_before_its_decision_is_written_says_that_nothing_was_changed(
    claimlib, monkeypatch, where, number, code, how
):
    before = _looked_at(claimlib, where, "xpending")
    with monkeypatch.context() as patched:
        _interrupt(patched, number, is_written=False)
        said = claimlib("xautoclaim", where, *SWEEP, "--quiet")
    nothing = "nothing was decided, so the store is unchanged"
    assert (said.code, said.out, said.err) == (code, "", f"claimlib: {how}: {nothing}\n")
    assert _looked_at(claimlib, where, "xpending") == before
    assert json.loads(claimlib("runs", where, "--output", "json").out)["unfinished"] == []


@SIGNALS
def test_a_run_that_is_interrupted_after_its_decision_says_that_it_was_written(
    claimlib, monkeypatch, where, number, code, how
):
    words = ("xautoclaim", where, *SWEEP, "--run-id", "it's late")
    with monkeypatch.context() as patched:
        _interrupt(patched, number, is_written=True)
        said = claimlib(*words, "--quiet")
    assert (said.code, said.out) == (code, "")
    assert said.err == (
        f"claimlib: {how}: the decision of run 1 (xautoclaim:it's late) was written: the same"
        """ command with --run-id 'it'"'"'s late', or the next run, finishes it\n"""
    )
    assert _looked_at(claimlib, where, "xpending")["unfinished"] == ["xautoclaim:it's late"]
    assert claimlib(*words).code == 0
    assert _looked_at(claimlib, where, "xpending", "orders", "g")["consumers"] == {"bob": 1, "c": 2}


def test_if_the_journal_cannot_be_read_an_interrupted_run_says_how_to_find_out(
    claimlib, monkeypatch, where
):
    def fails(*_):
        raise OSError("the storage is gone")

    with monkeypatch.context() as patched:
        _interrupt(patched, signal.SIGINT, is_written=False)
        append = FolderWriter.append

        def lost(*arguments, **options):
            patched.setattr("claimlib.runs.protocol.run_rows", fails)
            append(*arguments, **options)

        patched.setattr(FolderWriter, "append", lost)
        said = claimlib("xautoclaim", where, *SWEEP, "--run-id", "r", "--quiet")
    assert said.code == 130
    assert (
        f"it is unknown whether the decision of run 1 (xautoclaim:r) was written: claimlib runs"
        f" {where} shows it. If it lists the run as unfinished, the same command with --run-id r,"
        " or the next run, finishes it; if it does not list the run, nothing was changed"
    ) in said.err
