"""What people and programs read of a new store, and of a check."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, fields

from claimlib.commands.check import Problem
from claimlib.commands.upgrade import Upgrade
from claimlib.report.headings import headings
from claimlib.report.model import Report
from claimlib.schema import SCHEMA_VERSION
from claimlib.store.creation import Creation
from claimlib.terminal import number_of


def of_store(creation: Creation, source: str | None) -> Report:
    """Report a store that `init` has created or found.

    Args:
        source: the source that it mirrors; None if unknown.
    """
    store = creation.store
    place = shlex.quote(store.where)
    lost = (
        "the entries do not count as complete any more: sweeps refuse the groups until the next"
        " snapshot or import"
    )
    unchanged = "the store already exists: nothing was changed"
    notes = [lost] if creation.has_lost_proofs else []
    if creation.created:
        created = ", ".join(creation.created)
        notes.append(f"created again without rows, because they were missing: {created}")
    accepted = [name for name in creation.newly_accepted if name not in creation.created]
    if accepted:
        notes.append(f"accepted at earlier versions than runs have used: {', '.join(accepted)}")
    if creation.was_there and not notes:
        notes.append(unchanged)
    first = f"next: claimlib snapshot redis://HOST:PORT {place}, or claimlib import {place} …"
    return Report(
        title=f"Store {store.where}",
        columns=COLUMNS,
        rows=(
            ("buckets", store.buckets),
            ("source", source or "not set: the first snapshot or import sets it"),
        ),
        notes=(*notes, *([] if creation.was_there and source else [first])),
        document={
            "command": "init",
            "store": store.where,
            "buckets": store.buckets,
            "source": source,
            "was_there": creation.was_there,
        },
        records=[{"what": "buckets", "value": store.buckets}, {"what": "source", "value": source}],
    )


COLUMNS = headings("what", "value")


def of_upgrade(upgraded: Upgrade) -> Report:
    """Report an upgrade."""
    added = ", ".join(upgraded.columns)
    rows = (("schema version", SCHEMA_VERSION), ("upgraded tables", len(upgraded.tables)))
    return Report(
        title=f"Store {upgraded.where}",
        columns=COLUMNS,
        rows=rows,
        notes=(
            *([f"added columns, which are null in rows of earlier runs: {added}"] if added else []),
            *([] if upgraded.tables else ["the store is up to date: nothing was changed"]),
        ),
        document={
            "command": "upgrade",
            "store": upgraded.where,
            "schema_version": SCHEMA_VERSION,
            "upgraded_tables": list(upgraded.tables),
            "added_columns": list(upgraded.columns),
        },
        records=[{"what": name, "value": value} for name, value in rows],
    )


def of_check(where: str, problems: Sequence[Problem]) -> Report:
    """What a store lacks, the worst first."""
    refusing = sum(problem.refuses for problem in problems)
    note = f"{number_of(refusing, 'problem makes', 'problems make')} a sweep refuse groups"
    remarks = len(problems) - refusing
    note += f"; {number_of(remarks, 'remark')}"
    return Report(
        title=f"Check of {where}",
        columns=headings("table", "what", "count", "example", "refuses"),
        rows=tuple(
            (
                problem.table,
                problem.what,
                problem.count,
                problem.example,
                "yes" if problem.refuses else "no",
            )
            for problem in problems
        ),
        notes=(
            note if problems else "no problems found",
            *(
                f"to repair the table {problem.table}, run: {problem.remedy}"
                for problem in problems
                if problem.remedy is not None
            ),
        ),
        document={"store": where, "problems": [asdict(problem) for problem in problems]},
        records=[asdict(problem) for problem in problems],
        names=tuple(field.name for field in fields(Problem)),
    )
