"""Report a new store, an upgrade or a check to people and to programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields

from claimlib.commands.check import Problem
from claimlib.commands.init import Renamed
from claimlib.commands.upgrade import Upgrade
from claimlib.report.headings import headings
from claimlib.report.report_model import Report
from claimlib.runs.journal import ServerIdentity
from claimlib.schema import SCHEMA_VERSION
from claimlib.store.creation import Creation
from claimlib.terminal import number_of


def report_of_store(
    creation: Creation, source: str | None, renamed: Renamed | None = None
) -> Report:
    """Report a store that `init` has created or found.

    Args:
        source: the source that the store mirrors.  None if unknown.
        renamed: the earlier and the new name of the source.  None if the source was not renamed.
    """
    store = creation.store
    place = shlex.quote(store.where)
    no_proofs = (
        "the entries do not count as complete any more: sweeps refuse the groups until the next"
        " snapshot or import"
    )
    unchanged = "the store already exists: nothing was changed"
    notes = [no_proofs] if creation.has_lost_proofs else []
    if creation.created:
        created = ", ".join(creation.created)
        notes.append(f"created again without rows, because they were missing: {created}")
    accepted = [name for name in creation.newly_accepted if name not in creation.created]
    if accepted:
        notes.append(f"accepted at earlier versions than runs have used: {', '.join(accepted)}")
    if renamed is not None:
        notes.extend(_renaming_notes(renamed))
    if creation.was_there and not notes:
        notes.append(unchanged)
    first_step = f"next: claimlib snapshot redis://HOST:PORT {place}, or claimlib import {place} …"
    return Report(
        title=f"Store {store.where}",
        columns=COLUMNS,
        rows=(
            ("buckets", store.buckets),
            ("source", source or "not set: the first snapshot or import sets it"),
        ),
        notes=(*notes, *([] if creation.was_there and source else [first_step])),
        document={
            "command": "init",
            "store": store.where,
            "buckets": store.buckets,
            "source": source,
            "was_there": creation.was_there,
            "former_source": renamed and renamed.before,
        },
        records=[{"what": "buckets", "value": store.buckets}, {"what": "source", "value": source}],
    )


def _renaming_notes(renamed: Renamed) -> Iterator[str]:
    """Yield notes on the new name of the source, and on how to check that it is the same server."""
    yield (
        f"the source is renamed from {renamed.before} to {renamed.now}: the history of the store"
        f" stays, and the next snapshot of {renamed.now} is accepted"
    )
    address, _, database = renamed.now.rpartition("/")
    old_database = renamed.last.source.rpartition("/")[2]
    if database != old_database:
        yield f"it is another database: {database}, and {old_database} at the last snapshot"
    server = renamed.last.server
    if server == ServerIdentity():
        yield (
            f"the ids of the server at the last snapshot (run {renamed.last.run_seq}) are unknown:"
            f" nothing can prove that {renamed.now} is the same server"
        )
        return
    yield (
        f"the last snapshot (run {renamed.last.run_seq}) read run_id {server.run_id or 'unknown'}"
        f" and master_replid {server.replication_id or 'unknown'}"
    )
    yield (
        f"if one of these ids is in the output, {renamed.now} is the same server, or a replica of"
        f" it: redis-cli -u redis://{address} INFO | grep -E 'run_id|master_replid'"
    )


COLUMNS = headings("what", "value")


def report_of_upgrade(upgraded: Upgrade) -> Report:
    """Report the upgraded tables and the added columns of an upgrade."""
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


_DIFFERENCES = (
    "differences: another writer has changed rows, or has deleted rows from which they follow. The"
    " next snapshot or import corrects pending; claimlib entry STORE STREAM ID shows what happened"
    " to an entry"
)


def report_of_check(where: str, problems: Sequence[Problem]) -> Report:
    """Return the problems of a store, the worst first."""
    refusing = sum(problem.refuses for problem in problems)
    remarks = number_of(len(problems) - refusing, "remark")
    blocking = number_of(refusing, "problem makes", "problems make")
    note = f"{blocking} a sweep refuse groups; {remarks}" if refusing else f"sweeps work; {remarks}"
    return Report(
        title=f"Check of {where}",
        columns=CHECK_COLUMNS,
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
            *([_DIFFERENCES] if any(problem.is_difference for problem in problems) else []),
            *(
                f"to repair the table {problem.table}, run: {problem.remedy}"
                for problem in problems
                if problem.remedy is not None
            ),
        ),
        document={"store": where, "problems": [asdict(problem) for problem in problems]},
        records=[asdict(problem) for problem in problems],
        names=CHECK_NAMES,
    )


CHECK_COLUMNS = headings("table", "what", "count", "example", "refuses")
CHECK_NAMES = tuple(field.name for field in fields(Problem))
