"""What the long tests counted, in `test-long.json`, and what the README says of it.

`python -m tests.live.figures` writes the README's lines anew.
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
REPORT = ROOT / "test-long.json"
README = ROOT / "README.md"
_BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)
_WIDTH = 110
_COMMANDS = ("XAUTOCLAIM", "XCLAIM", "XPENDING", "XACK")


def record(
    server: str, drawn_by: int, tally: Tally, seconds: Mapping[str, float], file: Path = REPORT
) -> None:
    """Write down what was counted on one server; what was counted on others stays."""
    report = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    steps = Counter(step.command[0].decode() for step in tally.steps)
    report[tally.profile] = {
        "server": server,
        "seed": drawn_by,
        "sequences": tally.sequences,
        "commands": dict(sorted(tally.commands.items())),
        "branches": {": ".join(one): tally.branches[one] for one in tally.expected},
        "steps_in_tables": dict(sorted(steps.items())),
        "seconds": {name: round(number, 1) for name, number in seconds.items()},
    }
    ordered = dict(sorted(report.items(), reverse=True))
    file.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")


def lines(report: Mapping[str, Any]) -> str:
    """What the README says of a report: an item for each server."""
    return "\n".join(
        textwrap.fill(_said(one), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        for one in report.values()
    )


def _said(one: Mapping[str, Any]) -> str:
    commands, branches = one["commands"], one["branches"]
    counted = ", ".join(f"{commands[name]:,} {name}" for name in _COMMANDS)
    rarest = min(branches, key=branches.__getitem__)
    in_tables = sum(one["steps_in_tables"].values())
    return (
        f"- {one['server']}: {one['sequences']:,} sequences (seed {one['seed']}) with {counted}: no"
        f" reply and no state was another one than the reference's. Of {len(branches)} branches the"
        f" rarest ({rarest}) was met {branches[rarest]:,} times."
        + f" The tables repeated {in_tables:,} of the steps."
        * bool(in_tables)
    )


def with_figures(readme: str, report: Mapping[str, Any]) -> str:
    """The README with the lines of a report."""
    new, number = _BLOCK.subn(lambda found: f"{found[1]}{lines(report)}\n{found[2]}", readme)
    assert number == 1, "the README has not one block of figures"
    return new


def main() -> None:
    """Write the README's lines anew."""
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    README.write_text(with_figures(README.read_text(encoding="utf-8"), report), encoding="utf-8")


if __name__ == "__main__":
    main()
