"""A page of a group with twenty million entries: the reference's answer, and a page's work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from claimlib.semantics import scan
from claimlib.semantics.ids import MAX_ID, StreamId
from claimlib.semantics.model import AutoclaimReply, AutoclaimRequest, Group, PendingEntry
from tests.delta.large_pel import FIRST_MS, NOW_MS

HERE = Path(__file__).parent
LARGE, TENTH = 20_000_000, 2_000_000
COUNT = 1000
PAGE_ROWS = 10 * COUNT + 1

pytestmark = pytest.mark.long


def run_pages(folder: Path, rows: int) -> dict[str, dict]:
    process = subprocess.run(
        [sys.executable, HERE / "large_pel.py", folder, str(rows), str(COUNT)],
        env={**os.environ, "PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE}"},
        stdout=subprocess.PIPE,
        timeout=1200,
        check=True,
    )
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, dict]]:
    """The same two pages of a large group and of one with a tenth of its entries."""
    return {rows: run_pages(tmp_path_factory.mktemp("pel"), rows) for rows in (LARGE, TENTH)}


def expected(first: int) -> AutoclaimReply:
    """The reference's answer to a page that begins with an entry: it needs no more than these."""
    numbers = range(first, first + PAGE_ROWS)
    pending = tuple(
        PendingEntry(StreamId(FIRST_MS + n, 0), b"dead", NOW_MS - (60_000 if n % 3 == 0 else 10), 1)
        for n in numbers
    )
    present = {entry.id for n, entry in zip(numbers, pending, strict=True) if n % 7}
    request = AutoclaimRequest(b"alice", 1000, pending[0].id, COUNT)
    return scan.xautoclaim(Group(MAX_ID, pending, ()), request, NOW_MS, present)[1]


@pytest.mark.parametrize("name", ["first", "middle"])
@pytest.mark.parametrize("rows", [LARGE, TENTH])
def test_a_page_of_a_large_group_is_the_references(pages, rows, name):
    answer = expected(0 if name == "first" else rows // 2)
    page = pages[rows][name]
    assert sorted(page["claimed"]) == [stream_id.ms for stream_id in answer.claimed]
    assert sorted(page["deleted"]) == [stream_id.ms for stream_id in answer.deleted]
    assert page["next_ms"] == [answer.cursor.ms]


@pytest.mark.parametrize("name", ["first", "middle"])
def test_no_task_gets_more_rows_than_the_page_has(pages, name):
    """The page itself is decided in this process.  Only the rows that it claims are shuffled."""
    assert COUNT <= pages[LARGE][name]["most_rows_of_a_task"] <= PAGE_ROWS


def test_a_page_needs_no_more_memory_for_a_larger_group(pages):
    large, tenth = (pages[rows]["middle"]["peak_mib"] for rows in (LARGE, TENTH))
    assert 0 < large <= 1.2 * tenth
