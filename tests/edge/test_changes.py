"""The changelog has the version, and the files in changes/ can become its next section."""

from __future__ import annotations

import re

import claimlib
from tests.edge.documents import ROOT, anchors, is_relative, links, rows, text_of


def test_changes_are_named_and_linked_as_the_changelog_needs_it() -> None:
    kinds = "|".join(row[0].strip("`") for row in rows(text_of("changes/README.md")))
    for path in sorted((ROOT / "changes").glob("[!R]*.md")):
        name = f"changes/{path.name}"
        assert re.fullmatch(rf"\+[\w-]+\.({kinds})\.md", path.name), name
        assert text_of(name).strip(), name
        for link in filter(is_relative, links(name)):
            target, _, anchor = link.partition("#")
            assert (ROOT / target).is_file(), (name, link)
            assert not anchor or anchor in anchors(target), (name, link)


def test_the_changelog_has_a_section_of_the_version() -> None:
    assert re.search(
        rf"^## {re.escape(claimlib.__version__)}\b", text_of("CHANGELOG.md"), re.MULTILINE
    )


def test_the_kinds_of_changes_are_those_that_the_tool_knows() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    known = re.findall(r'\{ directory = "(\w+)", name = "\w+", showcontent = true \}', project)
    assert [row[0].strip("`") for row in rows(text_of("changes/README.md"))] == known
