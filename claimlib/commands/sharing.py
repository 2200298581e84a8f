"""State which consumers share the entries that a run claims."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from claimlib.errors import RequestError
from claimlib.semantics.model import MAX_I64
from claimlib.semantics.names import spell


@dataclass(frozen=True, slots=True)
class Sharing:
    """Choose the consumers that share the claimed entries of each group.

    The entries are distributed in turn, in the order of their ids.

    Attributes:
        consumers: named consumers, in the order of their turns.
        active_within_ms: chooses the consumers of the group that received an entry within this
            time.  None if consumers are named.

    Raises:
        RequestError: a consumer is named twice, the time is out of range, or not exactly one of
            `consumers` and `active_within_ms` is given.

    Examples:
        >>> Sharing((b"alice", b"carol")).as_json()
        {'consumers': ['alice', 'carol']}
    """

    consumers: tuple[bytes, ...] = ()
    active_within_ms: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        repeated = [name for name, count in Counter(self.consumers).items() if count > 1]
        if repeated:
            raise RequestError(
                f"--consumer names {spell(repeated[0])} twice: name each consumer once",
                option="consumer",
            )
        if self.active_within_ms is None:
            if not self.consumers:
                raise RequestError(
                    "no consumer shares the entries: name consumers, or give active_within_ms",
                    option="consumer",
                )
            return
        if self.consumers:
            raise RequestError(
                "--consumer and --assign both choose the consumers: give only one of them",
                option="assign",
            )
        if not 1 <= self.active_within_ms <= MAX_I64:
            raise RequestError(
                f"--assign live needs a time of 1 ms or more, not {self.active_within_ms} ms: give"
                " one, as in --assign live:15m, or raise --min-idle",
                field="active_within_ms",
            )

    def as_json(self) -> dict[str, object]:
        """Return the chosen values in the form in which the run stores them."""
        if self.active_within_ms is not None:
            return {"active_within_ms": self.active_within_ms}
        return {"consumers": list(map(spell, self.consumers))}
