"""The commands, for the tests that try all of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from claimlib.cli.commands import app

_NO_SERVER = "redis://127.0.0.1:1/0"


@dataclass(frozen=True, slots=True)
class Command:
    """Describe a command.

    Attributes:
        guide: the page below docs that explains it, with examples that run.
        words: arguments that it accepts, with `{}` for the place of a store.
        unit: a text of its help that names a unit.
        writes: True if it changes a store that is there.
    """

    guide: str
    words: tuple[str, ...]
    unit: str = ""
    writes: bool = False

    def on(self, store: object) -> list[str]:
        """Return the arguments for a store."""
        return [word.format(store) for word in self.words]


_SWEEP = ("--consumer", "c", "--min-idle", "1m", "--now", "2025-06-15T15:07:00Z")
COMMANDS: Mapping[str, Command] = {
    "init": Command("tables.md", ("{}",), "Number of partitions"),
    "upgrade": Command("upgrading.md", ("{}",)),
    "snapshot": Command("server.md", (_NO_SERVER, "{}"), "per second", writes=True),
    "import": Command(
        "own-tables.md",
        ("{}", "--entries", "lake.a.e", "--pending", "lake.a.p"),
        "milliseconds since the epoch",
        writes=True,
    ),
    "check": Command("looking.md", ("{}",), "Counts are of rows"),
    "xautoclaim": Command("sweeps.md", ("{}", *_SWEEP), "(ms, s, m, h, d, w)", writes=True),
    "reset-cursor": Command("sweeps.md", ("{}", "nightly"), writes=True),
    "xclaim": Command(
        "by-id.md",
        ("{}", "s", "g", "c", "1-0", "--min-idle", "1m"),
        "(ms, s, m, h, d, w)",
        writes=True,
    ),
    "xack": Command("by-id.md", ("{}", "s", "g", "1-0"), "ms-seq", writes=True),
    "retire": Command(
        "by-id.md", ("{}", "s", "g", "c", "--to", "d"), "Delivery counts stay", writes=True
    ),
    "writeback": Command(
        "server.md#write-claims-back", ("{}", "1", _NO_SERVER), "older than DURATION", writes=True
    ),
    "undo": Command("runs.md#undo", ("{}", "1"), "undo the undo", writes=True),
    "maintain": Command("maintenance.md", ("{}",), "7 days", writes=True),
    "rescue": Command(
        "server.md#all-in-one-command",
        (_NO_SERVER, "{}", "--consumer", "c", "--min-idle", "1m"),
        "(ms, s, m, h, d, w)",
        writes=True,
    ),
    "xpending": Command("looking.md", ("{}",), "in ms"),
    "describe": Command("looking.md", ("{}", "s", "g")),
    "runs": Command("looking.md", ("{}",), "milliseconds"),
    "entry": Command("looking.md", ("{}", "s", "1-0")),
    "report": Command("reports.md", ("{}",)),
    "advise": Command("reports.md", ("{}",)),
    "serve": Command("looking.md", ("{}",)),
    "abandon": Command("runs.md", ("{}", "snapshot:x"), writes=True),
    "doctor": Command("looking.md", ("{}",)),
    "demo": Command("../README.md#try-it", ()),
}
WRITING = tuple(name for name, command in COMMANDS.items() if command.writes)

_PARAMETERS = {
    command.name or command.callback.__name__: inspect.signature(command.callback).parameters
    for command in app.registered_commands
}
NAMES = tuple(_PARAMETERS)
"""The commands that exist."""


def with_option(name: str) -> tuple[str, ...]:
    """Return the commands that have an option, by the name of its parameter."""
    return tuple(command for command, known in _PARAMETERS.items() if name in known)
