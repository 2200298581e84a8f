"""`claimlib rescue` as a user types it."""

import json
import shlex

import pytest

from claimlib import process
from tests.delta.server_groups import GROUP, owners, stall, state

IDS = ["1-0", "2-0", "3-0"]
SWEEP = ("--consumer", "alice", "--min-idle", "15m")


@pytest.fixture
def client(client):
    """Two streams whose entries bob left lying for an hour; one of these is deleted."""
    stall(client, "orders", IDS)
    stall(client, "other", IDS)
    client.xdel("orders", "3-0")
    return client


def counts(said):
    assert said.code == 0, said.err
    return json.loads(said.out)["counts"]


def test_one_command_makes_the_store_and_claims_on_the_server(claimlib, client, server, tmp_path):
    where = tmp_path / "new"
    words = ("rescue", server.url, where, *SWEEP, "--stream", "orders", "--output", "json")
    planned = counts(claimlib(*words, "--dry-run", "--run-id", "r"))
    assert (planned["claimed"], planned["moved"], planned["stalled"]) == (2, 0, 3)
    assert owners(state(client, "orders"))["1-0"] == ("bob", 1)
    said = claimlib(*words[:-2], "--dry-run").out
    assert "entries that would be given to another consumer" in said
    assert "to see each group: claimlib xautoclaim" in said
    assert "touched" not in said
    assert counts(claimlib(*words, "--run-id", "r")) == {
        "groups": 1,
        "pending_read": 3,
        "claimed": 2,
        "deleted": 1,
        "refused": 0,
        "moved": 2,
        "acknowledged": 1,
        "touched": 0,
        "gone": 0,
        "stalled": 0,
    }
    reported = claimlib("report", where).out
    verdict = "2 entries claimed on the server, 1 acknowledged there, 0 lost to other writers"
    assert reported.splitlines()[0].endswith(verdict)
    assert "stalled before the run" not in reported.splitlines()[0]
    after = state(client, "orders")
    assert owners(after) == {"1-0": ("alice", 2), "2-0": ("alice", 2)}
    assert set(owners(state(client, "other")).values()) == {("bob", 1)}
    again = claimlib(*words, "--run-id", "r")
    assert counts(again)["moved"] == 2
    assert json.loads(again.out)["is_repeat"] is True
    assert state(client, "orders") == after
    assert (
        "this rescue was already done: nothing was read, claimed or sent"
        in claimlib(*words[:-2], "--run-id", "r").out
    )
    assert state(client, "orders") == after
    said = claimlib(*words[:-2])
    assert said.code == 0
    assert "nothing was stalled, so nothing was sent" in said.out


def test_a_rescue_that_was_interrupted_continues(claimlib, client, server, store_path, monkeypatch):
    def interrupted(*_words):
        raise KeyboardInterrupt

    words = ("rescue", server.url, store_path, *SWEEP, "--run-id", "r")
    with monkeypatch.context() as patch:
        patch.setattr("claimlib.commands.writeback.write_entries", interrupted)
        assert claimlib(*words).code == process.INTERRUPTED
    said = claimlib(*words, "--output", "json")
    assert counts(said)["moved"] == 5
    assert owners(state(client, "other")) == dict.fromkeys(IDS, ("alice", 2))
    said = claimlib(*words).out
    for hint, result in (("see the groups", "Run 2 (xautoclaim:r)"), ("undo it", "Undo of xauto")):
        command = said.partition(f"to {hint}: claimlib ")[2].partition("\n")[0].partition(",")[0]
        assert result in claimlib(*shlex.split(command)).out


def test_several_consumers_and_live_ones_share_what_is_claimed_also_on_the_server(
    claimlib, client, server, tmp_path
):
    where, words = tmp_path / "new", ("--stream", "orders", "--output", "json")
    named = ("--consumer", "carol", "--consumer", "alice", "--min-idle", "15m")
    assert counts(claimlib("rescue", server.url, where, *named, *words))["moved"] == 2
    assert owners(state(client, "orders")) == {"1-0": ("carol", 2), "2-0": ("alice", 2)}
    client.xadd("other", {"f": "v"}, "9-0")
    client.xreadgroup(GROUP, "dora", {"other": ">"})
    words = ("--stream", "other", "--output", "json")
    live = ("--assign", "live", "--min-idle", "15m")
    assert counts(claimlib("rescue", server.url, tmp_path / "live", *live, *words))["moved"] == 3
    # The consumer with fewer entries comes first; bob was active, too.
    assert owners(state(client, "other")) == {
        "1-0": ("dora", 2),
        "2-0": ("bob", 2),
        "3-0": ("dora", 2),
        "9-0": ("dora", 1),
    }


@pytest.mark.usefixtures("client")
def test_a_latency_limit_holds_for_the_writeback(claimlib, server, store_path, monkeypatch):
    limits = []

    class Limit:
        def __init__(self, max_latency_ms, _tell):
            limits.append(max_latency_ms)

        def wait(self, _source):
            pass

    monkeypatch.setattr("claimlib.commands.writeback.LatencyLimit", Limit)
    words = ("rescue", server.url, store_path, *SWEEP)
    assert claimlib(*words, "--max-latency", "20ms").code == 0
    assert limits == [20]
    assert "--max-latency" in claimlib(*words, "--max-latency", "0ms").err


def test_globs_that_match_nothing_are_refused_unless_that_is_allowed(
    claimlib, client, server, store_path, monkeypatch
):
    assert client.ping()  # a server without keys
    words = (server.url, store_path, "--consumer", "r", "--min-idle", "0ms", "--group", "nope")
    refused = claimlib("rescue", *words)
    assert refused.code == 4
    assert "(for claimlib rescue: CLAIMLIB_MIRROR__ALLOW_EMPTY=true)" in refused.err
    monkeypatch.setenv("CLAIMLIB_MIRROR__ALLOW_EMPTY", "true")
    assert claimlib("rescue", *words).code == 0


def test_the_url_comes_first(claimlib, server, store_path):
    said = claimlib("rescue", store_path, server.url, *SWEEP)
    assert said.code == 2
    assert "URL comes before STORE: claimlib rescue redis://HOST:PORT ./store" in said.err
