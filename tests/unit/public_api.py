"""The public names of claimlib with their signatures, as a text that changes are compared with.

`python -m tests.unit.public_api` writes the text again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import ForwardRef

import claimlib

FILE = Path(__file__).with_suffix(".txt")
_HEAD = """\
The public API of claimlib. Generated: `python -m tests.unit.public_api` writes this file.
A line that changes or goes is a change that users notice: say so in changes/.
"""


_REPLY = (*("counts", "dry_run", "is_repeat", "losses", "of_finished", "run_id", "run_seq"),)
# Users get these from claimlib and make none; the other members are for engines and runs.
MADE: dict[str, tuple[str, ...]] = {
    "BulkReply": ("ids", "requests", *_REPLY),
    "Reading": ("last_seq", "read", "run_seq", "store", "unfinished"),
    "Relation": (
        *("arrow", "collect", "columns", "count", "distinct", "fetched", "first", "is_empty"),
        *("limit", "order_by", "select", "sql", "stream", "types", "where"),
    ),
    "Reply": ("claimed", "cursors", "deleted", "groups", "lost", *_REPLY),
    "Store": ("init", "lock", "open", "read", "read_at", "relation", "spark", "where"),
}
# Users make these, and use none of their methods.
VALUES = (
    *("ImportRequest", "RemovalLimits", "Retirement", "Scope", "SnapshotRequest", "SweepRequest"),
    "TableMap",
)

# The other commands call these.
INTERNAL = {"open": ("ServerAccess", "ServerReading")}


class _Annotation(str):
    """An annotation that a signature shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def public_api() -> str:
    """Return the whole text."""
    lines = [line for name in sorted(claimlib.__all__) for line in _lines(name)]
    return _HEAD + "\n" + "\n".join(lines) + "\n"


def members(name: str) -> dict[str, object]:
    """Return the methods and properties of a public class that are for users, by name.

    The value of an attribute that only objects have is None.
    """
    bases = [base for base in getattr(claimlib, name).__mro__ if _is_own(base)]
    known = {key: member for base in reversed(bases) for key, member in vars(base).items()}
    if name in MADE:
        return {key: known.get(key) for key in sorted(MADE[name])}
    kinds = () if name in VALUES else (FunctionType, classmethod, property, cached_property)
    return {
        key: member
        for key, member in sorted(known.items())
        if not key.startswith("_")
        and isinstance(member, kinds)
        and name not in INTERNAL.get(key, ())
    }


def _is_own(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "claimlib"


def _lines(name: str) -> Iterator[str]:
    value = getattr(claimlib, name)
    if inspect.isfunction(value):
        yield f"{name}{_signature(value)}"
    elif not inspect.isclass(value):
        yield name if name == "__version__" else f"{name} = {value!r}"
    elif issubclass(value, claimlib.ClaimlibError):
        yield f"class {name}({value.__base__.__name__}): exit code {value.exit_code}"
    elif issubclass(value, Enum):
        yield f"class {name}: {', '.join(f'{member.name}={member.value!r}' for member in value)}"
    else:
        yield f"class {name}{'' if name in MADE else _signature(value)}"
        for member, method in members(name).items():
            yield f"    {_member(member, method)}"


def _member(name: str, member: object) -> str:
    if isinstance(member, classmethod):
        return f"{name}{_signature(member.__func__)}  # of the class"
    return f"{name}{_signature(member)}" if inspect.isfunction(member) else name


def _signature(function: Callable[..., object]) -> str:
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=_shown(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    returned = _shown(signature.return_annotation)
    return str(signature.replace(parameters=parameters, return_annotation=returned))


def _shown(annotation: object) -> object:
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    return _Annotation(text) if isinstance(text, str) else text


if __name__ == "__main__":
    FILE.write_text(public_api(), encoding="utf-8")
