"""The figures of the long tests: what was counted is taken over, server by server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.edge.documents import ROOT
from tests.live.figures import COUNTED, taken_over, with_figures

OLD = {
    "server": "Valkey 9",
    "seed": 1,
    "sequences": 2000,
    "commands": {"XAUTOCLAIM": 1, "XCLAIM": 2, "XPENDING": 3, "XACK": 4},
    "branches": {"XACK: rare": 20, "XACK: frequent": 3000},
    "steps_in_tables": {"XACK": 1000, "XCLAIM": 200},
}


def test_what_was_counted_on_a_server_replaces_its_figures_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "redis-7.0.json").write_text(json.dumps({"seed": 3}), encoding="utf-8")
    report = taken_over({"redis-7.2": {"seed": 1}, "redis-7.0": {"seed": 2}}, tmp_path)
    assert report == {"redis-7.2": {"seed": 1}, "redis-7.0": {"seed": 3}}


def test_without_a_run_of_the_long_tests_the_figures_stay(tmp_path: Path) -> None:
    assert taken_over({"redis-7.2": OLD}, tmp_path / "absent") == {"redis-7.2": OLD}


def test_the_document_says_what_was_counted_and_how_often_the_rarest_branch_was_met() -> None:
    document = "before\n<!-- figures -->\nold\n<!-- /figures -->\nafter\n"
    new = " ".join(with_figures(document, {"redis-7.2": OLD}).split())
    assert "2,000 sequences (seed 1) with 1 XAUTOCLAIM, 2 XCLAIM, 3 XPENDING, 4 XACK." in new
    assert "Of 2 branches the rarest (XACK: rare) was met 20 times." in new
    assert "The tables repeated 1,200 of the steps." in new
    assert (new.startswith("before"), new.endswith("after"), "old" in new) == (True, True, False)


def test_a_document_without_a_place_for_figures_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="not one block"):
        with_figures("nothing\n", {"redis-7.2": OLD})


def test_tests_write_where_git_looks_away() -> None:
    ignored = ["git", "check-ignore", "--quiet", "--no-index", str(COUNTED / "redis-7.2.json")]
    if (ROOT / ".git").exists():
        assert subprocess.run(ignored, cwd=ROOT, check=False).returncode == 0
