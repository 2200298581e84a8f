"""`claimlib writeback` as a user types it."""

import json
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from claimlib import process
from claimlib.errors import SourceUnreachableError
from claimlib.live import writing
from claimlib.testing.server_process import valkey_server
from tests.delta.own_rows import update
from tests.delta.server_groups import owners, stall, state
from tests.edge.documents import section
from tests.live.readings import rights_in

IDS = [f"{n}-0" for n in range(1, 6)]
SWEEP = ("--consumer", "alice", "--min-idle", "15m", "--run-id", "r")
PASSWORD = "secr3t"


@pytest.fixture(scope="module")
def server():
    rights = " ".join(rights_in(writing.__doc__, "writer"))
    with valkey_server(users=[f"writer on >{PASSWORD} {rights}"]) as running:
        yield running


@pytest.fixture
def swept(claimlib, client, server, store):
    """Alice has bob's entries in the store, of which one is gone from the stream."""
    stall(client, "orders", IDS)
    client.xdel("orders", "5-0")
    assert claimlib("snapshot", server.url, store.where).code == 0
    assert claimlib("xautoclaim", store.where, *SWEEP).code == 0
    return store.where


def numbers(report):
    """The rows of the report, without its headings."""
    lines = report.splitlines()
    return [line.split() for line in lines if line.startswith(("orders", "total"))]


def test_a_run_is_shown_then_written_back_by_a_user_with_the_documented_rights(
    claimlib, client, server, swept, tmp_path
):
    client.xack("orders", "w", "1-0")
    client.xclaim("orders", "w", "carol", 0, ["2-0"])
    file = tmp_path / "password"
    file.write_text(PASSWORD, encoding="utf-8")
    url = server.url.replace("redis://", "redis://writer@")
    words = ("writeback", swept, "xautoclaim:r", url, "--password-file", file)

    planned = claimlib(*words, "--dry-run")
    assert planned.code == 0
    assert planned.out.startswith(
        "Writeback of xautoclaim:r, dry run: what it would send; nothing was sent\n"
    )
    assert numbers(planned.out)[0] == ["orders", "w", "4", "1", *"----"]
    assert owners(state(client, "orders"))["3-0"] == ("bob", 1)

    said = claimlib(*words, "--run-id", "w")
    assert said.code == 0
    assert said.out.startswith("Writeback of xautoclaim:r, run 3 (writeback:w)\n")
    assert numbers(said.out) == [
        ["orders", "w", *"412111"],
        ["total", "1", "group", *"412111"],
    ]
    assert "2 entries were left alone\ntouched: another client changed" in said.out
    assert "send · 5 of 5 entries" in said.err
    assert owners(state(client, "orders")) == {
        "2-0": ("carol", 2),
        "3-0": ("alice", 2),
        "4-0": ("alice", 2),
    }

    again = claimlib(*words, "--run-id", "w", "--output", "json")
    document = json.loads(again.out)
    assert document["is_repeat"] is True
    assert (document["run"], document["decided"]) == ("xautoclaim:r", 5)
    (group,) = document["groups"]
    assert group == {
        "stream": "orders",
        "consumer_group": "w",
        "claims": 4,
        "removals": 1,
        "moved": 2,
        "acknowledged": 1,
        "touched": 1,
        "gone": 1,
    }
    shown = claimlib("runs", swept, "writeback:w").out
    for name, number in {"moved": 2, "acknowledged": 1, "touched": 1, "decided": 5}.items():
        assert [line.split()[1] for line in shown.splitlines() if line.startswith(name)] == [
            str(number)
        ]
    assert PASSWORD not in "".join(
        text for result in (planned, said, again) for text in (result.out, result.err)
    )


def test_what_the_server_has_is_no_longer_only_in_the_store(claimlib, client, server, swept):
    client.xclaim("orders", "w", "carol", 0, ["2-0"])
    assert claimlib("writeback", swept, "r", server.url).code == 0
    of_group = ("xpending", swept, "orders", "w", "--count", "9", "--output", "jsonl")
    views = {
        view: {
            row["id"]: row["consumer"]
            for row in map(json.loads, claimlib(*of_group, "--view", view).out.splitlines())
        }
        for view in ("store", "server")
    }
    moved = dict.fromkeys(("1-0", "3-0", "4-0"), "alice")
    assert views == {
        "store": moved | {"2-0": "alice"},
        "server": moved | {"2-0": "bob"},  # as it was at the snapshot
    }
    said = claimlib("snapshot", server.url, swept)
    assert "pending entries written (new or changed)      1\n" in said.out
    assert "claims overwritten                            1\n" in said.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("none",), 2, "has no finished run none"),
        (
            ("1",),
            2,
            "run snapshot:s cannot be written back: only xautoclaim, xclaim, xack, retire and",
        ),
        (("r", "--max-age", "1ms"), process.INPUT_REFUSED, "more than --max-age 1ms"),
        (("r", "--max-age", "soon"), 2, "--max-age"),
        (("r", "--max-commands-per-second", "0"), 2, "--max-commands-per-second"),
        (("r", "--run-id", ""), 2, "run id"),
    ],
)
def test_refusals(claimlib, client, server, store, words, code, message):
    stall(client, "orders", IDS)
    assert claimlib("snapshot", server.url, store.where, "--run-id", "s").code == 0
    assert claimlib("xautoclaim", store.where, *SWEEP).code == 0
    run, *options = words
    said = claimlib("writeback", store.where, run, server.url, *options)
    assert (said.code, said.out) == (code, "")
    assert message in said.err
    assert set(owners(state(client, "orders")).values()) == {("bob", 1)}


def test_a_url_in_the_wrong_place_and_a_server_that_is_not_there(claimlib, store):
    said = claimlib("writeback", "redis://localhost", store.where, "r")
    assert said.code == 2
    assert "URL comes last: claimlib writeback ./store RUN redis://HOST:PORT" in said.err
    said = claimlib("writeback", store.where, "r", "redis://127.0.0.1:1")
    assert said.code == 75
    assert "cannot be reached" in said.err


@pytest.mark.usefixtures("client")
def test_an_interruption_says_that_claims_may_be_on_the_server(
    claimlib, server, swept, monkeypatch
):
    from claimlib.live.writing import write_entries

    def interrupted(source, batches):
        yield from write_entries(source, batches)
        raise KeyboardInterrupt

    monkeypatch.setattr("claimlib.commands.writeback.write_entries", interrupted)
    said = claimlib("writeback", swept, "r", server.url, "--run-id", "w")
    assert said.code == process.INTERRUPTED
    assert (
        "nothing was decided, so the store is unchanged; the server may have some of the claims:"
        " the same command recognizes them, and continues" in said.err
    )


def test_the_documented_rights_are_those_that_are_tested():
    lines = section("docs/server.md", "## Rights").splitlines()
    stated = {
        words[2]: words[5:]
        for words in (line.strip("`").split() for line in lines if line.startswith("`ACL SETUSER"))
    }
    assert stated["writer"] == rights_in(writing.__doc__, "writer")
    assert set(stated["rescuer"]) == {"~*", *stated["reader"][1:], *stated["writer"]}


# ------------------------------------------------------------------- at the end of other commands


@pytest.fixture
def mirror(claimlib, client, server, store):
    """A store with bob's entries, as the server has them."""
    stall(client, "orders", IDS)
    client.xgroup_createconsumer("orders", "w", "alice")
    assert claimlib("snapshot", server.url, store.where).code == 0
    return store.where


ALL = dict.fromkeys(IDS, ("alice", 1))
COMMANDS = {
    "xautoclaim": (
        ("--consumer", "alice", "--min-idle", "15m", "--justid"),
        "5 moved, 0 acknowledged",
        ALL,
    ),
    "xclaim": (
        ("orders", "w", "alice", "2-0", "--min-idle", "15m", "--justid"),
        "1 moved, 0 acknowledged",
        {**dict.fromkeys(IDS, ("bob", 1)), "2-0": ("alice", 1)},
    ),
    "xack": (("orders", "w", *IDS[1:]), "0 moved, 4 acknowledged", {"1-0": ("bob", 1)}),
    "retire": (("orders", "w", "bob", "--to", "alice"), "5 moved, 0 acknowledged", ALL),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_writes_its_run_back(claimlib, client, server, mirror, command):
    options, numbers, after = COMMANDS[command]
    before = state(client, "orders")
    words = (command, mirror, *options, "--run-id", "r")
    # A dry run does not even connect.
    planned = claimlib(*words, "--writeback", "redis://127.0.0.1:1", "--dry-run")
    assert planned.code == 0
    assert state(client, "orders") == before
    said = claimlib(*words, "--writeback", server.url, "--max-age", "10m")
    assert said.code == 0, said.err
    _, _, line = said.out.partition("written back to the server by run 3 (writeback:r): ")
    assert line.startswith(numbers), said.out
    assert "only in this store" not in said.out
    assert owners(state(client, "orders")) == after
    assert (b"bob" in {row["name"] for row in client.xinfo_consumers("orders", "w")}) == (
        command != "retire"
    )
    again = claimlib(*words, "--writeback", server.url, "--output", "json")
    written = json.loads(again.out)["writeback"]
    assert (written["run_seq"], written["run_id"], written["is_repeat"]) == (3, "r", True)
    assert owners(state(client, "orders")) == after


def test_a_run_that_was_not_written_back_names_the_command_that_does_it(
    claimlib, client, server, mirror, monkeypatch
):
    def broken(*_words):
        raise SourceUnreachableError("the connection broke")

    words = ("xack", mirror, "orders", "w", "1-0")
    with monkeypatch.context() as patch:
        patch.setattr("claimlib.commands.writeback.write_entries", broken)
        said = claimlib(*words, "--writeback", server.url)
    assert said.code == 75
    assert "1-0" in state(client, "orders")
    line = next(line for line in said.err.splitlines() if "is done in the store" in line)
    assert claimlib(*shlex.split(line.partition(": claimlib ")[2])).code == 0
    assert "1-0" not in state(client, "orders")


def test_an_undo_of_what_was_written_back_says_how_to_undo_it_on_the_server(
    claimlib, client, server, mirror
):
    options, _, after = COMMANDS["xautoclaim"]
    words = ("xautoclaim", mirror, *options, "--run-id", "r", "--writeback", server.url)
    assert claimlib(*words).code == 0
    assert owners(state(client, "orders")) == after
    planned = claimlib("undo", mirror, "xautoclaim:r", "--dry-run").out
    assert "xautoclaim:r was written back, so the server still has its changes\n" in planned
    said = claimlib("undo", mirror, "xautoclaim:r").out
    _, _, command = said.partition(
        "server still has its changes. To undo its claims there: claimlib "
    )
    command = command.splitlines()[0].replace("URL", server.url)
    assert claimlib(*shlex.split(command)).code == 0
    assert "alice" not in owners(state(client, "orders")).values()


@pytest.mark.parametrize("command", ["xautoclaim", "xack"])
def test_what_cannot_be_written_back_is_refused_before_the_run(claimlib, server, mirror, command):
    words = (command, mirror, *COMMANDS[command][0])
    with valkey_server() as other:
        for options, code, message in (
            (("--max-latency", "20ms"), 2, "--max-latency is for a writeback: add --writeback URL"),
            (("--writeback", "localhost"), 2, "redis://"),
            (("--writeback", "redis://127.0.0.1:1"), 75, "cannot be reached"),
            (
                ("--writeback", other.url),
                process.INPUT_REFUSED,
                "nothing proves that",
            ),
            (("--writeback", server.url, "--max-latency", "0ms"), 2, "--max-latency"),
        ):
            said = claimlib(*words, *options)
            assert (said.code, said.out) == (code, "")
            assert message in said.err
    assert len(claimlib("runs", mirror, "--output", "jsonl").out.splitlines()) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_an_old_snapshot_is_refused_before_the_run(claimlib, server, mirror, command, tmp_path):
    words = (command, mirror, *COMMANDS[command][0])
    back = ("--writeback", server.url, "--max-age", "0ms", "--run-id", "r")
    said = claimlib(*words, *back)
    assert (said.code, said.out) == (process.INPUT_REFUSED, "")
    assert "the snapshot of orders / w is " in said.err
    assert "Nothing was done. Take a new snapshot first, or raise --max-age" in said.err
    if command == "xack":
        table = str(tmp_path / "acks.parquet")
        row = {"request": 1, "stream": "orders", "consumer_group": "w", "ids": ["1-0"]}
        pq.write_table(pa.Table.from_pylist([row]), table)
        said = claimlib("xack", mirror, "--requests", table, *back)
        assert "the snapshot of orders / w is " in said.err
    assert len(claimlib("runs", mirror, "--output", "jsonl").out.splitlines()) == 1


def test_the_age_of_groups_that_the_run_cannot_change_does_not_matter(
    claimlib, client, server, mirror, store
):
    stall(client, "fresh", IDS)
    client.xack("orders", "w", *IDS)
    client.xadd("other", {"n": 1})
    client.xgroup_create("other", "w")
    assert claimlib("snapshot", server.url, mirror).code == 0
    update(store, "groups", "stream IN ('orders', 'other')", snapshot_ms="1L")
    back = ("--min-idle", "15m", "--consumer", "alice", "--writeback", server.url)
    said = claimlib("xautoclaim", mirror, *back)
    assert said.code == 0, said.err
    assert set(owners(state(client, "fresh")).values()) == {("alice", 2)}


def test_a_run_id_alone_names_the_run_also_if_the_writeback_has_the_same(
    claimlib, client, server, mirror
):
    options, _, after = COMMANDS["xautoclaim"]
    assert claimlib("snapshot", server.url, mirror, "--run-id", "r").code == 0
    assert claimlib("xautoclaim", mirror, *options, "--run-id", "r").code == 0
    words = ("writeback", mirror, "r", server.url, "--run-id", "r", "--output", "json")
    first, again = (json.loads(claimlib(*words).out) for _ in range(2))
    assert (first["run_seq"], first["is_repeat"]) == (again["run_seq"], False)
    assert again["is_repeat"]
    assert owners(state(client, "orders")) == after
    said = claimlib("writeback", mirror, "writeback:r", server.url)
    assert (said.code, "cannot be written back: only" in said.err) == (2, True)


def test_acknowledgements_of_a_mirror_need_a_writeback(claimlib, mirror):
    said = claimlib("xack", mirror, "orders", "w", "1-0")
    assert said.code == process.INPUT_REFUSED
    assert (
        "Add --writeback with the URL of the server, which acknowledges them there, too" in said.err
    )
