"""Hide rows of a file by a deletion vector, as Spark's DELETE does."""

from __future__ import annotations

import json
import os
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

from claimlib.store.tables import Store

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC, _COOKIE = 1681511377, 12346


def hide_rows(store: Store, table: str, rows: list[int]) -> Path:
    """Hide rows of the file that the newest commit added first, in a commit of its own.

    Args:
        rows: their numbers in the file.

    Returns: the file of the deletion vector, which is as old as files can be.
    """
    folder = Path(store.where, table)
    newest = max((folder / "_delta_log").glob("*.json"))
    actions = map(json.loads, newest.read_text(encoding="utf-8").splitlines())
    added: dict[str, Any] = next(action["add"] for action in actions if "add" in action)
    vector, name = _vector(rows), uuid.uuid4()
    file = folder / f"deletion_vector_{name}.bin"
    size, checksum = (struct.pack(">I", of) for of in (len(vector), zlib.crc32(vector)))
    file.write_bytes(b"\1" + size + vector + checksum)
    os.utime(file, (1, 1))
    stated = {
        "storageType": "u",
        "pathOrInlineDv": _z85(name.bytes),
        "offset": 1,
        "sizeInBytes": len(vector),
        "cardinality": len(rows),
    }
    kept = {name: added[name] for name in ("path", "partitionValues", "size")}
    removed = {**kept, "deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}
    commit: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 1, "operation": "DELETE"}},
        {"remove": removed},
        {"add": {**added, "deletionVector": stated}},
    ]
    lines = "".join(f"{json.dumps(action)}\n" for action in commit)
    version = int(newest.stem) + 1
    (newest.parent / f"{version:020d}.json").write_text(lines, encoding="utf-8")
    return file


def _vector(rows: list[int]) -> bytes:
    """Return one Roaring bitmap of numbers below 2^16, as Delta stores it."""
    numbers = b"".join(struct.pack("<H", row) for row in rows)
    bitmap = struct.pack("<IIHHI", _COOKIE, 1, 0, len(rows) - 1, 16) + numbers
    return struct.pack("<IQI", _MAGIC, 1, 0) + bitmap


def _z85(data: bytes) -> str:
    text = ""
    for first in range(0, len(data), 4):
        number, digits = int.from_bytes(data[first : first + 4], "big"), ""
        for _ in range(5):
            number, digit = divmod(number, len(_Z85))
            digits = _Z85[digit] + digits
        text += digits
    return text
