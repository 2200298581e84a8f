"""The command demo."""

from __future__ import annotations

from pathlib import Path

import typer

from claimlib.cli.app import app
from claimlib.cli.options import DemoEntriesOption, FolderOption


@app.command(epilog="Example: claimlib demo --folder ./demo-store")
def demo(
    folder: FolderOption = Path("demo-store"),
    entries: DemoEntriesOption = 24_000,
) -> None:
    """Run a demonstration with a temporary Valkey server.

    Starts a Valkey server on this machine, lets consumers crash, takes a snapshot, claims the stuck
    entries with spark-submit, and compares every entry with what the server's own XAUTOCLAIM does.
    Exits with code 1 if they differ.
    Install it with: pip install 'claimlib[spark,redis,cli,demo]'.
    """
    from claimlib.demo.play import play

    code = play(lambda words: app(list(words), standalone_mode=False), folder, entries)
    if code:
        raise typer.Exit(code)
