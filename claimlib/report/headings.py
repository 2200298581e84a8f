"""What the columns of reports are called: a name has one heading, whatever the report."""

from __future__ import annotations

_HEADINGS = {
    "active_time_ms": "active ago",
    "at_boundary": "idle exactly min-idle",
    "delivery_count": "deliveries now",
    "from_consumer": "consumer before",
    "from_delivery_count": "deliveries before",
    "from_delivery_time_ms": "delivered before",
    "from_idle_ms": "idle before",
    "highest_delivery_count": "most deliveries",
    "next_id": "next page begins at",
    "now_ms": "--now",
    "reason": "refused because",
    "refuses": "blocks sweeps",
    "request_number": "request",
    "run_seq": "run",
    "seen_time_ms": "seen ago",
    "snapshot_ms": "snapshot age",
}


def headings(*names: str, **of_this_report: str) -> dict[str, str]:
    """The columns of a table: by name its heading, which is the name in words and without its
    unit, as people read the values with theirs.

    Args:
        of_this_report: headings that depend on what was asked for, by name; `names` has them too,
            at their places.
    """
    return {name: of_this_report.get(name) or _heading(name) for name in names}


def _heading(name: str) -> str:
    return _HEADINGS.get(name) or name.removesuffix("_ms").replace("_", " ")
