"""What the long tests counted: `docs/figures.json`, and what docs/exactness.md says of it.

A test writes what it counted to `build/figures/`, which git ignores; `make test-long` then runs
`python -m tests.live.figures`, which takes it over into both documents.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.live.followed import Tally

ROOT = Path(__file__).parents[2]
COUNTED = ROOT / "build" / "figures"
REPORT = ROOT / "docs" / "figures.json"
DOCUMENT = ROOT / "docs" / "exactness.md"
_BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)
_WIDTH = 105
_COMMANDS = ("XAUTOCLAIM", "XCLAIM", "XPENDING", "XACK")


def record(
    server: str, drawn_by: int, tally: Tally, seconds: Mapping[str, float], folder: Path = COUNTED
) -> None:
    """Write down what was counted on one server, as a file of its own."""
    steps = Counter(step.command[0].decode() for step in tally.steps)
    counted = {
        "server": server,
        "seed": drawn_by,
        "sequences": tally.sequences,
        "commands": dict(sorted(tally.commands.items())),
        "branches": {": ".join(branch): tally.branches[branch] for branch in tally.expected},
        "steps_in_tables": dict(sorted(steps.items())),
        "seconds": {name: round(number, 1) for name, number in seconds.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{tally.profile}.json").write_text(json.dumps(counted), encoding="utf-8")


def taken_over(report: Mapping[str, Any], folder: Path = COUNTED) -> dict[str, Any]:
    """A report with what was counted last on each server; of the others it stays as it is."""
    new = {
        file.stem: json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")
    }
    return dict(sorted({**report, **new}.items(), reverse=True))


def lines(report: Mapping[str, Any]) -> str:
    """What the document says of a report: an item for each server."""
    return "\n".join(
        textwrap.fill(_said(run), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        for run in report.values()
    )


def _said(run: Mapping[str, Any]) -> str:
    commands, branches = run["commands"], run["branches"]
    counted = ", ".join(f"{commands[name]:,} {name}" for name in _COMMANDS)
    rarest = min(branches, key=branches.__getitem__)
    in_tables = sum(run["steps_in_tables"].values())
    return (
        f"- {run['server']}: {run['sequences']:,} sequences (seed {run['seed']}) with {counted}."
        " All replies and states were those of the reference."
        f" Of {len(branches)} branches the rarest ({rarest}) was met {branches[rarest]:,} times."
        + f" The tables repeated {in_tables:,} of the steps."
        * bool(in_tables)
    )


def with_figures(document: str, report: Mapping[str, Any]) -> str:
    """The document with the lines of a report."""
    new, number = _BLOCK.subn(lambda match: f"{match[1]}{lines(report)}\n{match[2]}", document)
    assert number == 1, "the document has not one block of figures"
    return new


def main() -> None:
    """Take over what was counted, and write the document's lines again."""
    report = taken_over(json.loads(REPORT.read_text(encoding="utf-8")))
    REPORT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    document = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(with_figures(document, report), encoding="utf-8")


if __name__ == "__main__":
    main()
