"""`claimlib runs STORE RUN --as-commands`: a real server does by them what the sweep did."""

import re

import pytest

from claimlib.testing.server import valkey_server
from tests.unit.test_words import read_by_redis_cli

HOSTILE = b'odd "name" \\ \xff\n'


@pytest.fixture(scope="module")
def server():
    with valkey_server() as valkey:
        yield valkey


@pytest.fixture
def client(server):
    with server.client() as connected:
        connected.flushall()
        yield connected


def stall(client, stream, group, number):
    """A group whose consumer bob has entries 1-0, 2-0, … since 1970."""
    for n in range(1, number + 1):
        client.xadd(stream, {"n": n}, id=f"{n}-0")
    client.xgroup_create(stream, group, id="0")
    client.xreadgroup(group, "bob", {stream: ">"}, count=number)
    client.xclaim(stream, group, "bob", 0, [f"{n}-0" for n in range(1, number + 1)], time=1)


def pending(client, stream, group):
    rows = client.xpending_range(stream, group, "-", "+", 1000)
    return {row["message_id"]: (row["consumer"], row["times_delivered"]) for row in rows}


def test_the_server_does_by_them_what_the_sweep_did_and_spares_what_was_claimed_since(
    claimlib, client, server, store_path
):
    stall(client, HOSTILE, b"g", 250)
    stall(client, b"orders", b"workers", 3)
    client.xdel("orders", "2-0")
    assert claimlib("snapshot", server.url, store_path).code == 0
    sweep = ("xautoclaim", store_path, "--consumer", "re claimer", "--min-idle", "1h")
    assert claimlib(*sweep, "--run-id", "r").code == 0
    # Since the snapshot somebody on the server was faster.
    client.xclaim("orders", "workers", "carol", 0, ["3-0"])
    shown = claimlib("runs", store_path, "xautoclaim:r", "--as-commands", "--limit", "1000")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines].count("XCLAIM") == 4  # 100 ids at most in each
    assert "XACK orders workers 2-0" in lines
    for line in lines:
        client.execute_command(*read_by_redis_cli(line))
    assert set(pending(client, HOSTILE, b"g").values()) == {(b"re claimer", 3)}
    assert pending(client, b"orders", b"workers") == {
        b"1-0": (b"re claimer", 3),
        b"3-0": (b"carol", 3),
    }
    # The next snapshot has nothing to take back but what carol was faster with.
    again = claimlib("snapshot", server.url, store_path)
    assert re.search("claims overwritten +1\\n", again.out) is not None, again.out


def test_a_snapshot_says_how_many_claims_of_the_store_it_takes_back(
    claimlib, client, server, store_path
):
    stall(client, b"orders", b"workers", 5)
    client.xdel("orders", "5-0")
    assert "claims overwritten" not in claimlib("snapshot", server.url, store_path).out
    sweep = ("xautoclaim", store_path, "--consumer", "c", "--min-idle", "1h")
    assert claimlib(*sweep, "--run-id", "r").code == 0
    client.xack("orders", "workers", "1-0")  # and this one its owner has done
    said = claimlib("snapshot", server.url, store_path)
    assert re.search("claims overwritten +3\\n", said.out) is not None, said.out
    assert re.search("pending entries removed +1\\n", said.out) is not None, said.out
    assert "3 claims made in this store were overwritten" in said.out
    assert "claims overwritten" not in claimlib("snapshot", server.url, store_path).out


def test_what_the_limit_cuts_off_is_counted_and_other_runs_are_refused(
    claimlib, client, server, store_path, monkeypatch
):
    stall(client, b"orders", b"workers", 250)
    assert claimlib("snapshot", server.url, store_path, "--run-id", "s").code == 0
    sweep = ("xautoclaim", store_path, "--consumer", "c", "--min-idle", "1h")
    assert claimlib(*sweep, "--run-id", "r", "--justid").code == 0
    shown = claimlib("runs", store_path, "xautoclaim:r", "--as-commands", "--limit", "1")
    (line,) = shown.out.splitlines()
    assert line.startswith("XCLAIM orders workers c 3600000 1-0 2-0 ")
    assert line.endswith(" 100-0 JUSTID")
    assert "2 more commands not shown" in shown.err
    quiet = claimlib("runs", store_path, "xautoclaim:r", "--as-commands", "--limit", "1", "--quiet")
    assert quiet.out == shown.out
    assert quiet.err == "claimlib: 2 more commands not shown; use --limit to show more\n"
    # However many there are, all are printed where no limit is given.
    monkeypatch.setattr("claimlib.commands.server_commands._IDS_PER_COMMAND", 4)
    all_of_them = claimlib("runs", store_path, "xautoclaim:r", "--as-commands", "--quiet")
    assert [len(line.split()) for line in all_of_them.out.splitlines()] == [*[10] * 62, 8]
    assert all_of_them.err == ""
    refused = claimlib("runs", store_path, "snapshot:s", "--as-commands")
    assert (refused.code, refused.out) == (2, "")
    assert "is not an xautoclaim" in refused.err
