"""`claimlib runs STORE RUN --as-commands`: a real server does by them what the run did."""

import json
import re

import pytest
import redis

from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import ClaimRequest
from tests.unit.test_words import read_by_redis_cli

HOSTILE = b'odd "name" \\ \xff\n'


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
    words = ("runs", store_path, "xautoclaim:r", "--as-commands", "--quiet")
    assert claimlib("writeback", store_path, "r", server.url, "--run-id", "w").code == 0
    assert "run 3 (writeback:w) has written this run back: do not send" in claimlib(*words).err
    assert claimlib("undo", store_path, "r", "--run-id", "u").code == 0
    assert "run 4 (undo:u) has undone this run: these commands would" in claimlib(*words).err
    assert claimlib("undo", store_path, "u", "--run-id", "again").code == 0
    assert "has undone" not in claimlib(*words).err
    refused = claimlib("runs", store_path, "snapshot:s", "--as-commands")
    assert (refused.code, refused.out) == (2, "")
    assert "run snapshot:s has no commands for the server: only xautoclaim, xclaim" in refused.err


def run_commands(claimlib, client, store_path, run):
    """Run what --as-commands prints on the server; return the commands."""
    shown = claimlib("runs", store_path, run, "--as-commands", "--quiet")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    for line in lines:
        client.execute_command(*read_by_redis_cli(line))
    return lines


def in_store(claimlib, store_path, stream, group):
    """The pending entries of a group in the store, as `pending` returns those of the server."""
    shown = claimlib("xpending", store_path, stream, group, "--count", "1000", "--output", "jsonl")
    rows = map(json.loads, shown.out.splitlines())
    return {row["id"].encode(): (row["consumer"].encode(), row["delivery_count"]) for row in rows}


def claim(consumer, min_idle_ms, *ids, **options):
    return ClaimRequest(consumer, min_idle_ms, tuple(StreamId(n, 0) for n in ids), **options)


def consumers(client):
    return {row["name"] for row in client.xinfo_consumers("orders", "workers")}


def test_the_server_does_by_them_what_an_xclaim_did(claimlib, client, server, store):
    stall(client, b"orders", b"workers", 6)
    client.xdel("orders", "2-0")
    client.xack("orders", "workers", "3-0", "4-0")
    assert claimlib("snapshot", server.url, store.where).code == 0
    century_ms = 100 * 365 * 86_400_000
    claims = [
        claim(b"alice", 1000, 1, 2, 3),
        claim(b"re claimer", 0, 1, 3, 4, idle_ms=5_000, force=True),
        claim(b"alice", 0, 5, time_ms=1_700_000_000_000, retrycount=7, justid=True),
        claim(b"carol", century_ms, 5, last_id=StreamId(99, 0)),  # not idle for so long
    ]
    xclaim(store, [NamedClaim(b"orders", b"workers", each) for each in claims], run_id="x")
    store_path = store.where
    lines = run_commands(claimlib, client, store_path, "xclaim:x")
    assert lines == [
        "XCLAIM orders workers alice 1000 1-0",
        "XACK orders workers 2-0",
        'XCLAIM orders workers "re claimer" 0 1-0 IDLE 5000',
        'XCLAIM orders workers "re claimer" 0 3-0 4-0 IDLE 5000 FORCE',
        "XCLAIM orders workers alice 0 5-0 TIME 1700000000000 RETRYCOUNT 7 JUSTID",
        f"XCLAIM orders workers carol {century_ms} 0-0 LASTID 99-0 JUSTID",
    ]
    on_server = pending(client, b"orders", b"workers")
    assert on_server == in_store(claimlib, store_path, "orders", "workers")
    assert on_server[b"1-0"] == (b"re claimer", 4)
    assert client.xinfo_groups("orders")[0]["last-delivered-id"] == b"99-0"
    assert "claims overwritten" not in claimlib("snapshot", server.url, store_path).out
    # Of one entry only its command is printed, and no last id.
    part = ("--as-commands", "--start", "5-0", "--quiet")
    assert claimlib("runs", store_path, "xclaim:x", *part).out.splitlines() == [lines[4]]


def retire(claimlib, client, server, store_path):
    stall(client, b"orders", b"workers", 5)
    client.xdel("orders", "4-0")
    for name in ("alice", "carol"):
        client.xgroup_createconsumer("orders", "workers", name)
    assert claimlib("snapshot", server.url, store_path).code == 0
    to = ("--to", "alice", "--to", "carol")
    done = claimlib("retire", store_path, "orders", "workers", "bob", *to, "--run-id", "bob")
    assert done.code == 0, done.err


def test_the_server_does_by_them_what_a_retirement_did(claimlib, client, server, store_path):
    retire(claimlib, client, server, store_path)
    client.xack("orders", "workers", "1-0")  # since the snapshot
    *lines, removal = run_commands(claimlib, client, store_path, "retire:bob")
    assert lines == [
        "XCLAIM orders workers alice 0 1-0 3-0 JUSTID",
        "XACK orders workers 4-0",
        "XCLAIM orders workers carol 0 2-0 5-0 JUSTID",
    ]
    assert removal.startswith('EVAL "if #redis.call(')
    assert removal.endswith(" 1 orders workers bob")
    left = in_store(claimlib, store_path, "orders", "workers")
    assert pending(client, b"orders", b"workers") == {
        id_: row for id_, row in left.items() if id_ != b"1-0"
    }
    assert consumers(client) == {b"alice", b"carol"}
    again = claimlib("snapshot", server.url, store_path)
    assert "claims overwritten" not in again.out
    # The limit and the range of ids cut off the removal, too.
    for words, printed in (
        (("--limit", "3"), lines),
        (("--start", "-", "--end", "+"), lines),
        (("--group", "other"), []),
    ):
        shown = claimlib("runs", store_path, "retire:bob", "--as-commands", *words)
        assert shown.out.splitlines() == printed
    assert (
        "1 more command not shown"
        in claimlib("runs", store_path, "retire:bob", "--as-commands", "--limit", "3").err
    )


def test_a_retired_consumer_that_got_an_entry_on_the_server_stays_there(
    claimlib, client, server, store_path
):
    retire(claimlib, client, server, store_path)
    client.xadd("orders", {"n": 6}, id="6-0")
    client.xreadgroup("workers", "bob", {"orders": ">"})
    with pytest.raises(redis.ResponseError, match="the consumer still has pending entries"):
        run_commands(claimlib, client, store_path, "retire:bob")
    assert b"bob" in consumers(client)
    assert pending(client, b"orders", b"workers")[b"6-0"] == (b"bob", 1)
    client.xack("orders", "workers", "6-0")
    run_commands(claimlib, client, store_path, "retire:bob")
    assert consumers(client) == {b"alice", b"carol"}
