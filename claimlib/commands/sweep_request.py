"""State the requests of a sweep: one request with globs, a policy of several, or a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claimlib.commands.sharing import Sharing
from claimlib.engine.relation import Relation
from claimlib.errors import RequestError
from claimlib.plans import requests
from claimlib.plans.requests import Rule, guard_values
from claimlib.semantics.ids import to_bigint
from claimlib.semantics.model import AutoclaimRequest, parse_cursor
from claimlib.semantics.names import glob_pattern, spell


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """State one XAUTOCLAIM for all groups that two globs match.

    It is a sweep, or one page of each group if `autoclaim.count` is given.

    Attributes:
        cursor: the name under which the store keeps the id at which each group's next page begins.
            None means that this id is not stored.
        resume: True to begin at the cursor, False to begin at `autoclaim.start`.
        others: consumers that share the claimed entries with `autoclaim.consumer`.  The entries of
            each group are distributed in turn, in the order of their ids.
        active_within_ms: the consumers of each group that received an entry within this time share
            its claimed entries.  `autoclaim.consumer` is then empty.  None if consumers are named.

    Examples:
        >>> request = SweepRequest(AutoclaimRequest(b"reclaimer", 900_000), stream_glob="orders:*")
        >>> request.stream_glob, request.group_glob
        ('orders:*', '*')
    """

    autoclaim: AutoclaimRequest
    stream_glob: str = "*"
    group_glob: str = "*"
    cursor: str | None = None
    resume: bool = False
    others: tuple[bytes, ...] = ()
    active_within_ms: int | None = None

    def __post_init__(self) -> None:
        """Raise an error if a value is not valid, before anything is read."""
        glob_pattern(self.stream_glob)
        glob_pattern(self.group_glob)
        if self.resume and self.cursor is None:
            raise RequestError("resume needs the name of a cursor", option="cursor")
        if self.cursor is not None:
            parse_cursor(self.cursor)
        self._check_assignment()

    @property
    def consumers(self) -> tuple[bytes, ...]:
        """Return the named consumers, which share the claimed entries."""
        return () if self.active_within_ms is not None else (self.autoclaim.consumer, *self.others)

    def _check_assignment(self) -> None:
        is_named = self.active_within_ms is None or self.autoclaim.consumer or self.others
        named = (self.autoclaim.consumer, *self.others) if is_named else ()
        Sharing(named, self.active_within_ms)  # raises the error if they do not fit together
        if self.autoclaim.guards.parking_consumer in self.others:
            raise RequestError(
                "parking_consumer and consumer must be different consumers",
                field="parking_consumer",
            )

    def as_json(self) -> dict[str, object]:
        """Return the JSON values that are stored with the run."""
        guards = guard_values(self.autoclaim.guards)
        return {
            "stream_glob": self.stream_glob,
            "group_glob": self.group_glob,
            "start": None if self.resume else str(self.autoclaim.start),
            **{name: value for name, value in self._assignment().items() if value is not None},
            **self._claim_values(),
            # Omitted if None, so that the request of a repeat equals that of an earlier version.
            **({} if self.autoclaim.count is None else {"count": self.autoclaim.count}),
            **({} if self.cursor is None else {"cursor": self.cursor}),
            **{name: value for name, value in guards.items() if value is not None},
        }

    def rule(self) -> Rule:
        """Return the request as a rule of a policy."""
        start = None if self.resume else self.autoclaim.start
        values = {
            **self._assignment(),
            **self._claim_values(),
            "start_ms": None if start is None else to_bigint(start.ms),
            "start_seq": None if start is None else to_bigint(start.seq),
            "count": self.autoclaim.count,
            "cursor": self.cursor,
            **guard_values(self.autoclaim.guards),
        }
        return Rule(self.stream_glob, self.group_glob, values)

    def _assignment(self) -> dict[str, object]:
        """Return the consumer and `requests.ASSIGNMENT`.  Exactly one value is not None."""
        names = tuple(map(spell, self.consumers))
        return {
            "consumer": names[0] if len(names) == 1 else None,
            "consumers": names if len(names) > 1 else None,
            "active_within_ms": self.active_within_ms,
        }

    def _claim_values(self) -> dict[str, object]:
        return {
            "min_idle_ms": self.autoclaim.min_idle_ms,
            "justid": self.autoclaim.justid,
            "idle_rule": str(self.autoclaim.idle_rule),
            "profile": str(self.autoclaim.profile),
        }


Policy = Sequence[SweepRequest] | Relation
"""Type the requests of a run.  The first request that matches a group applies.

The requests can also be a table with one row per (stream, consumer_group), and the columns of
`plans.requests.REQUEST_COLUMNS`.
"""


def checked(request: SweepRequest | Policy) -> Policy:
    """Return the requests of a run.

    Raises:
        RequestError: the table cannot be used, or there is no request.
    """
    if isinstance(request, Relation):
        return requests.SWEEPS.checked(request)
    if isinstance(request, SweepRequest):
        return [request]
    if not request:
        raise RequestError("the policy has no request: it would claim nothing")
    parts: object = request
    if not isinstance(parts, Sequence) or not all(isinstance(part, SweepRequest) for part in parts):
        raise RequestError(
            f"the request must be a SweepRequest or a list of SweepRequests, not {request!r}: write"
            " SweepRequest(AutoclaimRequest(...))"
        )
    return request


def as_json(request: Policy) -> dict[str, object]:
    """Return the JSON values that are stored with the run."""
    if isinstance(request, Relation):
        return requests.SWEEPS.fingerprint(request)
    if len(request) == 1:
        return request[0].as_json()
    return {"policy": [part.as_json() for part in request]}


def chosen_groups(request: Sequence[SweepRequest], groups: Relation) -> Relation:
    """Return the rows of a table whose groups match any of the requests."""
    return groups.where(requests.matched_by([part.rule() for part in request]))


def scope(request: Policy) -> frozenset[tuple[str, str]] | None:
    """Return the globs of the streams and groups of a policy, or None if it is a table."""
    if isinstance(request, Relation):
        return None
    return frozenset((part.stream_glob, part.group_glob) for part in request)


def is_for_all(request: Policy) -> bool:
    """Return True if a request matches all groups, or the requests are a table.

    A table names its groups, so it has no globs.
    """
    globs = scope(request)
    return globs is None or ("*", "*") in globs


def may_resume(request: Policy) -> bool:
    """Return True if some request may begin at a stored cursor."""
    return isinstance(request, Relation) or any(part.resume for part in request)


def may_page(request: Policy) -> bool:
    """Return True if some request may be a page."""
    if isinstance(request, Relation):
        return True
    return any(part.autoclaim.count is not None for part in request)
