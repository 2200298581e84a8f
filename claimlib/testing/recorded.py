"""Read a file of vectors, value by value: a JSON file of commands that a server has answered.

If a value is not valid, the error names its place in the file.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from claimlib.errors import ConfigError, IdError
from claimlib.semantics.ids import StreamId, parse_id
from claimlib.semantics.model import MAX_I64

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Recorded:
    """Hold a value of a vector file, and its place there: `vectors[0].before.groups[1].name`."""

    file: Path
    place: str
    value: Any

    def member(self, key: str) -> Recorded:
        """Return a member of an object."""
        if not isinstance(self.value, dict) or key not in self.value:
            raise self.unfit(f"an object with {key}")
        place = f"{self.place}.{key}" if self.place else key
        return Recorded(self.file, place, self.value[key])

    def items(self) -> list[Recorded]:
        """Return the items of a list."""
        if not isinstance(self.value, list):
            raise self.unfit("a list")
        return [
            Recorded(self.file, f"{self.place}[{n}]", value) for n, value in enumerate(self.value)
        ]

    def one_of(self, choices: type[StrEnum]) -> str:
        """Return a text, which must be one of the choices."""
        if not isinstance(self.value, str) or self.value not in list(choices):
            raise self.unfit(f"one of {', '.join(choices)}")
        return self.value

    def text(self) -> bytes:
        """Return a text as it was sent to the server."""
        if not isinstance(self.value, str):
            raise self.unfit("a text")
        try:
            return self.value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise self.unfit("a text of Unicode") from error

    def texts(self) -> tuple[bytes, ...]:
        """Return the texts of a list, as they were sent to the server."""
        return tuple(item.text() for item in self.items())

    def integer(self) -> int:
        """Return a time or a count: a whole number from 0 to 2^63-1."""
        if type(self.value) is not int or not 0 <= self.value <= MAX_I64:
            raise self.unfit("a whole number from 0 to 2^63-1")
        return self.value

    def id(self) -> StreamId:
        """Return a stream id."""
        try:
            return parse_id(self.text())
        except IdError as error:
            raise self.unfit("a stream id") from error

    def keyed(self, pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, _Value]:
        """Return pairs as a dict.  This value is the list that they were read from.

        Args:
            pairs: the key and the value of each item.

        Raises:
            ConfigError: two items have the same key.
        """
        by_key: dict[_Key, _Value] = {}
        for key, value in pairs:
            if key in by_key:
                raise self.unfit(f"only one item with the key {key!s}")
            by_key[key] = value
        return by_key

    def unfit(self, expected: str) -> ConfigError:
        """Return the error for an unexpected value.  It names the file and the value's place."""
        place = self.place or "the top"
        return ConfigError(
            f"{self.file} is not a vector file: at {place} there must be {expected},"
            f" not {reprlib.repr(self.value)}",
            file=str(self.file),
            place=self.place,
        )


def read(file: Path) -> Recorded:
    """Return the whole content of a file.

    Raises:
        ConfigError: the file cannot be read, or is not JSON.  Methods of `Recorded` also raise this
            error.
    """
    try:
        text = file.read_text(encoding="utf-8")
        value = json.loads(text, object_pairs_hook=_checked_object)
    except OSError as error:
        raise ConfigError(
            f"the file {file} cannot be read: {error.strerror}", file=str(file), place=""
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{file} is not a vector file: {error}", file=str(file), place=""
        ) from error
    return Recorded(file, "", value)


def _checked_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError(f"an object has a key twice; it has {', '.join(key for key, _ in pairs)}")
    return mapping
