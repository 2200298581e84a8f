"""State what can follow from a run of each command that changes a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from claimlib.schema import Kind

WRITEBACK = "writeback"
"""Name the command of runs that make the claims of another run on the server."""
UNDO = "undo"
"""Name the command of runs that restore what another run changed."""


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Describe the runs of a command.

    Attributes:
        is_undoable: True if `undo` can undo them.
        is_written_back: True if `writeback` can make their changes on the server.
        has_server_commands: True if `runs --as-commands` can print commands for the server.
        reported: the kinds of changes that a report names even if there are none.
    """

    is_undoable: bool = False
    is_written_back: bool = False
    has_server_commands: bool = False
    reported: tuple[Kind, ...] = ()


_ALL = {"is_undoable": True, "is_written_back": True, "has_server_commands": True}
# The modules of the commands are not imported for their names, because that is slow.
RUN_COMMANDS: Mapping[str, RunCommand] = {
    "xautoclaim": RunCommand(**_ALL, reported=(Kind.CLAIMED, Kind.DELETED)),
    "xclaim": RunCommand(**_ALL, reported=(Kind.CLAIMED,)),
    "xack": RunCommand(**_ALL, reported=(Kind.ACKED,)),
    "retire": RunCommand(**_ALL, reported=(Kind.CLAIMED,)),
    "reset-cursor": RunCommand(is_undoable=True),
    UNDO: RunCommand(
        is_undoable=True, is_written_back=True, reported=(Kind.RESTORED, Kind.RETURNED)
    ),
    WRITEBACK: RunCommand(reported=(Kind.MOVED,)),
}
"""Map the name of a command to its description.  Snapshots, imports and maintenance have none."""

UNDOABLE = tuple(name for name, command in RUN_COMMANDS.items() if command.is_undoable)
WRITTEN_BACK = tuple(name for name, command in RUN_COMMANDS.items() if command.is_written_back)
WITH_SERVER_COMMANDS = tuple(
    name for name, command in RUN_COMMANDS.items() if command.has_server_commands
)
