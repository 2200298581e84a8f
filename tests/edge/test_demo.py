"""What `make demo` does around the product: its folder, and what it says of a proof."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from claimlib.cli.commands import app
from claimlib.demo import workload
from claimlib.demo.oracle import ServerAnswer, read_groups
from claimlib.demo.play import (
    _claimlib,
    _close_the_loop,
    _let_server_claim,
    _next_steps,
    _read_server,
    _sweep_embedded,
    play,
)
from claimlib.demo.proof import Difference, Proof, Subject
from claimlib.demo.story import Story
from claimlib.errors import ClaimlibError, RequestError
from claimlib.testing.server_process import Server, valkey_server

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
    *commands, last = (line for line in _next_steps(store).splitlines() if line.startswith("  "))

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


_Written = tuple[Story, Callable[..., None], Server, Path, ServerAnswer]


@pytest.fixture
def swept(
    tmp_path: Path,
) -> Iterator[tuple[Story, Callable[..., None], Server, Path, ServerAnswer]]:
    """A store of the embedded engine that agrees with a copy of its server."""
    story = Story(Console(file=StringIO(), width=200))

    def command(words: Sequence[str]) -> int:
        return app(words, standalone_mode=False) or 0

    claimlib = partial(_claimlib, story, command)
    store = tmp_path / "embedded"
    with valkey_server() as server, valkey_server() as second:
        sweep_ms = workload.drive(server, entries=240).sweep_ms
        _read_server(story, claimlib, server, {"embedded": store})
        answer = _let_server_claim(story, server, second, sweep_ms)
        assert not _sweep_embedded(story, claimlib, store, answer).differences
        yield story, claimlib, server, store, answer


def test_the_claims_come_to_the_server_and_their_consumer_works_them_off(swept):
    _close_the_loop(*swept)
    with closing(swept[2].client()) as client:
        pending = [entry for group in read_groups(client).values() for entry in group.pending]
    assert pending
    assert b"reclaimer" not in {entry.consumer for entry in pending}
    answer, told = swept[-1], swept[0].console.file.getvalue()
    claimed = sum(
        entry.consumer == b"reclaimer"
        for group in answer.groups.values()
        for entry in group.after.pending
    )
    assert claimed
    assert f"group by group: {claimed:,} entries" in told


def test_another_state_of_the_second_server_is_noticed(swept):
    story, claimlib, server, store, answer = swept
    with closing(server.client()) as client:
        stream, group = next(key for key, of in answer.groups.items() if of.reply.claimed)
        client.xack(stream, group, str(answer.groups[stream, group].reply.claimed[0]))
    with pytest.raises(ClaimlibError, match="1 entries differ, first: owner and count of"):
        _close_the_loop(story, claimlib, server, store, answer)
