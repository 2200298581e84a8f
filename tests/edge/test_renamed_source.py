"""A server under another name: what proves that it is the same, as a user runs the commands."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest

from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.runs import Phase
from claimlib.semantics.model import RemovalLimits
from claimlib.store.lock import FILE
from claimlib.testing.keyspace_rows import read_groups
from claimlib.testing.server_process import valkey_server
from tests.delta.snapshots import source
from tests.live.readings import add, deliver, stream_with_group

AT_ONCE = {"repl-diskless-sync-delay": "0"}
"""A master that does not wait for more replicas."""


@pytest.fixture
def server():
    with valkey_server(config=AT_ONCE) as running, running.client() as client:
        stream_with_group(client, n=5)
        yield running


@pytest.fixture
def other():
    with valkey_server() as running, running.client() as client:
        stream_with_group(client, n=3)
        yield running


@pytest.fixture
def replica(server):
    config = {"replicaof": f"{server.host} {server.port}", **AT_ONCE}
    with valkey_server(config=config) as running, running.client() as client:
        wait_until(lambda: client.info("replication")["master_link_status"] == "up")
        yield running


@pytest.fixture
def filled(claimlib, server, store):
    assert claimlib("snapshot", server.url, store.where).code == 0
    return store


def wait_until(is_true):
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def name_of(server, host="127.0.0.1", database=0):
    return f"{host}:{server.port}/{database}"


def info(server):
    with server.client() as client:
        return client.info()


def files_of(store):
    files = (path for path in Path(store.where).rglob("*") if path.name != FILE)
    return {path: path.read_bytes() for path in files if path.is_file()}


def pending_in(store):
    return sum(
        len(group.pending) for groups in read_groups(store).values() for group in groups.values()
    )


def snapshot_document(claimlib, url, store, *words):
    said = claimlib("snapshot", url, store.where, "--output", "json", *words)
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_two_spellings_of_an_address_fill_a_store_in_turn(claimlib, server, filled):
    names = [name_of(server, "localhost"), name_of(server), name_of(server, "localhost")]
    former = name_of(server)
    for name in names:
        document = snapshot_document(claimlib, f"redis://{name}", filled)
        assert (document["source"], document["former_source"]) == (name, former)
        assert document["counts"]["same_run_id"] == 1
        former = name
    again = snapshot_document(claimlib, f"redis://{former}", filled)
    assert again["former_source"] is None
    assert "same_run_id" not in again["counts"]
    assert pending_in(filled) == 5


def test_the_report_says_which_name_the_server_had_and_what_proves_it(claimlib, server, filled):
    new, run = f"redis://{name_of(server, 'localhost')}", ("--run-id", "new-name")
    for said in (claimlib("snapshot", new, filled.where, *run) for _ in range(2)):
        assert said.code == 0
        assert f"{name_of(server, 'localhost')} fills the store now, and {name_of(server)}" in (
            said.out
        )
        assert "its run_id (INFO server) is that of the last snapshot" in said.out
        assert "same_run_id" not in said.out
        assert "same run id" not in said.out


def test_looking_and_claiming_work_under_the_new_name(claimlib, server, filled):
    new = f"redis://{name_of(server, 'localhost')}"
    sweep = ("xautoclaim", filled.where, "--consumer", "new", "--min-idle", "0ms")
    assert claimlib(*sweep).code == 0
    with server.client() as client:
        add(client, b"s", "6-0")
        deliver(client, b"s", b"g", b"c", 1)
    assert snapshot_document(claimlib, new, filled)["counts"]["claims_replaced"] == 5
    view = claimlib("xpending", filled.where, "--view", "server", "--output", "json")
    assert view.code == 0
    assert [group["pending"] for group in json.loads(view.out)["groups"]] == [6]
    assert claimlib("describe", filled.where).code == 0
    refused = claimlib("xack", filled.where, "s", "g", "1-0")
    assert f"mirrors the server {name_of(server, 'localhost')}" in refused.err


def test_another_server_is_refused_before_anything_is_written(claimlib, server, other, filled):
    before = files_of(filled)
    refused = claimlib("snapshot", other.url, filled.where)
    assert (refused.code, refused.out) == (4, "")
    ids = {which: info(which)["run_id"][:8] for which in (server, other)}
    assert f"is filled from {name_of(server)}" in refused.err
    assert f"nothing proves that {name_of(other)} is the same server" in refused.err
    assert f"run_id is {ids[other]}… (at the last snapshot: {ids[server]}…)" in refused.err
    assert f"claimlib init {shlex.quote(filled.where)} --source {name_of(other)}" in refused.err
    assert files_of(filled) == before


def test_another_database_of_the_same_server_is_refused(claimlib, server, filled):
    before = files_of(filled)
    refused = claimlib("snapshot", f"redis://{name_of(server, database=1)}", filled.where)
    assert (refused.code, refused.out) == (4, "")
    assert f"not from {name_of(server, database=1)}, which is another database" in refused.err
    assert files_of(filled) == before


def test_a_server_that_may_not_tell_its_ids_proves_nothing(claimlib, server, filled, monkeypatch):
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "r", "on", ">p", "~*", "+@all", "-info")
    monkeypatch.setenv("REDIS_PASSWORD", "p")
    refused = claimlib("snapshot", f"redis://r@{name_of(server, 'localhost')}", filled.where)
    assert refused.code == 4
    assert "tells neither its run_id nor its replication id (grant the user +info)" in refused.err


def test_a_replica_and_its_promotion_are_the_same_source_and_the_old_master_is_not(
    claimlib, server, filled, replica
):
    # The server has a replication id of its own from its first replica on.
    snapshot_document(claimlib, server.url, filled)
    document = snapshot_document(claimlib, replica.url, filled)
    assert document["counts"]["same_replication_id"] == 1
    assert document["former_source"] == name_of(server)
    snapshot_document(claimlib, server.url, filled)
    with replica.client() as client:
        client.replicaof("NO", "ONE")
        add(client, b"s", "6-0")
        deliver(client, b"s", b"g", b"c", 1)
    said = claimlib("snapshot", replica.url, filled.where)
    assert said.code == 0, said.err
    assert "master_replid2 in INFO replication) is that of the last snapshot" in said.out
    assert "another server now answers" not in said.out
    assert pending_in(filled) == 6
    # It goes on without what the promoted replica got.
    refused = claimlib("snapshot", server.url, filled.where)
    assert refused.code == 4
    assert f"nothing proves that {name_of(server)} is the same server" in refused.err
    assert pending_in(filled) == 6


def test_init_renames_the_source_and_says_what_proves_it(claimlib, server, other, filled):
    new = name_of(other)
    said = claimlib("init", filled.where, "--source", f"redis://{new}")
    assert said.code == 0, said.err
    text = " ".join(said.out.split())
    assert f"renamed from {name_of(server)} to {new}" in text
    assert "nothing was changed" not in text
    assert info(server)["run_id"] in text
    assert info(server)["master_replid"] in text
    assert f"redis-cli -u redis://{other.host}:{other.port} INFO" in text
    again = claimlib("init", filled.where, "--source", new)
    assert "the store already exists: nothing was changed" in again.out
    # The server of the last snapshot is still the old one.
    assert claimlib("snapshot", server.url, filled.where).code == 0
    assert claimlib("init", filled.where, "--source", new).code == 0
    document = snapshot_document(claimlib, other.url, filled, "--max-removed-share", "1")
    assert document["former_source"] is None
    refused = claimlib("snapshot", server.url, filled.where)
    assert refused.code == 4
    assert f"is filled from {new}, and nothing proves that {name_of(server)}" in refused.err
    runs = json.loads(claimlib("runs", filled.where, "--output", "json").out)["runs"]
    assert [run["command"] for run in runs] == ["snapshot"] * 3
    assert pending_in(filled) == 3


def test_init_does_not_take_a_name_that_is_no_address_for_a_server(claimlib, filled):
    before = files_of(filled)
    for name, code in (("lake tables", 2), ("redis://me:secret@host", 2)):
        refused = claimlib("init", filled.where, "--source", name)
        assert (refused.code, refused.out) == (code, "")
        assert "secret" not in refused.err
    buckets = claimlib("init", filled.where, "--source", "host:1/0", "--buckets", "3")
    assert buckets.code == 4
    assert files_of(filled) == before


def test_a_new_name_stays_when_an_unfinished_snapshot_of_the_old_one_is_finished(
    claimlib, server, filled
):
    def die(phase, _detail):
        if phase is Phase.APPLY:
            raise ConnectionError

    request = SnapshotRequest(name_of(server), limits=RemovalLimits(allow_empty=True))
    with pytest.raises(ConnectionError):
        snapshot(filled, request, lambda _: source(), progress=die)
    said = claimlib("init", filled.where, "--source", "new.example:6379/0", "--output", "json")
    assert json.loads(said.out)["former_source"] == name_of(server)
    assert "is unfinished" in claimlib("runs", filled.where).out
    assert claimlib("xautoclaim", filled.where, "--consumer", "n", "--min-idle", "0ms").code == 0
    assert json.loads(claimlib("init", filled.where, "--output", "json").out)["source"] == (
        "new.example:6379/0"
    )


def test_another_server_is_refused_before_spark_starts(
    claimlib, monkeypatch, server, other, filled
):
    def starts(*_, **__):
        raise AssertionError("Spark starts")

    monkeypatch.setattr("claimlib.cli.opened_store.session_of", starts)
    database = f"{server.url[:-1]}1"
    for url, said in ((other.url, "nothing proves that"), (database, "which is another database")):
        refused = claimlib("snapshot", url, filled.where, "--engine", "spark")
        assert (refused.code, refused.out) == (4, "")
        assert said in refused.err
    folder = Path(filled.where)
    imported = claimlib(
        "import", folder, "--entries", folder, "--pending", folder, "--engine", "spark"
    )
    assert (imported.code, imported.out) == (4, "")
    assert f"is filled from {name_of(server)}, not from import" in imported.err
    assert pending_in(filled) == 5
