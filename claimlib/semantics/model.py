"""Define the values that the other modules use: requests, the state of one group, and decisions.

All values are frozen, and are checked when they are created.  So a value that exists is valid.
Names contain the unit: `_ms` means milliseconds.  Points in time are in milliseconds since the
epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from itertools import pairwise
from numbers import Integral

from claimlib.errors import RequestError, StateError
from claimlib.semantics.ids import MAX_U64, MIN_ID, StreamId
from claimlib.semantics.names import glob_pattern, is_utf8

MAX_I64 = 2**63 - 1
COUNT_MAX = 576460752303423487
"""The largest COUNT that the server accepts: LONG_MAX / sizeof(streamID)."""
DELIVERY_COUNT_MAX = MAX_I64
DEFAULT_COUNT = 100
DEFAULT_MAX_REMOVED_SHARE = 0.5
"""See `RemovalLimits`."""
SCAN_BUDGET_FACTOR = 10
"""An XAUTOCLAIM examines at most this factor times COUNT pending entries."""


class IdleRule(StrEnum):
    """Name the rules for an entry whose idle time equals min-idle exactly.

    DOCUMENTED: it is not claimed.  The documentation of the command says "pending for more than".
    SERVER: it is claimed, as on every server.

    Examples:
        >>> AutoclaimRequest(b"reclaimer", 900_000, idle_rule=IdleRule.SERVER).idle_rule.value
        'server'
    """

    DOCUMENTED = "documented"
    SERVER = "server"


class Profile(StrEnum):
    """Name the servers whose behavior is followed.

    REDIS_7_2: Redis 7.2 to 8.6, Valkey 8 and 9.1.
    REDIS_7_0: Redis 7.0.5 to 7.0.15.  A call creates its consumer and sets the seen time only if it
        claims an entry.  Consumers have no active time.

    Examples:
        >>> Profile("redis-7.0").name
        'REDIS_7_0'
    """

    REDIS_7_2 = "redis-7.2"
    REDIS_7_0 = "redis-7.0"


class Outcome(IntEnum):
    """Name the outcomes for one examined pending entry, or for one requested id.

    LEFT: the entry did not change.
    CLAIMED: the entry has a new owner.
    DELETED: the entry left the PEL, because the stream no longer has it.
    PARKED: the entry was claimed for the parking consumer.
    NOT_PENDING: nothing happened, because the id is not in the PEL.
    FORCED: the id became pending, and the caller owns it.
    SUPERSEDED: the entry was claimed, and was claimed again later in the same run.
    """

    LEFT = 0
    CLAIMED = 1
    DELETED = 2
    PARKED = 3
    NOT_PENDING = 4
    FORCED = 5
    SUPERSEDED = 6


def parse_run_id(text: str) -> str:
    """Return the caller's name for a run, unchanged.

    Raises:
        RequestError: the name is empty, is only white space, or is not UTF-8.  An empty name is not
            replaced by a generated one, because a retry would then do everything again.  Names that
            are not UTF-8 cannot be stored in a table.
    """
    return _checked_name(
        "the run id", text, "give a name, so that a retry changes nothing", "run_id"
    )


def parse_cursor(text: str) -> str:
    """Return the caller's name for a cursor.

    Raises:
        RequestError: the name is empty, is only white space, or is not UTF-8.
    """
    return _checked_name("the cursor's name", text, "name it", "cursor")


def _checked_name(what: str, text: str, remedy: str, option: str) -> str:
    if not text.strip():
        leave_out = f"leave --{option.replace('_', '-')} out"
        raise RequestError.of_empty(what, f"{remedy}, or {leave_out}", option=option)
    if not is_utf8(text):
        raise RequestError(
            f"{what} {text!a} is not valid UTF-8: give a name in UTF-8", option=option
        )
    return text


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """Hold one delivery that was not acknowledged.

    Attributes:
        id: the stream entry that was delivered.
        consumer: the owner.  None if the server knows no owner.
        delivery_time_ms: the time of the last delivery, 0 … 2^63-1.  A claim counts as a delivery.
        delivery_count: the number of deliveries, 0 … 2^63-1.

    Raises:
        StateError: a number is out of range.
    """

    id: StreamId
    consumer: bytes | None
    delivery_time_ms: int
    delivery_count: int

    def __post_init__(self) -> None:
        _check_id(self.id, "id")
        _check_i64(self.delivery_time_ms, "delivery_time_ms")
        _check_i64(self.delivery_count, "delivery_count")


@dataclass(frozen=True, slots=True)
class Consumer:
    """Hold one consumer of a group.

    Attributes:
        name: any bytes.
        seen_time_ms: the time when the consumer last tried to get entries.
        active_time_ms: the time when the consumer last got an entry.  None if never or unknown.

    Raises:
        StateError: a number is out of range.
    """

    name: bytes
    seen_time_ms: int
    active_time_ms: int | None

    def __post_init__(self) -> None:
        _check_i64(self.seen_time_ms, "seen_time_ms")
        if self.active_time_ms is not None:
            _check_i64(self.active_time_ms, "active_time_ms")


@dataclass(frozen=True, slots=True)
class Group:
    """Hold the state of one consumer group of one stream.

    Attributes:
        last_delivered_id: the last id that was delivered to any of its consumers.
        pending: the pending entries list (PEL), sorted by id, each id once.
        consumers: the consumers, sorted by name, each name once.

    Raises:
        StateError: `pending` or `consumers` is not sorted, or an id is out of range.
    """

    last_delivered_id: StreamId
    pending: tuple[PendingEntry, ...]
    consumers: tuple[Consumer, ...]

    def __post_init__(self) -> None:
        _check_id(self.last_delivered_id, "last_delivered_id")
        for entry, next_entry in pairwise(self.pending):
            if entry.id >= next_entry.id:
                raise StateError(
                    "pending must be sorted by id, each id once:"
                    f" {next_entry.id} follows {entry.id}",
                    field="pending",
                )
        for consumer, next_consumer in pairwise(self.consumers):
            if consumer.name >= next_consumer.name:
                raise StateError(
                    "consumers must be sorted by name, each name once:"
                    f" {next_consumer.name!r} follows {consumer.name!r}",
                    field="consumers",
                )


@dataclass(frozen=True, slots=True)
class RemovalLimits:
    """Limit the rows that a snapshot or an import may remove from a store.

    A snapshot or an import that would remove more is refused.

    Attributes:
        allow_empty: True if a source without rows may empty a store that has rows.
        max_removed_share: the largest share (0 to 1) of a stream's rows in the store that may be
            removed if the source does not explain it (see `plans.differences`).  It applies to the
            rows of `pending` and of `entries`, of each stream and of all streams together.  1 means
            no limit.

    Raises:
        RequestError: the share is not between 0 and 1.

    Examples:
        >>> RemovalLimits(max_removed_share=0.1)
        RemovalLimits(allow_empty=False, max_removed_share=0.1)
    """

    allow_empty: bool = False
    max_removed_share: float = DEFAULT_MAX_REMOVED_SHARE

    def __post_init__(self) -> None:
        """Check that the share is between 0 and 1."""
        _check_share(self.max_removed_share, "max_removed_share")

    def as_json(self) -> dict[str, object]:
        """Return the limits as the request of a run contains them."""
        return {"allow_empty": self.allow_empty, "max_removed_share": self.max_removed_share}


@dataclass(frozen=True, slots=True)
class Guards:
    """Limit a request beyond what the server's command does.

    Without any guard, and with `IdleRule.SERVER`, a request has exactly the result that it
    has on the server.  A guard that is
    None is not set.

    Attributes:
        max_claims: a group is refused if the request would claim more of its entries.
        max_deleted_share: a group is refused if the request would delete a larger share (0 to 1)
            of its pending entries.
        only_from: a Redis glob.  Entries are claimed only from consumers with a matching name, so
            entries without an owner are not claimed.
        only_consumers_idle_ms: a consumer keeps its entries if it was active within this time.  If
            it has no active time, its seen time counts.  If its idle time is exactly this, the idle
            rule decides.  Owners that are not among the group's consumers always keep their
            entries.  With 0, no consumer of the group does.  Entries without an owner are not
            spared.
        max_deliveries: a claimable entry with at least this number of deliveries goes to
            `parking_consumer` as with JUSTID, and stays with it.
        parking_consumer: the consumer that gets these entries.  It and `max_deliveries` must both
            be set, or neither.

    Raises:
        RequestError: a number is out of range, `only_from` is not UTF-8, or only one of
            `max_deliveries` and `parking_consumer` is set.
        GlobError: see `names.glob_pattern`.

    Examples:
        >>> guards = Guards(only_from="worker-*", max_claims=100_000)
        >>> AutoclaimRequest(b"reclaimer", 900_000, guards=guards).guards.max_claims
        100000
    """

    max_claims: int | None = None
    max_deleted_share: float | None = None
    only_from: str | None = None
    only_consumers_idle_ms: int | None = None
    max_deliveries: int | None = None
    parking_consumer: bytes | None = None

    def __post_init__(self) -> None:
        _check_limit(self.max_claims, "max_claims", 0)
        _check_limit(self.only_consumers_idle_ms, "only_consumers_idle_ms", 0)
        _check_limit(self.max_deliveries, "max_deliveries", 1)
        _check_share(self.max_deleted_share, "max_deleted_share")
        if self.only_from is not None:
            glob_pattern(self.only_from)
            if not is_utf8(self.only_from):
                raise RequestError(
                    "only_from must be UTF-8; use ? to match other bytes", field="only_from"
                )
        if (self.max_deliveries is None) != (self.parking_consumer is None):
            raise RequestError(
                "max_deliveries and parking_consumer need each other: give both (--max-deliveries"
                " and --parking-consumer), or neither",
                field="max_deliveries",
            )


@dataclass(frozen=True, slots=True)
class AutoclaimRequest:
    """Describe one XAUTOCLAIM, without the names of stream and group.

    Attributes:
        consumer: the consumer that gets the entries.
        min_idle_ms: how long an entry must have been idle.  0 means no idle test.
        start: the first id to examine.
        count: the largest number of entries to claim or delete.  None means a sweep, which repeats
            the command with the returned cursor until the cursor is 0-0.  All repeats use the same
            time as now.
        justid: True if delivery counts stay as they are.  The reply then has ids without fields.
        idle_rule: the rule for entries that were idle for exactly `min_idle_ms`.
        profile: the servers whose behavior is followed.
        guards: limits beyond what the server's command does.

    Raises:
        RequestError: `min_idle_ms` or `count` is out of range, or the consumer is the parking
            consumer.

    Examples:
        >>> AutoclaimRequest(b"reclaimer", min_idle_ms=parse_duration_ms("15m")).min_idle_ms
        900000
        >>> AutoclaimRequest(b"reclaimer", min_idle_ms=-1)
        Traceback (most recent call last):
        claimlib.errors.RequestError: min_idle_ms must be between 0 and 2^63-1, not -1
    """

    consumer: bytes
    min_idle_ms: int
    start: StreamId = MIN_ID
    count: int | None = None
    justid: bool = False
    idle_rule: IdleRule = IdleRule.DOCUMENTED
    profile: Profile = Profile.REDIS_7_2
    guards: Guards = field(default_factory=Guards)

    def __post_init__(self) -> None:
        _check_limit(self.min_idle_ms, "min_idle_ms", 0)
        _check_whole(self.count, "count")
        if self.count is not None and not 1 <= self.count <= COUNT_MAX:
            raise RequestError(
                f"count must be between 1 and {COUNT_MAX}, not {self.count}; leave it out to"
                " process the whole group",
                field="count",
                value=self.count,
            )
        if self.consumer == self.guards.parking_consumer:
            raise RequestError(
                "parking_consumer and consumer must be different consumers",
                field="parking_consumer",
            )


@dataclass(frozen=True, slots=True)
class AutoclaimReply:
    """Hold the reply of an XAUTOCLAIM.

    Attributes:
        cursor: the id of the first pending entry that was not examined.  0-0 if there is none.
        claimed: the ids that the consumer (or the parking consumer) got, ascending.
        deleted: the ids that left the PEL because the stream no longer has them, ascending.
    """

    cursor: StreamId
    claimed: tuple[StreamId, ...]
    deleted: tuple[StreamId, ...]


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Describe one XCLAIM, without the names of stream and group.

    Attributes:
        consumer: the consumer that gets the entries.
        min_idle_ms: how long an entry must have been idle.  0 means no idle test.
        ids: the ids to claim, in this order.  An id may occur twice.  The tuple may be empty.
        idle_ms: the new idle time of the entries, or None.
        time_ms: the new delivery time of the entries, or None.  If `idle_ms` is None, too, the new
            delivery time is the time of the call.
        retrycount: the new delivery count of the entries.  None raises the count by one, or keeps
            it with JUSTID.
        force: True if ids that are not pending are claimed, too.
        justid: True if delivery counts stay as they are.  The reply then has ids without fields.
        last_id: the group's last delivered id is raised to this id.  None leaves it as it is.
        idle_rule: the rule for entries that were idle for exactly `min_idle_ms`.
        profile: the servers whose behavior is followed.

    Raises:
        RequestError: a number is out of range, or both `idle_ms` and `time_ms` are given.

    Examples:
        >>> claim = ClaimRequest(b"alice", min_idle_ms=0, ids=(parse_id("5-3"), parse_id("5-4")))
        >>> len(claim.ids)
        2
    """

    consumer: bytes
    min_idle_ms: int
    ids: tuple[StreamId, ...]
    idle_ms: int | None = None
    time_ms: int | None = None
    retrycount: int | None = None
    force: bool = False
    justid: bool = False
    last_id: StreamId | None = None
    idle_rule: IdleRule = IdleRule.DOCUMENTED
    profile: Profile = Profile.REDIS_7_2

    def __post_init__(self) -> None:
        _check_limit(self.min_idle_ms, "min_idle_ms", 0)
        _check_limit(self.idle_ms, "idle_ms", -MAX_I64 - 1)
        _check_limit(self.time_ms, "time_ms", -MAX_I64 - 1)
        _check_limit(self.retrycount, "retrycount", 0)
        if self.idle_ms is not None and self.time_ms is not None:
            raise RequestError(
                "idle_ms (--idle) and time_ms (--time) both set the delivery time: give only one of"
                " them",
                field="idle_ms",
            )


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """Hold the reply of an XCLAIM, and the deleted ids.

    Attributes:
        claimed: the ids that the consumer got, in the order of the request.
        deleted: the ids that left the PEL because the stream no longer has them, in the same
            order.  The server does not report them.
    """

    claimed: tuple[StreamId, ...]
    deleted: tuple[StreamId, ...]


@dataclass(frozen=True, slots=True)
class PendingRange:
    """Describe the range form of XPENDING.

    Attributes:
        start, end: the first and the last id of the range.
        count: the largest number of rows.  0 or less means no rows.
        min_idle_ms: the least idle time of the entries.  None or 0 means all entries.  With -1000,
            entries are excluded whose delivery time is more than 1000 ms in the future.
        consumer: the owner of the entries.  None means any owner.

    Examples:
        >>> PendingRange(MIN_ID, MAX_ID, count=10, consumer=b"bob").consumer
        b'bob'
    """

    start: StreamId
    end: StreamId
    count: int
    min_idle_ms: int | None = None
    consumer: bytes | None = None


@dataclass(frozen=True, slots=True)
class PendingSummary:
    """Hold the summary form of XPENDING.

    Attributes:
        number: the number of pending entries.
        smallest, largest: the first and the last pending id.  None if no entry is pending.
        consumers: each consumer that owns pending entries, with their number, sorted by name.
    """

    number: int
    smallest: StreamId | None
    largest: StreamId | None
    consumers: tuple[tuple[bytes, int], ...]


def _check_id(stream_id: StreamId, field: str) -> None:
    if not (0 <= stream_id.ms <= MAX_U64 and 0 <= stream_id.seq <= MAX_U64):
        raise StateError(
            f"{field} must be two unsigned 64-bit numbers, not {stream_id}",
            field=field,
            value=stream_id,
        )


def _check_share(share: float | None, name: str) -> None:
    if share is not None and not 0 <= share <= 1:
        raise RequestError(
            f"{name} must be between 0 and 1, not {share}: 5 % is 0.05", field=name, value=share
        )


def _check_whole(number: object, field: str) -> None:
    if number is not None and not isinstance(number, Integral):
        remedy = ": write parse_duration_ms('15m')" if field.endswith("_ms") else ""
        raise RequestError(
            f"{field} must be a whole number, not {number!r}{remedy}", field=field, value=number
        )


def _check_limit(number: int | None, field: str, least: int) -> None:
    _check_whole(number, field)
    if number is not None and not least <= number <= MAX_I64:
        raise RequestError(
            f"{field} must be between {least} and 2^63-1, not {number}", field=field, value=number
        )


def _check_i64(number: int, field: str) -> None:
    if not 0 <= number <= MAX_I64:
        raise StateError(
            f"{field} must be between 0 and 2^63-1, not {number}", field=field, value=number
        )
