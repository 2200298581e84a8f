"""What a mirrored server has pending, and what the store says after runs, as a user looks at it."""

import json
import shlex

import pytest

from tests.edge.test_server_removals import fill

DAY_MS = 86_400_000


@pytest.fixture
def mirror(claimlib, client, server, store):
    """Create a server and its store.

    bob has six entries that were idle for a day; two of them were deleted.  Another group has two
    entries of today.
    """
    ids = fill(client, b"orders:eu", 1_000, 6)
    idle = ("IDLE", DAY_MS, "RETRYCOUNT", 1)
    client.execute_command("XCLAIM", "orders:eu", "workers", "bob", 0, *ids, *idle)
    client.xdel("orders:eu", *ids[-2:])
    fill(client, b"orders:us", 1_000, 2)
    assert claimlib("snapshot", server.url, store.where).code == 0


def rows(claimlib, store, *words):
    said = claimlib("xpending", store.where, *words, "--output", "json")
    groups = {group["stream"]: group for group in json.loads(said.out)["groups"]}
    return said.code, json.loads(said.out)["view"], groups


@pytest.mark.usefixtures("mirror")
def test_an_alarm_judges_what_the_server_has_and_a_sweep_says_what_only_the_store_knows(
    claimlib, server, store
):
    alarm = ("--fail-on-stalled", "15m")
    assert rows(claimlib, store, *alarm)[0] == 3
    swept = claimlib("xautoclaim", store.where, "--consumer", "r", "--min-idle", "15m")
    assert swept.code == 0
    last = swept.out.splitlines()[-1]
    assert last.startswith("4 claims and 2 deletions exist only in this store, not on the server.")
    code, view, on_server = rows(claimlib, store, *alarm)
    assert (code, view) == (3, "server")
    assert on_server["orders:eu"]["stalled"] == 6
    assert on_server["orders:eu"]["oldest_idle_ms"] >= DAY_MS
    said = claimlib("xpending", store.where, *alarm)
    assert "on the server: at the last snapshot" in said.out
    assert "stalled on the server: 6 entries in 1 group have been idle for 15m" in said.err
    code, view, in_store = rows(claimlib, store, *alarm, "--view", "store")
    assert (code, view) == (0, "store")
    assert (in_store["orders:eu"]["pending"], in_store["orders:eu"]["stalled"]) == (4, 0)
    changed = {name: row["changed_by_runs"] for name, row in in_store.items()}
    assert changed == {"orders:eu": 6, "orders:us": 0}
    assert (
        "6 entries were changed by runs since the snapshot" in claimlib("xpending", store.where).out
    )
    group = ("xpending", store.where, "orders:eu", "workers")
    assert "6 entries were changed by runs since the snapshot" in claimlib(*group).out
    assert json.loads(claimlib(*group, "--output", "json").out)["changed_by_runs"] == 6
    of_other = claimlib("xpending", store.where, "orders:us", "workers", "--output", "json").out
    assert json.loads(of_other)["changed_by_runs"] == 0
    reported = claimlib("report", store.where).out
    assert "4 claims and 2 deletions exist only in this store" in reported
    assert f"on the server: claimlib writeback {store.where} 2 URL" in reported
    for words in ((), ("--count", "9")):
        listed = claimlib(*group, *words, "--view", "server").out.splitlines()
        assert listed[0].endswith(": at the last snapshot, and after the writebacks since")
        assert "bob" in listed[-1]
        for view in ("server", "store"):
            shown = claimlib(*group, *words, "--view", view, "--output", "json")
            assert json.loads(shown.out)["view"] == view
    listed = claimlib(*group, "--view", "server").out
    assert listed.splitlines()[-1].split() == ["bob", "6"]
    of_bob = ("xpending", store.where, "--consumer", "bob", "--idle", "15m", "--fields")
    for view, payloads in (("server", [*["present"] * 4, "gone", "gone"]), ("store", [])):
        shown = json.loads(claimlib(*of_bob, "--view", view, "--output", "json").out)
        assert [row["payload"] for row in shown["rows"]] == payloads
    # What the report says to type, and the next snapshot.
    command = last.partition("on the server: claimlib ")[2].replace("URL", server.url)
    assert claimlib(*shlex.split(command)).code == 0
    reported = claimlib("report", store.where, "2", "--output", "json").out
    assert json.loads(reported)["written_back_by"].startswith("writeback:")
    assert json.loads(reported)["only_in_store"] == {
        "claimed": 0,
        "restored": 0,
        "deleted": 0,
    }
    assert claimlib("snapshot", server.url, store.where).code == 0
    code, _, after = rows(claimlib, store, *alarm)
    assert (code, after["orders:eu"]["changed_by_runs"]) == (0, 0)


@pytest.mark.usefixtures("mirror")
def test_claims_by_id_and_retirements_say_so_too_and_the_view_reaches_back_over_all_runs(
    claimlib, store, monkeypatch
):
    group = (store.where, "orders:eu", "workers")
    said = claimlib("xclaim", *group, "ann", "--min-idle", "0ms", "1000-0", "--lastid", "9000-0")
    assert "1 claim exists only in this store" in said.out
    said = claimlib("retire", *group, "bob", "--to", "ann")
    assert "4 claims and 2 deletions exist only in this store" in said.out
    idle = claimlib("xautoclaim", store.where, "--consumer", "r", "--min-idle", "1m")
    # This run claimed nothing, so its own list would be empty.
    assert idle.out.splitlines()[-1].endswith(f"To list the runs: claimlib runs {store.where}")
    _, _, on_server = rows(claimlib, store, "--view", "server")
    _, _, as_of = rows(claimlib, store, "--as-of", "1")
    counted = ("pending", "stalled", "oldest_idle_ms", "highest_delivery_count", "owners")
    assert [on_server["orders:eu"][name] for name in counted] == [
        as_of["orders:eu"][name] for name in counted
    ]
    assert on_server["orders:eu"]["changed_by_runs"] == 6
    # How long owners have been inactive the server's view does not know, so the total does not.
    shown = claimlib("xpending", store.where, "--view", "server", "--output", "json")
    totals = json.loads(shown.out)["totals"]
    assert (totals["owners"], totals["idle_owners"], totals["unknown_owners"]) == (2, None, None)
    assert as_of["orders:eu"]["changed_by_runs"] == 0
    refused = claimlib("runs", store.where, "2", "--ids")
    assert refused.code == 0

    # Also before Spark starts, bob is no typing error.
    def starts(*_, **__):
        raise AssertionError("Spark starts")

    monkeypatch.setattr("claimlib.cli.opened_store.session_of", starts)
    of_bob = ("xpending", *group, "--consumer", "bob", "--view", "server")
    assert "bob" in claimlib(*of_bob).out
    assert "Spark starts" in claimlib(*of_bob, "--engine", "spark").err


def test_a_store_that_mirrors_no_server_has_no_view_of_one(claimlib, store):
    refused = claimlib("xpending", store.where, "--view", "server")
    assert (refused.code, refused.out) == (2, "")
    assert "mirrors no server" in refused.err
    said = claimlib("xpending", store.where, "--fail-on-stalled", "1m", "--output", "json")
    assert (said.code, json.loads(said.out)["view"]) == (0, "store")
    assert json.loads(said.out)["totals"]["changed_by_runs"] is None
