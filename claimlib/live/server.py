"""Ask a server for its state, and refuse servers that cannot be read.

HELLO returns mode and role to every user that is logged in, whatever the user's rights.  INFO needs
the right `+info`.  It also returns the ids of the process and of the history of the data.  It shows
whether the server is loading, and whether a replica is in sync with its master.  If HELLO is
renamed or disabled, claimlib takes mode and role from INFO.

claimlib does not read these servers:

- a sentinel, which has no keys;
- a server that is loading its data;
- a server that does not report its mode;
- a replica that is not in sync with its master;
- a replica if the user lacks the right to INFO.

An entry that a replica has not received yet would count as deleted.  An entry that was acknowledged
on the master meanwhile would count as pending.  A replica is in sync if all of this is true:

- its link to the master is up;
- it is not being synchronized;
- it has heard from the master within `MAX_SILENCE_S`;
- it has applied all that it had received when it was first asked.

A busy replica has often received only a part of a command, so claimlib asks again for up to a
second.  A master pings every 10 seconds (`repl-ping-replica-period`).  A replica passes the pings
on to its own replicas.  If a replica loses its master, its own replicas get no more pings, although
their link to it is up.
A replica cannot know how much the master has not sent yet.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from claimlib.errors import PermissionDeniedError, RequestError, SourceUnreachableError
from claimlib.live.batches import SourceOpened
from claimlib.live.replies import attributes

if TYPE_CHECKING:
    from claimlib.live.connection import Source

MAX_SILENCE_S = 20

_ASK_AGAIN_S = 0.05
_ASK_AGAIN_TIMES = 20

CLUSTER = "cluster"
"""The mode of a node of a cluster, which has only some of the keys (see `live.cluster`)."""
_MODES = ("standalone", CLUSTER)
_OTHER_MODES = {
    "sentinel": "a sentinel, which has no keys but watches the servers that have them",
}

_Info = dict[str, str]


class SlotMap(NamedTuple):
    """State which master of a cluster has which keys.

    Attributes:
        nodes: the nodes with their slots, as the servers describe them.  They are only compared, to
            see whether the slots have changed.  Empty for a single server.
        is_moving: True if keys are being moved from one server to another.
    """

    nodes: frozenset[tuple[object, ...]] = frozenset()
    is_moving: bool = False


@dataclass(frozen=True, slots=True)
class ServerState:
    """Describe a server.  Its three ids are those of `batches.SourceOpened`.

    Attributes:
        trims_in_order: True if XTRIM is known to delete the smallest ids only.  Redis 8.2 and later
            can skip entries that groups still need (XTRIM … ACKED).
    """

    mode: str | None = None
    role: str | None = None
    run_id: str | None = None
    replication_id: str | None = None
    former_replication_id: str | None = None
    trims_in_order: bool = False

    @property
    def ids(self) -> SourceOpened:
        """Return the ids of the server."""
        return SourceOpened(self.run_id, self.replication_id, self.former_replication_id)

    @property
    def is_replica(self) -> bool:
        """Return True if the server follows a master."""
        return self.role == "replica"


def ask_server(source: Source) -> ServerState:
    """Return the state of a server that can be read.

    Raises:
        RequestError: it is a sentinel, or its mode is unknown.
        PermissionDeniedError: the user lacks the right to INFO, and it is needed.
        SourceUnreachableError: it is loading, or a replica that is not in sync with its master.
    """
    state, info = _ask(source)
    _check_mode(source.label, state.mode)
    if "1" in (info.get("loading"), info.get("async_loading")):
        raise SourceUnreachableError(
            f"{source.label} is still loading its data: try again later", source=source.label
        )
    if state.is_replica:
        _check_in_sync(source, info)
    return state


def check_unchanged(source: Source, before: ServerState) -> None:
    """Raise an error if the server has changed its role, or is now a replica of other data.

    The caller must then discard what it has read.  A master may change its own replication id,
    because its data stay the same.

    Raises:
        SourceUnreachableError: it is not the same server any more.
    """
    now, _ = _ask(source)
    if now.role != before.role:
        change = f"was a {before.role} and is now a {now.role}"
    elif now.is_replica and now.replication_id != before.replication_id:
        change = "is now a replica of other data (its replication id changed)"
    else:
        return
    raise SourceUnreachableError(
        f"{source.label} {change}: the data that was read is discarded; try again",
        source=source.label,
    )


def key_count(source: Source) -> int | None:
    """Return the number of keys in all databases, or None if the user lacks the right to INFO."""
    info = _info(source)
    if not info:
        return None
    databases = (value for name, value in info.items() if re.fullmatch("db[0-9]+", name))
    return sum(int(value.partition("keys=")[2].partition(",")[0]) for value in databases)


def _ask(source: Source) -> tuple[ServerState, _Info]:
    hello, info = _hello(source), _info(source)
    role = hello.get("role", info.get("role"))
    state = ServerState(
        mode=hello.get("mode", info.get("redis_mode", info.get("server_mode"))),  # Redis, Valkey
        role="replica" if role == "slave" else role,
        run_id=_id_in(info, "run_id"),
        replication_id=_id_in(info, "master_replid"),
        former_replication_id=_id_in(info, "master_replid2"),
        trims_in_order=_trims_in_order(hello, info),
    )
    return state, info


def _id_in(info: _Info, name: str) -> str | None:
    """Return an id, or None if the server has none.  INFO then has zeros, or no such field."""
    return info.get(name) if info.get(name, "").strip("0") else None


def _trims_in_order(hello: dict[str, str], info: _Info) -> bool:
    if hello.get("server") == "valkey" or "valkey_version" in info:
        return True
    version = hello.get("version", info.get("redis_version", ""))
    parts = version.split(".")
    return all(part.isdigit() for part in parts[:2]) and tuple(map(int, parts[:2])) < (8, 2)


def _hello(source: Source) -> dict[str, str]:
    """Return the fields of HELLO, or an empty dict if it is renamed or disabled."""
    try:
        reply = attributes(source.call("HELLO"))
    except PermissionDeniedError:  # `faults` also raises it for an unknown command
        return {}
    return {key.decode(): reply[key].decode() for key in _OF_HELLO if key in reply}


_OF_HELLO = (b"mode", b"role", b"server", b"version")


def _info(source: Source) -> _Info:
    """Return the fields of INFO, or an empty dict if the user lacks the right to it."""
    try:
        text: bytes = source.call("INFO")
    except PermissionDeniedError:
        return {}
    lines = text.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


def _check_mode(label: str, mode: str | None) -> None:
    if mode is None:
        raise PermissionDeniedError(
            f"{label} does not report its mode (standalone or cluster), because HELLO is renamed"
            " or disabled: grant the user +info",
            source=label,
            command="info",
            key=None,
        )
    if mode not in _MODES:
        what = _OTHER_MODES.get(mode, f"a server of the mode {mode!r}")
        raise RequestError(
            f"{label} is {what}: give the address of a server. A sentinel's URL begins with"
            " redis+sentinel:// and names a master",
            source=label,
            mode=mode,
        )


def _check_in_sync(source: Source, info: _Info) -> None:
    if not info:
        raise PermissionDeniedError(
            f"{source.label} is a replica, and the user has no permission to ask whether it is "
            "in sync with its master: grant +info, or read the master",
            source=source.label,
            command="info",
            key=None,
        )
    arrived = _number(info, "slave_read_repl_offset", absent=0)
    for _ in range(_ASK_AGAIN_TIMES):
        if reason := _lost_contact(info):
            raise _out_of_sync(source, info, reason)
        missing = arrived - _number(info, "slave_repl_offset", absent=arrived)
        if missing <= 0:
            return
        time.sleep(_ASK_AGAIN_S)
        info = _info(source)
    raise _out_of_sync(
        source, info, f"it has received {missing:,} bytes that it has not applied yet"
    )


def _lost_contact(info: _Info) -> str | None:
    """Return the reason if a replica may have lost contact with its master, else None."""
    if info.get("master_sync_in_progress") == "1":
        return "it is being synchronized"
    if info.get("master_link_status") != "up":
        return "its link to the master is down"
    silent_s = _number(info, "master_last_io_seconds_ago", absent=-1)
    if silent_s < 0:
        return "it does not report when it last heard from the master"
    if silent_s > MAX_SILENCE_S:
        return f"it last heard from the master {silent_s} s ago (more than {MAX_SILENCE_S} s)"
    return None


def _out_of_sync(source: Source, info: _Info, reason: str) -> SourceUnreachableError:
    master = f"{info.get('master_host')}:{info.get('master_port')}"
    return SourceUnreachableError(
        f"{source.label} is a replica that is not in sync with its master {master}: {reason}; try "
        "again later, or read the master",
        source=source.label,
        reason=reason,
    )


def _number(info: _Info, name: str, *, absent: int) -> int:
    return int(info.get(name, absent))
