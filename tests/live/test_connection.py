from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest
import redis
from redis.exceptions import AskError, MovedError, TryAgainError

from claimlib.errors import (
    AuthenticationFailedError,
    ClaimlibError,
    MissingExtraError,
    PermissionDeniedError,
    RequestError,
    SourceError,
    SourceUnreachableError,
    WrongTypeError,
)
from claimlib.live import connection
from claimlib.live.address import Address, parse_address
from claimlib.live.connection import Source, open_source, read_password, source_label
from claimlib.live.faults import reply_fault
from claimlib.live.pacer import LatencyLimit, Pacer
from claimlib.live.reading import ServerReading
from claimlib.live.vanished import SlotMovedError
from claimlib.testing.server_process import valkey_server

SECRET = "open sesame\\ \"ü'"


def everything_shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


# --- URL


@pytest.mark.parametrize(
    ("url", "address", "label"),
    [
        ("redis://h", Address("h", 6379, 0, False, None), "h:6379/0"),
        ("redis://h/", Address("h", 6379, 0, False, None), "h:6379/0"),
        ("redis://h:6380/15", Address("h", 6380, 15, False, None), "h:6380/15"),
        (
            "rediss://Cache.Example",
            Address("cache.example", 6379, 0, True, None),
            "cache.example:6379/0",
        ),
        ("redis://us%40er@h:1/2", Address("h", 1, 2, False, "us@er"), "h:1/2"),
        ("redis://[::1]:7000/3", Address("::1", 7000, 3, False, None), "[::1]:7000/3"),
        (
            "redis://[FE80::1%Eth0]",
            Address("fe80::1%Eth0", 6379, 0, False, None),
            "[fe80::1%Eth0]:6379/0",
        ),
        (
            "redis+sentinel://us%40er@h/main",
            Address("h", 26379, 0, False, "us@er", "main"),
            "h:26379/main/0",
        ),
        (
            "Rediss+Sentinel://h:1/a.b_c-1/3",
            Address("h", 1, 3, True, None, "a.b_c-1"),
            "h:1/a.b_c-1/3",
        ),
    ],
)
def test_a_url_names_host_port_database_and_user(url, address, label):
    assert parse_address(url) == address
    assert parse_address(address.url) == address
    assert source_label(url) == label


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:6379",
        "http://h",
        "unix:///tmp/sock",
        "redis://",
        "redis://:6379/0",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:port",
        "redis://h/zero",
        "redis://h/-1",
        "redis://h/0/1",
        "redis://h/²",
        "redis://[::1/0",
        "redis://h/0?ssl_cert_reqs=none",
        "redis://h/0#x",
        "redis://h\n",
        "redis://h\nost",
        "redis://[::1]97000/3",
        "redis://x[::1]",
        "redis://a..b",
        f"redis://{'h' * 64}",
        "redis://h\udcff",
        "redis://%ff@h",
        f"redis://h/{'9' * 5000}",
        f"redis://h/{2**31}",
        "redis+sentinel://h",
        "redis+sentinel://h/0:x",
        "redis+sentinel://h/main/zero",
    ],
)
def test_any_other_url_is_refused_with_the_form_that_is_expected(url):
    with pytest.raises(RequestError, match=r"redis://\[USER@\]HOST\[:PORT\]\[/DB\]"):
        parse_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@h:6379/0",
        "redis://user:s3cret@h",
        "rediss://user:s3/cret@h",
        "redis://h/0?password=s3cret",
        "redis://user:s3cret@h:port",
        "redis://h/s3cret",
        "user:s3cret@h",
    ],
)
def test_a_password_in_the_url_is_refused_and_never_repeated(url):
    with pytest.raises(RequestError) as refused:
        open_source(url)
    assert "s3" not in str(refused.value)
    assert "s3" not in repr(refused.value.fields)


def test_a_password_in_the_url_is_refused_with_the_places_where_it_belongs():
    with pytest.raises(RequestError, match=r"REDIS_PASSWORD.*--password-file"):
        open_source("redis://user:s3cret@h")


# --- password


def test_the_password_comes_from_the_file_else_from_the_environment_else_from_nowhere(tmp_path):
    file = tmp_path / "password"
    file.write_bytes("pä ss\n".encode())
    assert read_password(file, {"REDIS_PASSWORD": "other"}) == "pä ss"
    assert read_password(None, {"REDIS_PASSWORD": "other"}) == "other"
    assert read_password(None, {"REDIS_PASSWORD": ""}) is None
    assert read_password(None, {}) is None


def test_a_password_of_the_environment_that_is_not_utf8_is_refused_without_it():
    with pytest.raises(RequestError, match="REDIS_PASSWORD is not UTF-8 text") as refused:
        read_password(None, {"REDIS_PASSWORD": "p\udce4ss"})
    assert "p\udce4" not in str(refused.value)


def test_only_one_line_break_is_taken_off_the_password_file(tmp_path):
    file = tmp_path / "password"
    file.write_bytes(b" a\n\r\n")
    assert read_password(file, {}) == " a\n"


@pytest.mark.parametrize(
    ("content", "says"), [(None, "No such file"), (b"\n", "empty"), (b"\xffs3", "not UTF-8")]
)
def test_a_password_file_that_cannot_be_used_is_named_without_its_content(tmp_path, content, says):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RequestError, match=says) as refused:
        read_password(file, {})
    assert str(file) in str(refused.value)
    assert "s3" not in everything_shown(refused.value)


# --- login and rights


def test_a_password_that_comes_through_a_pipe_opens_every_connection_and_is_never_shown():
    there, here = os.pipe()
    os.write(here, f"{SECRET}\n".encode())
    os.close(here)
    with valkey_server(password=SECRET) as server, os.fdopen(there):
        reading = ServerReading(server.url, password_file=Path(f"/dev/fd/{there}"))
        reading.check()
        assert [type(batch).__name__ for batch in reading()] == ["SourceOpened", "SourceDone"]
    assert SECRET not in repr(reading) + repr(dataclasses.asdict(reading))


def test_a_password_of_any_characters_opens_the_server_and_is_never_shown():
    with valkey_server(password=SECRET) as server:
        with open_source(server.url, password=SECRET) as source:
            assert source.call("TIME")
            assert repr(source) == f"Source('127.0.0.1:{server.port}/0')"
        for password in (None, SECRET + "x"):
            with pytest.raises(AuthenticationFailedError, match="REDIS_PASSWORD") as refused:
                open_source(server.url, password=password)
            assert refused.value.source == f"127.0.0.1:{server.port}/0"
            assert "sesame" not in everything_shown(refused.value)


def test_a_password_that_the_server_does_not_ask_for_is_an_error(server):
    with pytest.raises(AuthenticationFailedError, match="password"):
        open_source(server.url, password="x")


def test_the_user_comes_from_the_url_or_the_option_and_not_from_both(server, user):
    login = user("+time", "+acl|whoami")
    url = server.url.replace("//", f"//{login['username']}@")
    with open_source(url, password=login["password"]) as source:
        assert source.call("ACL", "WHOAMI") == login["username"].encode()
    with open_source(server.url, **login) as source:
        assert source.call("ACL", "WHOAMI") == login["username"].encode()
    with pytest.raises(RequestError, match="one of them"):
        open_source(url, username="somebody", password="x")


def test_a_command_that_is_denied_is_named_with_the_right_it_takes(open_here, user):
    with pytest.raises(PermissionDeniedError, match=r"\+time") as denied:
        open_here(**user("+multi"))
    assert denied.value.command == "time"
    assert denied.value.exit_code == 2


def test_a_key_that_is_denied_is_named(open_here, user):
    source = open_here(**user("+@all", "%R~orders*"))
    with pytest.raises(PermissionDeniedError, match=r"xinfo\|stream on key other\\xff") as denied:
        source.call("XINFO", "STREAM", b"other\xff")
    assert (denied.value.command, denied.value.key) == ("xinfo|stream", r"other\xff")


def test_in_a_transaction_the_command_that_is_denied_is_named_and_the_next_one_works(
    open_here, user
):
    source = open_here(**user("+@all", "%R~orders*"))
    with pytest.raises(PermissionDeniedError) as denied:
        source.transaction(("TIME",), ("XINFO", "GROUPS", b"other"))
    assert (denied.value.command, denied.value.key) == ("xinfo|groups", "other")
    assert source.call("TIME")


def test_a_script_whose_command_is_denied_names_that_command(open_here, user):
    source = open_here(**user("+time", "+eval_ro", "%R~*"))
    script = "return redis.call('XRANGE', KEYS[1], '-', '+')"
    with pytest.raises(PermissionDeniedError, match=r"\+xrange") as denied:
        source.call("EVAL_RO", script, 1, b"s")
    assert denied.value.command == "xrange"


# --- errors of the server


def test_a_key_of_another_type_is_named(client, source):
    client.set("text", "x")
    with pytest.raises(WrongTypeError, match=r"key text on .* is not a stream") as refused:
        source.call("XINFO", "STREAM", b"text")
    assert refused.value.exit_code == 4


def test_a_database_that_the_server_does_not_have_is_refused(server):
    with pytest.raises(RequestError, match="no such database"):
        open_source(server.url.replace("/0", "/99"))


def test_an_unknown_command_says_that_the_server_is_too_old_or_does_not_allow_it(source):
    with pytest.raises(PermissionDeniedError, match="does not know xrange_ro"):
        source.call("XRANGE_RO", b"s")


def test_any_other_error_of_the_server_is_told_word_for_word(source):
    with pytest.raises(SourceError, match="refused xrange: value is not an integer") as refused:
        source.call("XRANGE", b"s", "-", "+", "COUNT", "x")
    assert refused.value.exit_code == 75


@pytest.mark.parametrize(
    "words",
    [
        ("XRANGE", b"s"),
        ("XINFO", "NONSENSE", b"s"),
        ("SCAN", 0, "KIND", "stream"),  # as Redis 5 says of TYPE
        ("XRANGE", b"s", "-", ")1"),  # as Redis 6.0 says of an exclusive range
    ],
)
def test_a_server_that_does_not_understand_a_command_is_too_old_and_not_worth_another_try(
    source, words
):
    with pytest.raises(RequestError, match=r"does not understand .* older than Redis 7\.0") as old:
        source.call(*words)
    assert old.value.exit_code == 2


def test_a_key_whose_slot_nobody_serves_is_worth_another_try():
    with valkey_server(config={"cluster-enabled": "yes"}) as server:
        # `open_servers` refuses a cluster without slots; a proxy may hide it.
        address = parse_address(server.url)
        wire = connection._wire(redis, address, None, {})
        connection._connect(address, wire, probe_s=0.4)
        source = Source(address, wire, Pacer(None))
        with source, pytest.raises(SourceUnreachableError, match="cannot answer now, try again"):
            source.call("XRANGE", b"s", "-", "+")


@pytest.mark.parametrize(
    "error", [MovedError("3999 h:2"), AskError("3999 h:2"), TryAgainError("Multiple keys")]
)
def test_a_redirection_names_the_key_and_is_worth_another_try(error):
    fault = reply_fault("h:1/0", ("XRANGE", b"s", "-", "+"), error)
    assert isinstance(fault, SlotMovedError)
    assert fault.exit_code == 75
    assert "h:1/0 does not serve key s, whose slot moves" in fault.message


@pytest.mark.usefixtures("client")  # it empties the server
def test_the_database_in_the_url_is_the_one_that_is_read(server):
    with redis.Redis(server.host, server.port, db=3) as other:
        other.xadd("s", {"a": "1"}, id="1-1")
    with open_source(server.url.replace("/0", "/3")) as source:
        assert source.label.endswith("/3")
        assert source.call("XLEN", b"s") == 1
    with open_source(server.url) as source:
        assert source.call("XLEN", b"s") == 0


# --- the network


@pytest.fixture
def silent_port():
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_where_nobody_listens_is_unreachable_and_worth_another_try():
    with socket.socket() as reserved:  # bound, but not listening: nobody else can take the port
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with pytest.raises(SourceUnreachableError, match="try again") as failed:
            open_source(f"redis://127.0.0.1:{port}", connect_timeout_s=5)
    assert failed.value.exit_code == 75
    assert failed.value.source == f"127.0.0.1:{port}/0"


def test_a_host_that_does_not_exist_is_unreachable():
    with pytest.raises(SourceUnreachableError, match=r"nowhere\.invalid:6379/0"):
        open_source("redis://nowhere.invalid")


def test_a_server_that_does_not_answer_in_time_is_unreachable(silent_port):
    with pytest.raises(SourceUnreachableError, match="did not answer in time"):
        open_source(f"redis://127.0.0.1:{silent_port}", timeout_s=0.05, connect_timeout_s=0.05)


def test_a_server_that_does_not_use_tls_is_told_within_a_second(server):
    started = time.monotonic()
    with pytest.raises(RequestError, match="does not use TLS") as refused:
        open_source(server.url.replace("redis:", "rediss:"))
    assert time.monotonic() - started < 1
    assert refused.value.exit_code == 2
    assert refused.value.message.endswith(f"begin the URL with redis://, as in {server.url}")


@pytest.fixture
def tls_server(tmp_path):
    """The port of a server that answers PING over TLS, and its certificate's file."""
    certificate, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost"
    words += " -addext subjectAltName=DNS:localhost -keyout"
    subprocess.run([*words.split(), key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Answer(socketserver.StreamRequestHandler):
        def handle(self):
            with (
                contextlib.suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as connected,
            ):
                while connected.recv(1000):
                    connected.sendall(b"-ERR unknown command 'x'\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as listener:
        listener.daemon_threads = True
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        yield listener.server_address[1], certificate
        listener.shutdown()


def test_a_server_that_uses_tls_is_told_within_a_second(tls_server):
    port, _ = tls_server
    started = time.monotonic()
    with pytest.raises(RequestError, match="uses TLS") as refused:
        open_source(f"redis://localhost:{port}")
    assert time.monotonic() - started < 1
    assert f"begin the URL with rediss://, as in rediss://localhost:{port}/0" in str(refused.value)


def test_a_certificate_that_cannot_be_verified_is_no_matter_of_trying_again(tls_server):
    port, certificate = tls_server
    with pytest.raises(RequestError, match=r"localhost:\d+/0 cannot be verified .*--ca-file"):
        open_source(f"rediss://localhost:{port}")
    source = connection.connect(f"rediss://localhost:{port}", ca_file=certificate)
    with source, pytest.raises(ClaimlibError, match="does not know ping"):
        source.call("PING")


def test_over_tls_certificate_and_host_name_are_verified(tmp_path):
    ca_file = tmp_path / "ca.pem"
    wire = connection._wire(redis, parse_address("rediss://h"), ca_file, {})
    assert isinstance(wire, redis.SSLConnection)
    assert (wire.cert_reqs, wire.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert wire.ca_certs == str(ca_file)


def test_a_certificate_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RequestError, match=r"ca\.pem does not exist"):
        open_source("rediss://h", ca_file=tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"junk", "has no certificate that can be read"),
        (b"", "has no certificate that can be read"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "has no certificate"),
        (None, "does not exist, or is a folder or a pipe"),
    ],
)
def test_a_certificate_file_without_certificates_is_named_and_not_the_server(
    server, tmp_path, content, why
):
    file = tmp_path / "ca.pem"
    file.mkdir() if content is None else file.write_bytes(content)
    with pytest.raises(RequestError, match=rf"certificate file {file} {why}.*: give a PEM file"):
        open_source(server.url.replace("redis:", "rediss:"), ca_file=file, timeout_s=0.05)


def test_a_certificate_file_for_a_connection_without_tls_is_refused(server, tmp_path):
    with pytest.raises(RequestError, match="begins with redis://: begin it with rediss://"):
        open_source(server.url, ca_file=tmp_path / "ca.pem")


def test_a_broken_connection_is_never_made_again_in_silence(client, source):
    connection_id = source.call("CLIENT", "ID")
    client.execute_command("CLIENT", "KILL", "ID", connection_id)
    with pytest.raises(SourceUnreachableError):
        source.call("TIME")
    with pytest.raises(SourceUnreachableError, match="open the source again"):
        source.call("TIME")


def test_a_closed_source_is_not_used_again(open_here):
    with open_here() as source:
        source.call("TIME")
    with pytest.raises(SourceUnreachableError, match="open the source again"):
        source.call("TIME")


def test_without_redis_py_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtraError, match=r"PATH\[redis\]"):
        open_source("redis://h")


# --- replies


def test_replies_are_bytes_as_the_server_holds_them(client, source):
    name = b"\xff\x00\\ \r\n"
    client.xadd(name, {name: name, b"": b""}, id="1-1")
    expected = [[b"1-1", [name, name, b"", b""]]]
    assert source.call("XRANGE", name, "-", "+") == expected
    assert source.transaction(("XRANGE", name, "-", "+"), ("XLEN", name)) == [expected, 1]


def test_a_transaction_raises_the_first_error_and_the_connection_stays_in_step(client, source):
    client.set("text", "x")
    with pytest.raises(WrongTypeError):
        source.transaction(("TIME",), ("XLEN", b"text"), ("XRANGE", b"text", "-", "+"))
    with pytest.raises(ClaimlibError, match="wrong number of arguments"):
        source.transaction(("XLEN",), ("TIME",))
    assert source.call("XLEN", b"none") == 0


def test_the_clock_stands_still_in_a_transaction(source):
    for _ in range(50):
        first, last = source.transaction(*[("TIME",)] * 20)[::19]
        assert first == last


# --- pace


class Clock:
    """A clock that only a sleep moves."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


def test_the_pacer_spreads_commands_evenly(clock):
    pacer = Pacer(4, clock=clock, sleep=clock.sleep)
    for _ in range(9):
        pacer.wait_for(1)
    assert clock.slept == [0.25] * 8


def test_commands_that_are_sent_together_are_paid_for_together(clock):
    pacer = Pacer(4, clock=clock, sleep=clock.sleep)
    pacer.wait_for(8)
    assert clock.slept == []
    pacer.wait_for(1)
    assert clock.slept == [2.0]


def test_an_idle_pacer_saves_nothing_up(clock):
    pacer = Pacer(4, clock=clock, sleep=clock.sleep)
    clock.now += 100
    pacer.wait_for(1)
    pacer.wait_for(1)
    assert clock.slept == [0.25]


def test_without_a_limit_nobody_waits(clock):
    pacer = Pacer(None, clock=clock, sleep=clock.sleep)
    for _ in range(5):
        pacer.wait_for(1000)
    assert clock.slept == []


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_limit_that_is_no_pace_is_refused(limit):
    with pytest.raises(RequestError, match="above 0"):
        Pacer(limit)


def test_a_source_counts_and_paces_every_command_it_sends(server, monkeypatch, clock):
    monkeypatch.setattr(
        connection, "Pacer", lambda limit: Pacer(limit, clock=clock, sleep=clock.sleep)
    )
    with open_source(server.url, max_commands_per_second=2) as source:
        source.transaction(("TIME",), ("TIME",))
        source.call("TIME")
        assert source.commands_sent == 3 + 4 + 1  # opening asks by HELLO and INFO, and for the time
        assert sum(clock.slept) == 3.5


class SlowSource:
    """Answers after times that are given, in seconds."""

    label = "127.0.0.1:1/0"

    def __init__(self, *latencies):
        self.latency_s, *self.others = latencies

    def call(self, *words):
        assert words == ("TIME",)
        self.latency_s = self.others.pop(0) if self.others else self.latency_s


def test_a_server_that_takes_too_long_is_left_in_peace(clock):
    told = []
    limit = LatencyLimit(20, told.append, sleep=clock.sleep)
    limit.wait([SlowSource(0.02)])
    assert (told, clock.slept) == ([], [])
    limit.wait([SlowSource(0.0201, 0.3, 0.02, 0.5)])
    assert told == [
        f"paused: 127.0.0.1:1/0 took {ms} ms to answer, more than --max-latency 20ms"
        for ms in ("20.1", "300.0")
    ]
    assert clock.slept == [0.5] * 2
    LatencyLimit(None, told.append, sleep=clock.sleep).wait([SlowSource(9)])
    assert len(told) == 2


def test_a_server_that_takes_too_long_for_five_minutes_is_an_error(clock):
    limit = LatencyLimit(20, lambda _: None, sleep=clock.sleep)
    message = "127.0.0.1:1/0 has taken more than --max-latency 20ms to answer, for 5 minutes"
    with pytest.raises(SourceUnreachableError, match=message):
        limit.wait([SlowSource(0.021)])
    assert sum(clock.slept) == 300


def test_a_source_measures_its_answers_and_not_its_own_pauses(server, monkeypatch, clock):
    monkeypatch.setattr(
        connection, "Pacer", lambda limit: Pacer(limit, clock=clock, sleep=clock.sleep)
    )
    with open_source(server.url, max_commands_per_second=1) as source:
        read, takes = source._read, iter([0.25, 1.5, 0.5, 0.125])

        def slow():
            clock.now += next(takes)
            return read()

        monkeypatch.setattr(source, "_read", slow)
        source.pipeline([("TIME",)] * 3)
        assert source.latency_s == 1.5
        source.call("TIME")
        assert source.latency_s == 0.125


# --- the test server


def test_a_test_server_ends_with_its_block_and_others_go_on(server):
    with valkey_server() as other:
        assert other.port != server.port
        client = other.client()
        assert client.ping()
        client.close()
    with pytest.raises(SourceUnreachableError):
        open_source(other.url)
    with open_source(server.url) as source:
        assert source.call("TIME")


def test_a_test_server_that_does_not_start_says_what_it_logged():
    with (
        pytest.raises(SourceUnreachableError, match="no-such-directive"),
        valkey_server(config={"no-such-directive": "1"}),
    ):
        pass


def test_a_test_server_has_the_users_and_the_configuration_it_was_given():
    with (
        valkey_server(users=["reader on >pw ~* +@all"], config={"databases": "2"}) as server,
        server.client(username="reader", password="pw") as client,
    ):
        assert client.config_get("databases") == {"databases": "2"}
