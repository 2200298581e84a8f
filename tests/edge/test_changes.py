"""The changelog has the version, and the files in changes/ can become its next section."""

from __future__ import annotations

import re

import pytest

import claimlib
from tests.edge.documents import ROOT, anchors, is_relative, links, rows, text_of

NEW = sorted(path.name for path in (ROOT / "changes").glob("*") if path.suffix == ".md")


@pytest.mark.parametrize("name", [name for name in NEW if name != "README.md"])
def test_a_change_is_named_and_linked_as_the_changelog_needs_it(name: str) -> None:
    kinds = "|".join(row[0].strip("`") for row in rows(text_of("changes/README.md")))
    assert re.fullmatch(rf"\+[\w-]+\.({kinds})\.md", name)
    assert text_of(f"changes/{name}").strip()
    for link in filter(is_relative, links(f"changes/{name}")):
        target, _, anchor = link.partition("#")
        assert (ROOT / target).is_file(), link
        assert not anchor or anchor in anchors(target), link


def test_the_changelog_has_a_section_of_the_version() -> None:
    assert re.search(
        rf"^## {re.escape(claimlib.__version__)}\b", text_of("CHANGELOG.md"), re.MULTILINE
    )


def test_the_kinds_of_changes_are_those_that_the_tool_knows() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    known = re.findall(r'\{ directory = "(\w+)", name = "\w+", showcontent = true \}', project)
    assert [row[0].strip("`") for row in rows(text_of("changes/README.md"))] == known
