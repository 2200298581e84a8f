"""What `make demo` does around the product: its folder, and what it says of a proof."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from claimlib.demo.play import _next, play
from claimlib.demo.proof import Difference, Proof, Subject
from claimlib.demo.story import Story
from claimlib.errors import RequestError

_ENOUGH = {"claimed": 3, "deleted": 3, "left alone": 3}


def _never(words: Sequence[str]) -> int:
    raise AssertionError(f"nothing must be run: {words}")


def _told(of_spark: Proof, of_embedded: Proof | None = None) -> str:
    out = StringIO()
    story = Story(Console(file=out, width=200))
    proofs = {"embedded": of_embedded or of_spark, "spark": of_spark}
    story.proof(proofs)
    story.verdict(proofs)
    return out.getvalue()


def test_a_folder_that_no_demo_made_is_refused_and_left_as_it_is(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("data")

    with pytest.raises(RequestError, match="no demo made it"):
        play(_never, tmp_path, entries=120)

    assert precious.read_text() == "data"


def test_the_commands_that_it_names_are_for_a_shell_and_need_no_other_package(tmp_path: Path):
    store = tmp_path / 'it\'s a "demo"; $HOME' / "first"
    rows = pa.table({"stream": ["s", "s"], "consumer_group": ["g", "g"]})
    write_deltalake(str(store / "tombstones"), rows)
    *commands, last = (line for line in _next(store).splitlines() if line.startswith("  "))

    assert [shlex.split(line)[2] for line in commands] == [str(store)] * 3
    assert set(re.findall(r"(?:import|from) (\w+)", last)) == {"deltalake", "DeltaTable"}
    done = subprocess.run(last, shell=True, capture_output=True, text=True, check=True)
    assert re.search(r"\| s +\| g +\| 2 +\|", done.stdout)


def test_a_proof_that_holds_says_how_many_facts_were_compared():
    told = _told(Proof({"owner": 1_200, "deletion": 34}, (), _ENOUGH))

    assert "PROVED" in told
    assert "1,234 facts" in told


def test_a_proof_that_fails_names_the_first_differences_and_counts_the_others():
    differences = tuple(
        Difference("owner", Subject("orders", "billing", f"{n}-0"), "alice", "bob")
        for n in range(12)
    )

    told = _told(Proof({"owner": 20}, differences, _ENOUGH), Proof({"owner": 20}, (), _ENOUGH))

    assert "FAILED" in told
    assert "spark engine: owner of orders / billing / 9-0: server 'alice', store 'bob'" in told
    assert "10-0" not in told
    assert "and 2 more differences" in told


def test_a_proof_over_too_few_groups_says_so():
    told = _told(Proof({"owner": 20}, (), _ENOUGH | {"deleted": 2}))

    assert "FAILED" in told
    assert "entries were deleted in 2 groups, and must be in 3 at least" in told
