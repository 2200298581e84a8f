"""Print the story of `make demo`: steps with their seconds, commands, and the verdict."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from claimlib import terminal
from claimlib.demo.oracle import ServerAnswer
from claimlib.demo.proof import Difference, Proof
from claimlib.demo.workload import Workload
from claimlib.testing.server_process import Server

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN_DIFFERENCES = 10


@dataclass
class Story:
    """Print on stdout, and remember how long each step took."""

    console: Console = field(default_factory=partial(terminal.console, soft_wrap=True))
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print the title of a step before it, and its seconds after it."""
        title = f"{len(self.seconds) + 1}. {title}"
        self.console.rule(Text(title, "bold"), align="left")
        since = time.monotonic()
        yield
        self.seconds[title] = time.monotonic() - since
        self.console.print(Text(f"({self.seconds[title]:.1f} s)\n", "dim"))

    def tell(self, text: str) -> None:
        """Print plain text."""
        self.console.print(Text(text))

    def command(self, words: Sequence[str]) -> None:
        """Print a command that is about to be run, as a user would type it."""
        self.console.print(Text(f"$ {shlex.join(words)}", "bold cyan"))
        self.console.file.flush()  # the command's own output follows, and may use another buffer

    def proof(self, proofs: Mapping[str, Proof]) -> None:
        """Print a table with the numbers of facts that were compared, and of those that differ.

        Args:
            proofs: the comparison of each engine's store with the server, by the engine's name.
        """
        table = _table("what", "compared", *(f"{engine} differs" for engine in proofs))
        any_proof = next(iter(proofs.values()))
        for what, compared in any_proof.compared.items():
            different = (_number(proof.differences, what) for proof in proofs.values())
            table.add_row(what, f"{compared:,}", *different)
        table.add_section()
        totals = (f"{len(proof.differences):,}" for proof in proofs.values())
        table.add_row("total", f"{any_proof.total:,}", *totals)
        self.console.print(table)
        counted = ", ".join(f"{outcome} in {count}" for outcome, count in any_proof.groups.items())
        self.tell(f"Entries were {counted} groups.")

    def times(self) -> None:
        """Print the seconds of each step."""
        table = _table("step", "seconds")
        for title, seconds in self.seconds.items():
            table.add_row(title, f"{seconds:.1f}")
        table.add_section()
        table.add_row("total", f"{sum(self.seconds.values()):.1f}")
        self.console.print(table)

    def verdict(self, proofs: Mapping[str, Proof]) -> None:
        """Print the verdict.  If the proofs fail, also print their shortfalls and differences."""
        shortfalls = {line: None for proof in proofs.values() for line in proof.shortfalls}
        differences = [
            f"{engine} engine: {difference}"
            for engine, proof in proofs.items()
            for difference in proof.differences
        ]
        lines = [*shortfalls, *differences[:_SHOWN_DIFFERENCES]]
        hidden = len(differences) - _SHOWN_DIFFERENCES
        if hidden > 0:
            lines.append(f"and {hidden:,} more differences")
        for line in lines:
            self.console.print(Text(line, "red"))
        text, style = (
            (f"PROVED: the server, and the engines {' and '.join(proofs)}, agree on all of", _GOOD)
            if not lines
            else ("FAILED: see above; compared were", "bold red")
        )
        total = max(proof.total for proof in proofs.values())
        self.console.print(Text(f"\n{text} {total:,} facts.\n", style))


_GOOD = "bold green"


def _number(differences: Iterable[Difference], what: str) -> str:
    return f"{sum(difference.what == what for difference in differences):,}"


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=None, show_edge=False)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def of_workload(server: Server, stalled: Workload) -> str:
    """Return a text on the work of the producers and consumers."""
    return (
        f"Valkey at {server.url}: {stalled.added:,} entries in {stalled.streams} streams,"
        f" {stalled.groups} consumer groups.\n"
        f"{stalled.delivered:,} deliveries to {stalled.consumers} consumers ({stalled.died} of them"
        f" died); {stalled.acknowledged:,} acknowledged.\n"
        f"{stalled.deleted:,} entries deleted (XDEL), {stalled.trimmed:,} trimmed (XTRIM)."
    )


def of_answer(answer: ServerAnswer) -> str:
    """Return a text on the claims of the server in its loops."""
    groups = answer.groups.values()
    claimed = sum(len(group.reply.claimed) for group in groups)
    deleted = sum(len(group.reply.deleted) for group in groups)
    return (
        f"{sum(group.calls for group in groups)} calls of XAUTOCLAIM for {len(groups)} groups,"
        f" min-idle-time {answer.min_idle_ms}, all at the time {answer.now_ms}:\n"
        f"{claimed:,} claimed, {deleted:,} deleted,"
        f" {sum(group.left for group in groups):,} left alone;"
        f" {answer.at_boundary:,} entries were idle for exactly min-idle-time."
    )
