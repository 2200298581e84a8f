"""Turn the server's replies (protocol 2: nested lists of bytes and numbers) into rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from claimlib.errors import RequestError
from claimlib.live.batches import ConsumerRow, Fields, PendingRow
from claimlib.semantics.ids import StreamId
from claimlib.semantics.stream_life import StreamCounters

_NEVER_ACTIVE = -1


@contextmanager
def parsing_reply(label: str, command: str) -> Iterator[None]:
    """Raise RequestError if the code in the context cannot parse a reply.

    Otherwise a reply of another form would look like a fault of claimlib.

    Raises:
        RequestError: the reply does not have the form that every known server returns.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        lacks_field = isinstance(error, KeyError) and isinstance(error.args[0], bytes)
        reason = f"it has no {error.args[0].decode()}" if lacks_field else error
        raise RequestError(
            f"the reply of {label} to {command} cannot be understood ({reason}): claimlib knows the"
            " replies of Redis 7 and of Valkey; check whether a proxy or another server answers"
            " there",
            source=label,
            command=command,
        ) from error


def stream_id(raw: bytes) -> StreamId:
    """Return the id that a server wrote.

    This is faster than `ids.parse_id`, which accepts every form that users write.
    """
    ms, _, seq = raw.partition(b"-")
    return StreamId(int(ms), int(seq))


def time_ms(reply: Sequence[bytes]) -> int:
    """Return the milliseconds of TIME's seconds and microseconds.

    Fractions of a millisecond are cut off, as the server does with its own clock.
    """
    seconds, microseconds = reply
    return int(seconds) * 1000 + int(microseconds) // 1000


def attributes(reply: Sequence[Any]) -> dict[bytes, Any]:
    """Return a dictionary of the names and values that alternate in a list of XINFO."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def stream_counters(reply: Sequence[Any]) -> StreamCounters:
    """Return the counters of XINFO STREAM.  Servers before Redis 7.0 have only some of them."""
    state = attributes(reply)
    first, max_deleted = (
        None if raw is None else stream_id(raw)
        for raw in (state.get(b"recorded-first-entry-id"), state.get(b"max-deleted-entry-id"))
    )
    return StreamCounters(
        length=state[b"length"],
        last_generated_id=stream_id(state[b"last-generated-id"]),
        entries_added=state.get(b"entries-added"),
        first_id=first,
        max_deleted_id=max_deleted,
    )


def fields(reply: Sequence[bytes]) -> Fields:
    """Return an entry's names and values in their order, including repeated names."""
    return tuple(zip(reply[::2], reply[1::2], strict=True))


def pending_rows(reply: Sequence[Sequence[Any]], now_ms: int) -> tuple[PendingRow, ...]:
    """Return the rows of a page of XPENDING that was read at `now_ms` of the server's clock."""
    return tuple(
        PendingRow(stream_id(raw), consumer, now_ms - idle_ms, delivery_count)
        for raw, consumer, idle_ms, delivery_count, *_ in reply  # later servers may add fields
    )


def consumer_rows(reply: Sequence[Sequence[Any]], now_ms: int) -> tuple[ConsumerRow, ...]:
    """Return the consumers of XINFO CONSUMERS that was read at `now_ms` of the server's clock."""
    return tuple(_consumer_row(attributes(consumer), now_ms) for consumer in reply)


def _consumer_row(consumer: dict[bytes, Any], now_ms: int) -> ConsumerRow:
    inactive_ms = consumer.get(b"inactive", _NEVER_ACTIVE)  # unknown to Redis before 7.2
    return ConsumerRow(
        name=consumer[b"name"],
        seen_time_ms=now_ms - consumer[b"idle"],
        active_time_ms=None if inactive_ms == _NEVER_ACTIVE else now_ms - inactive_ms,
    )
