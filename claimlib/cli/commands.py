"""Register all commands in the order of their use.  The help lists them in this order."""

from __future__ import annotations

from importlib import import_module

from claimlib.cli.app import app

for _name in (
    "stores",
    "sweep",
    "bulk",
    "writeback",
    "rescue",
    "undo",
    "maintain",
    "reading",
    "history",
    "entry",
    "report",
    "advise",
    "serve",
    "doctor",
    "demo",
):
    import_module(f"claimlib.cli.{_name}")

__all__ = ["app"]
