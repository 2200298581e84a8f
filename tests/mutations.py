"""Fail if no test noticed a mutant that is not listed as equivalent (`make test-mutations`).

mutmut has written its results before.  Equivalent mutants are listed in `pyproject.toml`, in
`[[tool.mutmut.equivalent]]`: where `function` (or any function, if it is left out) has `old`, a
mutant may have one of `new` instead, `because` no caller can tell them apart.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    """One mutant.

    Attributes:
        function: the function that was changed, as `semantics.ids.parse_id`.
        before: the lines that were changed.
        after: what stands there instead.
    """

    function: str
    before: str
    after: str

    @classmethod
    def from_diff(cls, name: str, diff: str) -> Mutant:
        """Return the mutant of a name, as mutmut gives it, and of a unified diff."""
        function = name.rpartition("__mutmut_")[0].removeprefix("claimlib.")
        for prefix in (".x_", ".xǁ", "ǁ"):
            function = function.replace(prefix, ".")
        lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
        before, after = (
            " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
        )
        return cls(function, before, after)


@dataclass(frozen=True)
class Equivalent:
    """One change that no caller can notice.

    Attributes:
        function: where it is made; None: in any function.
        old, new: the text that is changed, and what it is changed to.
    """

    function: str | None
    old: str
    new: str

    def is_change_of(self, mutant: Mutant) -> bool:
        """Return True if the mutant is the original with this change at one place."""
        if self.function not in {None, mutant.function}:
            return False
        parts = mutant.before.split(self.old)
        return any(
            self.old.join(parts[:at]) + self.new + self.old.join(parts[at:]) == mutant.after
            for at in range(1, len(parts))
        )


def listed_in(project: Mapping[str, Any]) -> list[Equivalent]:
    """Return the equivalent changes that a `pyproject.toml` lists."""
    return [
        Equivalent(entry.get("function"), entry["old"], new)
        for entry in project["tool"]["mutmut"]["equivalent"]
        for new in entry["new"]
    ]


def faults(
    survivors: Sequence[Mutant], timed_out: Sequence[Mutant], listed: Sequence[Equivalent]
) -> list[str]:
    """Return a text for each survivor that is not listed, and for each change without a mutant.

    On a machine with much other work an equivalent mutant may run out of time.
    """
    missed = [
        f"{mutant.function}\n  - {mutant.before}\n  + {mutant.after}"
        for mutant in survivors
        if not any(change.is_change_of(mutant) for change in listed)
    ]
    unnoticed = [*survivors, *timed_out]
    unused = [
        f"listed as equivalent, but no such mutant survived: {change}"
        for change in listed
        if not any(map(change.is_change_of, unnoticed))
    ]
    return [*missed, *unused]


def _mutmut(*words: str) -> str:
    program = Path(sys.executable).with_name("mutmut")
    done = subprocess.run([program, *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> int:
    """Print each fault and the numbers of mutants; return 1 if there is a fault."""
    lines = _mutmut("results", "--all", "true").splitlines()
    status_of = dict(line.strip().rsplit(": ", 1) for line in lines if ": " in line)
    survivors, timed_out = (
        [
            Mutant.from_diff(name, _mutmut("show", name))
            for name in status_of
            if status_of[name] == how
        ]
        for how in ("survived", "timeout")
    )
    counts = Counter(status_of.values())
    listed = listed_in(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    texts = faults(survivors, timed_out, listed)
    untested = [
        f"{name}: {status}"
        for name, status in status_of.items()
        if status not in {"killed", "timeout", "survived"}
    ]
    for text in (*texts, *untested):
        print(text)
    print(f"{len(status_of)} mutants: {', '.join(f'{n} {how}' for how, n in counts.items())}")
    return 1 if texts or untested or not status_of else 0


if __name__ == "__main__":
    sys.exit(main())
