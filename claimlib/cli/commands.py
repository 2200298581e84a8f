"""Register all commands in the order of their use.  The help lists them in this order."""

from __future__ import annotations

from importlib import import_module

from claimlib.cli.app import app

for _name in (
    "store_commands",
    "sweep_command",
    "bulk_commands",
    "writeback_command",
    "rescue_command",
    "undo_command",
    "maintain_command",
    "reading_commands",
    "run_history_commands",
    "entry_command",
    "report_command",
    "advise_command",
    "serve_command",
    "doctor_command",
    "demo_command",
):
    import_module(f"claimlib.cli.{_name}")

__all__ = ["app"]
