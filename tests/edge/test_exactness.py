"""The table of docs/exactness.md names tests that exist and run, for every option of a command."""

from __future__ import annotations

import ast
import re
from itertools import product

import pytest

from claimlib.semantics.model import Profile
from tests.edge.documents import ROOT, rows, section

ROWS = rows(section("docs/exactness.md", "## Proof"))
OPTIONS = {
    "XAUTOCLAIM": ("min-idle", "start", "COUNT", "JUSTID"),
    "XCLAIM": ("min-idle", "IDLE", "TIME", "RETRYCOUNT", "FORCE", "JUSTID", "LASTID"),
    "XPENDING": ("summary", "start", "end", "count", "consumer", "IDLE"),
    "XACK": ("ids",),
}
PROFILES = tuple(map(str, Profile))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}, {row[2]}, {row[3][:20]}")
def test_each_row_names_a_test_that_exists_and_is_not_skipped(row: tuple[str, ...]) -> None:
    file, name = row[-1].strip("`").split("::")
    source = (ROOT / file).read_text(encoding="utf-8")
    assert [name] == [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    # In all of its file: skipif, importorskip and pytestmark, too.
    assert re.findall(r"skip|xfail", source) == []


def test_each_option_of_each_command_has_a_row_for_each_profile() -> None:
    told = {
        (command, option, profile)
        for command, options, profiles, *_ in ROWS
        for option, profile in product(options.split(", "), profiles.split(", "))
    }
    wanted = {
        (command, option, profile)
        for (command, options), profile in product(OPTIONS.items(), PROFILES)
        for option in options
    }
    assert wanted - told == set()
