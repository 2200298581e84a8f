"""Write a report to a file as a whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(text: str, path: Path) -> None:
    """Write a text to a file.  A reader never sees a part of it.

    Raises:
        OSError: the file cannot be written.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
