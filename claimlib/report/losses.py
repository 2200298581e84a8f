"""Name the owners that would lose entries by a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from claimlib.commands.reply import RunReply
from claimlib.engine.relation import DESCENDING, Record
from claimlib.plans.keys import GROUP
from claimlib.report.text import visible
from claimlib.terminal import number_of

_MOST_OWNERS = 5


@dataclass(frozen=True, slots=True)
class Losses:
    """Hold the owners that would lose the most entries.

    Attributes:
        owners: the rows of `RunReply.losses` with the most entries, or None if the run is not a dry
            run.
        hidden: the number of other owners that would lose entries.
    """

    owners: Sequence[Record] | None
    hidden: int = 0

    @classmethod
    def of(cls, reply: RunReply) -> Losses:
        """Return the losses of a dry run.  Other runs have none."""
        if not reply.dry_run:
            return cls(None)
        losses = reply.losses.reused()
        order = (f"claimed + deleted{DESCENDING}", *GROUP, "from_consumer")
        owners = losses.order_by(*order).limit(_MOST_OWNERS).collect()
        return cls(owners, losses.count() - len(owners))

    @property
    def notes(self) -> Iterable[str]:
        """Yield a note if an owner would lose entries."""
        if self.owners:
            number = number_of(len(self.owners) + self.hidden, "owner")
            most = ", these most" if self.hidden else ""
            yield f"{number} would lose entries{most}: {', '.join(map(_owner, self.owners))}"

    @property
    def document(self) -> dict[str, object]:
        """Return the owners for the document of a report."""
        return {"losing_owners": self.owners, "losing_owners_not_shown": self.hidden}


def _owner(row: Record) -> str:
    group = " / ".join(str(visible(row[name])) for name in GROUP)
    return f"{visible(row['from_consumer'])} {row['claimed'] + row['deleted']:,} ({group})"
