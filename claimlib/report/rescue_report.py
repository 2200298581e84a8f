"""Report a rescue to people and to programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from claimlib.commands.rescue import RescueReply
from claimlib.plans.writeback_plan import OUTCOMES
from claimlib.report.counts import MEANINGS
from claimlib.report.headings import headings
from claimlib.report.report_model import Report

COLUMNS = headings("what", "count", "meaning")
_STALLED = "stalled"


def report_of_rescue(reply: RescueReply, place: str) -> Report:
    """Report the numbers of entries that a rescue read, claimed and wrote back.

    The report also has the number of entries that are still stalled.

    Args:
        place: where the store is.
    """
    counts = _counts(reply)
    meanings = {**MEANINGS, **_MEANINGS, **(_WOULD if reply.dry_run else {})}
    records = [
        {"what": name, "count": number, "meaning": meanings.get(name)}
        for name, number in counts.items()
        if not (reply.dry_run and name in OUTCOMES)
    ]
    return Report(
        title=_title(reply),
        columns=COLUMNS,
        rows=tuple(
            (str(row["what"]).replace("_", " "), row["count"], row["meaning"]) for row in records
        ),
        notes=tuple(_notes(reply, place)),
        document={
            "command": "rescue",
            "run_id": reply.run_id,
            "is_repeat": reply.is_repeat,
            "dry_run": reply.dry_run,
            "counts": counts,
        },
        records=records,
    )


_MEANINGS = {
    "pending_read": "pending entries read from the server",
    _STALLED: "entries that are still stalled, as the store knows",
}


_WOULD = {
    "claimed": "entries that would be given to another consumer",
    "deleted": "pending entries that would be removed, because their stream entry is gone",
    "refused": "groups that would be refused",
}


def _counts(reply: RescueReply) -> dict[str, int]:
    written = {} if reply.written is None else reply.written.counts
    return {
        "groups": reply.read.counts["groups"],
        "pending_read": reply.read.counts["pending_read"],
        **{name: reply.swept.counts[name] for name in ("claimed", "deleted", "refused")},
        **{str(kind): written.get(str(kind), 0) for kind in OUTCOMES},
        _STALLED: reply.stalled,
    }


def _title(reply: RescueReply) -> str:
    if reply.dry_run:
        return "Rescue, dry run: a snapshot was taken; nothing was claimed, and nothing was sent"
    return f"Rescue of {reply.read.source}, run id {reply.run_id}"


def _notes(reply: RescueReply, place: str) -> Iterable[str]:
    where, sweep = shlex.quote(place), shlex.quote(f"xautoclaim:{reply.run_id}")
    if reply.is_repeat:
        yield (
            "this rescue was already done: nothing was read, claimed or sent. All numbers except"
            " stalled are from the earlier call. For a new rescue, use another --run-id"
        )
    if reply.dry_run:
        yield (
            f"to see each group: claimlib xautoclaim {where} --dry-run, with the same --consumer"
            " and --min-idle"
        )
    elif reply.written is None:
        yield "nothing was stalled, so nothing was sent"
    else:
        yield f"to see the groups: claimlib report {where} {sweep}"
        yield f"to undo it: claimlib undo {where} {sweep}, and then write the undo back"
