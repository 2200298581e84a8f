"""Define the command demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from claimlib.cli.app import app, command
from claimlib.config.sections import Option


@command("demo --folder ./demo-store")
def demo(
    folder: Annotated[
        Path, Option("Folder for its stores; those of an earlier demo are replaced.", "FOLDER")
    ] = Path("demo-store"),
    entries: Annotated[int, Option("Number of stream entries to create.", "N", least=120)] = 24_000,
) -> None:
    """Run a demonstration with two temporary Valkey servers.

    Starts a Valkey server on this machine, lets consumers crash, and takes a snapshot. A copy of
    the server runs XAUTOCLAIM. Each engine claims the stuck entries; Spark runs as a spark-submit
    job. For each engine, every entry is compared with the copy of the server. The claims of
    the embedded engine are written back, and both servers are compared. The consumer that got the
    entries then acknowledges them. Exits with code 1 if anything differs. Needs the extras spark,
    redis, cli and demo.
    """
    from claimlib.demo.play import play

    code = play(lambda words: app(list(words), standalone_mode=False), folder, entries)
    if code:
        raise typer.Exit(code)
