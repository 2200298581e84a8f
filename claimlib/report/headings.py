"""Return the headings of columns.  A column has the same heading in all reports."""

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
    """Return the headings of the columns of a table, by name.

    A heading is the name in words and without its unit, because the values for people have units.

    Args:
        of_this_report: headings that depend on the request, by name.  These names must be among
            `names`, too, which state the order.
    """
    return {name: of_this_report.get(name) or _heading(name) for name in names}


def _heading(name: str) -> str:
    return _HEADINGS.get(name) or name.removesuffix("_ms").replace("_", " ")
