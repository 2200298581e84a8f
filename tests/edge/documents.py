"""The documents, for the tests that read them: their text, sections, tables and examples.

An example is a fenced block.  `sh` has a command per line (a backslash continues it), `python` runs
as it is, `toml` names its file in a comment on its first line, and a `text` block right after an
`sh` block is what the block's last command prints.  Other blocks are pictures.
"""

from __future__ import annotations

import re
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
    "docs/tables.md",
    "docs/runs.md",
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


def anchors(document: str) -> set[str]:
    """The headings of a document as links name them."""
    heads = re.findall(r"^#+ (.*)$", prose_of(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
