"""The documents, for the tests that read them: their text, sections, tables and examples.

An example is a fenced block.  `sh` has a command per line (a backslash continues it), `python` runs
as it is, `toml` names its file in a comment on its first line, and a `text` block right after an
`sh` block is what the block's last command prints.  Other blocks are pictures.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# In the order in which their examples run, on the stores that the ones before have left.
PLAYED = (
    "README.md",
    "docs/server.md",
    "docs/sweeps.md",
    "docs/policies.md",
    "docs/by-id.md",
    "docs/own-tables.md",
    "docs/looking.md",
    "docs/reports.md",
    "docs/tables.md",
    "docs/runs.md",
    "docs/monitoring.md",
    "docs/upgrading.md",
    "docs/python.md",
    "docs/spark.md",
    "docs/testing.md",
    "CONTRIBUTING.md",
)
# Those for users, each of which the README names.
PAGES = tuple(sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
DECISIONS = tuple(
    sorted(f"docs/decisions/{path.name}" for path in (ROOT / "docs/decisions").glob("*.md"))
)
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *PAGES, *DECISIONS)
ALL_DOCUMENTS = tuple(
    path.relative_to(ROOT).as_posix()
    for folder, pattern in (
        (ROOT, "*.md"),
        (ROOT / "changes", "README.md"),
        (ROOT / "docs", "**/*.md"),
    )
    for path in sorted(folder.glob(pattern))
)
"""All documents that people read, also those without examples."""

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """One fenced block; `line` is where it stands."""

    document: str
    line: int
    language: str
    text: str

    def commands(self) -> list[str]:
        """The lines of an `sh` block, continued ones joined."""
        return [line for line in self.text.replace("\\\n", "").splitlines() if line.strip()]


def text_of(document: str) -> str:
    """A document, by its name from the project's folder."""
    return (ROOT / document).read_text(encoding="utf-8")


def prose_of(document: str) -> str:
    """A document without its fenced blocks."""
    return _BLOCK.sub("", text_of(document))


def examples_of(document: str) -> list[Example]:
    """The fenced blocks of a document."""
    text = text_of(document)
    return [
        Example(document, text.count("\n", 0, block.start()) + 1, block[2], block[3])
        for block in _BLOCK.finditer(text)
    ]


def section(document: str, heading: str) -> str:
    """The prose under a heading, up to the next one of its level or above."""
    level = heading.partition(" ")[0]
    (prose,) = re.findall(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)",
        prose_of(document),
        re.MULTILINE | re.DOTALL,
    )
    return str(prose)


def rows(text: str) -> list[tuple[str, ...]]:
    """The rows of all tables in a text, cell by cell, without heads."""
    lines = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    heads = {at - 1 for at, line in enumerate(lines) if line.startswith("|---")}
    return [
        tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line[1:-1]))
        for at, line in enumerate(lines)
        if at not in heads and not line.startswith("|---")
    ]


def links(document: str) -> list[str]:
    """Return the targets of the links and pictures of a document, outside of code."""
    prose = re.sub(r"`[^`\n]*`", "", prose_of(document))
    inline = re.findall(r"\]\(\s*<?([^)\s>]+)", prose)
    return inline + re.findall(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)", prose, re.MULTILINE)


def is_relative(link: str) -> bool:
    """Return True if a link leads to a file of the project."""
    return re.match(r"[a-z][a-z0-9+.-]*:|//", link) is None


def anchors(document: str) -> set[str]:
    """Return the headings of a document as links name them: a repeated one gets a number."""
    known: Counter[str] = Counter()
    for head in re.findall(r"^#+ (.*?)(?: +#+)? *$", prose_of(document), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower()
        known[re.sub(r"[^\w\- ]", "", text).replace(" ", "-")] += 1
    return {name + (f"-{n}" if n else "") for name, times in known.items() for n in range(times)}
