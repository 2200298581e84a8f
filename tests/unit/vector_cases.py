"""The recorded vectors (`tests/vectors/*.json`; see the README there)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from claimlib.testing import vectors
from claimlib.testing.vectors import Step

FOLDER = Path(__file__).parents[1] / "vectors"
FILES = ("named.json", "random.json")


def steps(file: str, command: str) -> Iterator[Step]:
    """The steps of a file that are this command, in order."""
    for step in vectors.steps(FOLDER / file):
        if step.command[0] == command.encode("ascii"):
            yield step
