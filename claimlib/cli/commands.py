"""All commands, in the order of their use: the help lists them as they are imported here."""

from __future__ import annotations

from claimlib.cli import stores

# isort: split
from claimlib.cli import sweep

# isort: split
from claimlib.cli import bulk

# isort: split
from claimlib.cli import reading

# isort: split
from claimlib.cli import history

# isort: split
from claimlib.cli import doctor

# isort: split
from claimlib.cli import demo

# isort: split
from claimlib.cli.app import app

__all__ = ["app", "bulk", "demo", "doctor", "history", "reading", "stores", "sweep"]
