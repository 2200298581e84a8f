"""Open one connection to one server, and send commands over it.

A snapshot needs at least these rights of the server's user (an access rule, as in `ACL SETUSER`):

    reader on >PASSWORD %R~* -@all +info +scan +time +multi +exec +xinfo|stream +xinfo|groups
        +xinfo|consumers +xpending +xrange +eval_ro

`+info` may be missing.  The server's run id and replication id are then not known.  A replica is
then refused, because claimlib cannot find out if it is in sync (`live.server`).

`+eval_ro` may be missing.  The payloads of entries that are not pending then cross the network, and
are dropped here.  One reply may then be large, if large entries follow small ones (`live.entries`).

If `+info` or `+eval_ro` is missing, the server notes the refusal in its `ACL LOG`, without harm.
HELLO needs no right, because every user may send it.  If HELLO is renamed or disabled, `+info` is
needed.

A database other than 0 needs `+select`.  A cluster needs `+cluster|nodes`.  redis-py introduces
itself with `CLIENT SETINFO`.  If `+client|setinfo` is missing, the server refuses this and notes it
in its `ACL LOG`, too.  `%R~orders:*` instead of `%R~*` confines the user to some streams.  The
stream glob must then be as narrow, because SCAN also names the other streams.

Writeback has another user.  `live.writing` states its rights.

redis-py's `Connection` is used directly.  It has the socket, TLS, login and protocol.  A client
object would also convert stream replies, and reconnect silently.  Here, a connection that breaks is
an error, because another server may answer next.  This server may be a replica that lags, or may
have been restarted without data.  Entries that it lacks would count as deleted.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, Unpack

from claimlib.errors import (
    ClaimlibError,
    MissingExtraError,
    RequestError,
    SourceUnreachableError,
)
from claimlib.live.address import Address, parse_address, read_password, source_label
from claimlib.live.pacer import Pacer
from claimlib.live.server import ServerState, SlotMap, ask_server
from claimlib.live.tls import (
    speaks_plain_text,
    speaks_tls,
    unverified_certificate,
    wrong_scheme,
)
from claimlib.places import shown_path

if TYPE_CHECKING:
    from claimlib.live.batches import MasterDown, SourceOpened
    from claimlib.live.faults import Word

__all__ = [
    "DEFAULT_COMMANDS_PER_SECOND",
    "Source",
    "connect",
    "open_source",
    "read_password",
    "source_label",
]

DEFAULT_COMMANDS_PER_SECOND = 500

_TLS_PROBE_S = 0.4
"""Seconds to wait for the answer that shows if a server uses TLS."""


class _Wire(Protocol):
    """Declare the methods of redis-py's `Connection` that are used."""

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def pack_commands(self, commands: Sequence[Sequence[Word]]) -> list[bytes]: ...

    def send_packed_command(self, command: list[bytes]) -> None: ...

    def read_response(self, *, disable_decoding: bool) -> Any: ...


class Source:
    """Hold a connection to one database of one server.  Replies are bytes, as the server sent them.

    A source also has the methods of a cluster (`live.cluster.Cluster`), like a cluster with one
    master.  So readers and writers use both in the same way.

    Attributes:
        address: the address of the server.
        label: `host:port/db`, without credentials.
        server: the state that the server reported when the source was opened.
        commands_sent: the number of commands that were sent, including MULTI and EXEC.
        latency_s: the seconds that the server took for its last answer.  If commands were sent
            together, it is the longest time to the next answer.
    """

    def __init__(self, address: Address, wire: _Wire, pacer: Pacer) -> None:
        self.address = address
        self.label = address.label
        self.server = ServerState()
        self.commands_sent = 0
        self.latency_s = 0.0
        self._wire = wire
        self._pacer = pacer
        self._usable = True

    def __repr__(self) -> str:
        return f"Source({self.label!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def nodes(self) -> tuple[Source, ...]:
        """Return all servers: this one."""
        return (self,)

    @property
    def down(self) -> tuple[MasterDown, ...]:
        """Return the masters that do not answer: none."""
        return ()

    @property
    def ids(self) -> SourceOpened:
        """Return the ids of the server."""
        return self.server.ids

    @property
    def slots(self) -> dict[Source, int]:
        """Return the number of slots of each server, 0 for a single server."""
        return {self: 0}

    def slot_map(self) -> SlotMap:
        """Return the slot map of a single server, which has all keys."""
        return SlotMap()

    def source_of(self, stream: bytes) -> Source:
        """Return the server that has a stream: this one."""
        del stream
        return self

    def close(self) -> None:
        """End the connection.  The source cannot be used any more."""
        self._usable = False
        self._wire.disconnect()

    def call(self, *words: Word) -> Any:
        """Send a command, and return its reply.

        Raises:
            SourceError: the connection broke, or the server answered with an error.
        """
        (reply,) = self._replies([words])
        return self._checked(words, reply)

    def transaction(self, *commands: Sequence[Word]) -> list[Any]:
        """Send commands as one transaction, and return their replies.

        Redis from 7.2 on and Valkey run them at one time of the server's clock.

        Raises:
            SourceError: see `call`.  This is the error of the first command that failed.
        """
        sent: list[Sequence[Word]] = [("MULTI",), *commands, ("EXEC",)]
        *queued, executed = self._replies(sent)
        # If a command is refused when it is queued, its reply has the reason.  The reply to EXEC
        # only shows that a command was refused.
        for words, reply in zip(sent, queued, strict=False):
            self._checked(words, reply)
        results = self._checked(("EXEC",), executed)
        return [self._checked(words, reply) for words, reply in zip(commands, results, strict=True)]

    def pipeline(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """Send commands together, and return their replies.  The server runs them one by one.

        If the server answered a command with an error, the reply to this command is the error.

        Raises:
            SourceUnreachableError: the connection broke.
        """
        replies = self._replies(commands)
        return [self._or_fault(*pair) for pair in zip(commands, replies, strict=True)]

    def _replies(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """Return the server's reply to each command.  Errors are returned too, and not raised."""
        from redis.exceptions import RedisError

        from claimlib.live.faults import transport_fault

        if not self._usable:
            raise SourceUnreachableError(
                f"the connection to {self.label} is closed: open the source again",
                source=self.label,
            )
        self._pacer.wait_for(len(commands))
        self.commands_sent += len(commands)
        self._usable = False  # until every reply is read: an interruption leaves replies unread
        try:
            times = [self._pacer.clock()]
            self._wire.send_packed_command(self._wire.pack_commands(commands))
            replies = []
            for _ in commands:
                replies.append(self._read())
                times.append(self._pacer.clock())
        except RedisError as error:
            raise transport_fault(self.label, error) from error
        self._usable = True
        self.latency_s = max((after - before for before, after in pairwise(times)), default=0.0)
        return replies

    def _read(self) -> Any:
        from redis.exceptions import ResponseError

        try:
            return self._wire.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    def _checked(self, words: Sequence[Word], reply: Any) -> Any:
        checked = self._or_fault(words, reply)
        if isinstance(checked, ClaimlibError):
            raise checked from reply
        return checked

    def _or_fault(self, words: Sequence[Word], reply: Any) -> Any:
        """Return a reply, or the ClaimlibError for it if the reply is an error of the server."""
        from redis.exceptions import ResponseError

        from claimlib.live.faults import reply_fault

        return reply_fault(self.label, words, reply) if isinstance(reply, ResponseError) else reply


class ConnectOptions(TypedDict, total=False):
    """List the options of `connect` besides the URL.

    `connect` describes each of them and has their defaults.
    """

    password: str | None
    username: str | None
    ca_file: Path | None
    connect_timeout_s: float
    timeout_s: float
    max_commands_per_second: float | None


def open_source(url: str, **options: Unpack[ConnectOptions]) -> Source:
    """Connect, log in, and ask the server for its state.

    A node of a cluster can be opened, too.  It has only some of the streams (`live.cluster`).

    Args:
        url: a URL for `connect`.
        options: the options of `connect`.

    Raises:
        MissingExtraError: redis-py is not installed.
        RequestError: see `connect`.  Also if the address is that of a sentinel.
        SourceUnreachableError: the server does not answer, or is loading its data.  Also if the
            server is a replica that is not in sync with its master (see `live.server`).
        AuthenticationFailedError: the user or the password is wrong, or a required one is missing.
        PermissionDeniedError: the user lacks the right to TIME, or to INFO if INFO is needed.
    """
    source = connect(url, **options)
    try:
        source.server = ask_server(source)
        if db := parse_address(url).db:
            source.call("SELECT", db)
        source.call("TIME")
    except BaseException:
        source.close()
        raise
    return source


def connect(
    url: str,
    *,
    password: str | None = None,
    username: str | None = None,
    ca_file: Path | None = None,
    connect_timeout_s: float = 5.0,
    timeout_s: float = 30.0,
    max_commands_per_second: float | None = DEFAULT_COMMANDS_PER_SECOND,
) -> Source:
    """Connect and log in to database 0 of a server, and send no other command.

    This needs no right.  The state of the server (`Source.server`) is not known yet.

    Args:
        url: `redis://[USER@]HOST[:PORT][/DB]`, `rediss://` for TLS.  Never with a password.
        password: None means no login.  If a user is named, it means a user without a password
            (`nopass`).
        username: the user, if the URL names none.  None means the URL's user, or the server's
            default user.
        ca_file: certificates to trust for TLS besides the system's.  Certificates are always
            verified.
        connect_timeout_s: seconds to wait for the connection.
        timeout_s: seconds to wait for each reply, and for the TLS handshake.
        max_commands_per_second: the limit on commands, including MULTI and EXEC.  None means no
            limit.  A command that reads a page of rows counts as one command, and so does a script.

    Raises:
        MissingExtraError: redis-py is not installed.
        RequestError: the URL cannot be used, or an option contradicts it.  Also if the URL is wrong
            about TLS, or the server's certificate cannot be verified.
        SourceUnreachableError: the server does not answer.
        AuthenticationFailedError: the user or the password is wrong, or a required one is missing.
    """
    address = parse_address(url)
    if username is not None and address.username not in (None, username):
        raise RequestError("the URL names one user and the option another: give one of them")
    if ca_file is not None:
        _check_certificates(address, ca_file)
    pacer = Pacer(max_commands_per_second)
    options = {
        "username": username or address.username,
        "password": password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": connect_timeout_s,
    }
    wire = _wire(_redis(), address, ca_file, options)
    _connect(address, wire, min(_TLS_PROBE_S, connect_timeout_s, timeout_s))
    return Source(address, wire, pacer)


def _check_certificates(address: Address, file: Path) -> None:
    """Raise RequestError if the file has no certificates, or if the URL is not for TLS.

    If the file has no certificates, redis-py only reports that the server cannot be reached.
    Without TLS, redis-py would ignore the file.
    """
    if not address.tls:
        raise RequestError(
            "a certificate file is for TLS, and the URL begins with redis://: begin it with"
            " rediss://, or leave out the certificate file",
            ca_file=str(file),
        )
    file = shown_path(file)
    try:
        why = None if file.is_file() else "does not exist, or is a folder or a pipe"
        if why is None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:  # comes first, because it is an OSError, too
        why = "has no certificate that can be read"
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    if why is not None:
        raise RequestError(f"the certificate file {file} {why}: give a PEM file", ca_file=str(file))


def _redis() -> ModuleType:
    try:
        import redis
    except ImportError as error:
        raise MissingExtraError.for_package("redis", "redis") from error
    return redis


def _wire(
    redis: ModuleType, address: Address, ca_file: Path | None, options: dict[str, Any]
) -> _Wire:
    kind = redis.SSLConnection if address.tls else redis.Connection
    if address.tls:
        options = options | {
            "ssl_cert_reqs": "required",
            "ssl_check_hostname": True,
            "ssl_ca_certs": str(ca_file) if ca_file else None,
        }
    # With protocol 2, all servers reply with nested lists.  With protocol 3, some replies are maps.
    wire: _Wire = kind(
        host=address.host,
        port=address.port,
        db=0,  # `open_source` selects another one later, because a cluster has no others
        protocol=2,
        socket_keepalive=True,
        **options,
    )
    return wire


def _connect(address: Address, wire: _Wire, probe_s: float) -> None:
    from redis.exceptions import RedisError, ResponseError

    from claimlib.live.faults import reply_fault, transport_fault

    # If the server does not use TLS, the handshake would wait for the whole timeout of a reply.
    if address.tls and not speaks_tls(address, probe_s) and speaks_plain_text(address, probe_s):
        raise wrong_scheme(address)
    try:
        wire.connect()
    except ResponseError as error:
        raise reply_fault(address.label, ("AUTH",), error) from error
    except RedisError as error:
        if isinstance(refused := error.__context__, ssl.SSLCertVerificationError):
            raise unverified_certificate(address, refused.verify_message) from error
        if not address.tls and speaks_tls(address, probe_s):
            raise wrong_scheme(address) from error
        raise transport_fault(address.label, error) from error
