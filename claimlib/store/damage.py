"""Find the damaged file in the log of a table in a folder of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from claimlib.errors import DamagedTableError
from claimlib.process import RESTORE
from claimlib.store.local import size_of, version_at_checkpoint

# The name of a file of the log begins with its version, which has 20 digits.
_DIGITS = 20
_LAST_CHECKPOINT = "_last_checkpoint"


def check_commits(table: Path, version: int) -> None:
    """Raise DamagedTableError if a commit since the last checkpoint is empty.

    delta-rs and Spark read an empty file as a commit that changes nothing.  But every commit has an
    action, so an empty file was left by a crash of the machine.

    Args:
        table: the folder of a table whose log delta-rs can read.
        version: the newest version.
    """
    for number in range(version_at_checkpoint(table) + 1, version + 1):
        file = table / "_delta_log" / f"{number:0{_DIGITS}d}.json"
        if size_of(file) == 0:
            raise _damaged(table, number, f"{file} is empty", RESTORE)


def check_log(table: Path) -> None:
    """Raise DamagedTableError if a file that a reader of the log needs is damaged or missing.

    Args:
        table: the folder of a table whose log delta-rs cannot read.
    """
    try:
        _check_log(table)
    except FileNotFoundError:
        # `maintain` has deleted old files of the log since they were listed, so list them again.
        _check_log(table)


def _check_log(table: Path) -> None:
    log = table / "_delta_log"
    commits, checkpoints = dict[int, Path](), dict[int, Path]()
    for file in log.glob("[0-9]*"):
        if file.name[_DIGITS:] == ".json":
            commits[int(file.stem)] = file
        elif file.name[_DIGITS:].startswith(".checkpoint"):
            checkpoints[int(file.name[:_DIGITS])] = file
    first = max(checkpoints, default=-1) + 1
    needed = {version: file for version, file in commits.items() if version >= first}
    for version, file in sorted(needed.items()):
        if not file.stat().st_size:
            raise _damaged(table, version, f"{file} is empty", RESTORE)
    # Only the first damage is reported.
    for version, cause, remedy in _damages(log, needed, checkpoints, first):
        has_all_commits = commits.keys() >= {*range(max(commits, default=0) + 1)}
        raise _damaged(table, version, cause, remedy if has_all_commits and remedy else RESTORE)


def _damages(
    log: Path, needed: dict[int, Path], checkpoints: dict[int, Path], first: int
) -> Iterator[tuple[int, str, str | None]]:
    """Yield the damages of a log, each with its version, its cause and a remedy.

    The remedy works only if the log has all commits.  None means that there is no remedy.
    """
    if checkpoints and not _is_intact_checkpoint(checkpoints[first - 1]):
        file = checkpoints[first - 1]
        yield first - 1, f"{file} is damaged", f"delete it and {log / _LAST_CHECKPOINT}"
    for version in range(first, max(needed, default=first - 1) + 1):
        if version not in needed:
            yield version, f"{log / f'{version:0{_DIGITS}d}.json'} is missing", None
        elif not _is_json(needed[version]):
            yield version, f"{needed[version]} is damaged", None
    if (log / _LAST_CHECKPOINT).exists() and not checkpoints:
        cause = f"the checkpoint that {log / _LAST_CHECKPOINT} names is missing"
        yield max(needed, default=0), cause, "delete that file"


def _is_json(file: Path) -> bool:
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            json.loads(line)
    except ValueError:
        return False
    return True


def _is_intact_checkpoint(file: Path) -> bool:
    try:
        pq.read_metadata(file)
    except pa.ArrowInvalid:
        return file.suffix != ".parquet"  # a checkpoint may also be in JSON
    return True


def _damaged(table: Path, version: int, cause: str, remedy: str) -> DamagedTableError:
    return DamagedTableError(
        f"version {version} of the table {table.name} cannot be read, because {cause}: {remedy}",
        table=table.name,
    )
