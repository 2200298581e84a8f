"""The options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Output(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Where the tables are: a folder, a URL (s3a://…), or catalog.schema.",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Defaults, in TOML.", show_default=False),
]
OutputOption = Annotated[Output, typer.Option("--output", help="How to print the result.")]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show Spark's messages, and tracebacks of errors.")
]
RunIdOption = Annotated[
    str | None,
    typer.Option(
        "--run-id",
        metavar="ID",
        help="The run's name: the same one again changes nothing. [default: a new one]",
        show_default=False,
    ),
]
StreamOption = Annotated[
    str | None,
    typer.Option(
        "--stream",
        metavar="GLOB",
        help="Only these streams (Redis' glob). [default: *]",
        show_default=False,
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="GLOB",
        help="Only these consumer groups (Redis' glob). [default: *]",
        show_default=False,
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="ROWS", min=1, help="How many rows to show at most.")
]
