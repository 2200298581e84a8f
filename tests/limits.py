"""Other limits for one test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from claimlib.engine import limits


def set_limits(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    """Set some of the limits until the test ends."""
    monkeypatch.setattr(limits, "LIMITS", replace(limits.LIMITS, **values))
