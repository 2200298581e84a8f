"""`python -m tests.edge.error_reference` writes the table of errors into docs/troubleshooting.md.

The classes, their exit codes and what they mean come from `claimlib.errors`.  What an error leaves
in the store, and what to do, stand in `ENTRIES` here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from claimlib import errors
from tests.edge.documents import ROOT

FILE = ROOT / "docs" / "troubleshooting.md"
_BLOCK = re.compile(r"(<!-- errors[^\n]* -->\n).*?(<!-- /errors -->)", re.DOTALL)
_HEAD = "| class | exit code | what happened | store | what to do |\n|---|---|---|---|---|\n"


class Left(StrEnum):
    """State what an error leaves in the store; the document explains the words."""

    UNCHANGED = "unchanged"
    RUN = "run?"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold what the class itself does not say."""

    store: Left
    remedy: str


_FIX_TEXT = "Correct the argument, the option, the variable or the key that the message names."
_AGAIN = "Type the same command again, with its `--run-id`."

ENTRIES: Mapping[str, Entry] = {
    "ClaimlibError": Entry(Left.RUN, "Catch it in Python to catch all classes below."),
    "RequestError": Entry(Left.UNCHANGED, _FIX_TEXT),
    "IdError": Entry(Left.UNCHANGED, "Write `ms-seq`, as in `1767225600000-0`, or `ms` alone."),
    "IntervalError": Entry(Left.UNCHANGED, "Leave out the `(` before the id."),
    "DurationError": Entry(Left.UNCHANGED, "Write whole numbers with units, as in `1h30m`."),
    "InstantError": Entry(Left.UNCHANGED, "Write `2026-01-01T00:00:00Z`, or ms since 1970."),
    "GlobError": Entry(Left.UNCHANGED, "Close the `[`, and write a backslash twice."),
    "NameSpellingError": Entry(
        Left.UNCHANGED, "Write a backslash twice, and a byte that is not UTF-8 as `\\xhh`."
    ),
    "ConfigError": Entry(
        Left.RUN, "Correct the file, the variable, the setting of Spark or the Java that is named."
    ),
    "MissingExtraError": Entry(
        Left.UNCHANGED, "Install claimlib again with the extra that the message names."
    ),
    "GuardError": Entry(
        Left.UNCHANGED, "Find out why so much would change. Then raise the limit, or leave it."
    ),
    "EmptySourceError": Entry(
        Left.UNCHANGED, "Check the source and the globs. If it is intended: `--allow-empty`."
    ),
    "StateError": Entry(Left.UNCHANGED, "Correct the values that your Python code passes."),
    "StoreError": Entry(Left.UNCHANGED, "See the classes below it."),
    "StoreNotFoundError": Entry(
        Left.UNCHANGED, "Correct the location, or type `claimlib init STORE`."
    ),
    "StoreIncompleteError": Entry(
        Left.DAMAGED, "Put the table back. If you no longer have it: `claimlib init STORE`."
    ),
    "StoreExistsError": Entry(
        Left.UNCHANGED, "Leave out `--buckets` and `--source`, or choose another location."
    ),
    "UnsafeLocationError": Entry(
        Left.UNCHANGED, "Declare a log store for S3, or choose a location that lasts."
    ),
    "StorageError": Entry(
        Left.RUN, "Repair the storage or the permissions. Then type the same command again."
    ),
    "DamagedTableError": Entry(
        Left.DAMAGED, "Restore the file from a backup, or fill a new store."
    ),
    "UnsupportedTableError": Entry(Left.UNCHANGED, "Upgrade delta-spark and pyspark."),
    "StoreUnreachableError": Entry(Left.RUN, _AGAIN),
    "SchemaVersionError": Entry(
        Left.UNCHANGED, "Type `claimlib upgrade STORE`, or use the version that the message names."
    ),
    "SchemaError": Entry(
        Left.DAMAGED, "Repair the table as the message says. Then type the same command again."
    ),
    "SourceMismatchError": Entry(
        Left.UNCHANGED,
        "Use another store. If it is the same server: `claimlib init STORE --source`.",
    ),
    "NotAMirrorError": Entry(Left.UNCHANGED, "Take the snapshot into another store."),
    "ForeignRunSeqError": Entry(
        Left.UNCHANGED, "Run the UPDATE statement in the message, then the command again."
    ),
    "MissingRowsError": Entry(
        Left.DAMAGED, "Run the INSERT statement in the message before any `VACUUM`."
    ),
    "VersionExpiredError": Entry(Left.UNCHANGED, "Choose a later run for `--as-of`."),
    "DuplicateRowsError": Entry(
        Left.RUN, "Delete all rows of the key but one, then type the same command again."
    ),
    "HashCollisionError": Entry(Left.UNCHANGED, "Rename one of the two at the source of the rows."),
    "InputError": Entry(Left.UNCHANGED, "Correct the table or the file that the message names."),
    "RunError": Entry(Left.RUN, "See the classes below it."),
    "LostRaceError": Entry(
        Left.UNCHANGED, "Start runs one at a time, this one with the same `--run-id`."
    ),
    "StoreBusyError": Entry(Left.UNCHANGED, "Wait for the named process, or raise `--wait`."),
    "UnfinishedRunError": Entry(
        Left.RUN, "Type the command of the named run again, with its `--run-id`."
    ),
    "CommitConflictError": Entry(Left.RUN, _AGAIN),
    "RunKeyConflictError": Entry(
        Left.UNCHANGED, "Choose another run id, or repeat the earlier request."
    ),
    "RunAbandonedError": Entry(Left.UNCHANGED, "Choose another run id."),
    "SparkUnreachableError": Entry(Left.UNCHANGED, "Check `SPARK_REMOTE`, then try again."),
    "SparkEndedError": Entry(Left.RUN, _AGAIN),
    "SparkMemoryError": Entry(
        Left.RUN, "Give Spark more memory: `--spark-conf spark.driver.memory=8g`."
    ),
    "WorkerError": Entry(
        Left.RUN, "Install the package for the workers' Python, or send it with `--py-files`."
    ),
    "VerificationError": Entry(
        Left.RUN, "Do what the message says. If it happens again, report it."
    ),
    "SourceError": Entry(Left.UNCHANGED, "Read the server's answer in the message."),
    "SourceUnreachableError": Entry(Left.UNCHANGED, _AGAIN),
    "LineageError": Entry(
        Left.UNCHANGED, "Type the same report again once the server accepts events."
    ),
    "AuthenticationFailedError": Entry(
        Left.UNCHANGED, "Correct the user, `REDIS_PASSWORD` or `--password-file`."
    ),
    "PermissionDeniedError": Entry(
        Left.UNCHANGED, "Grant the right that the message names; `claimlib doctor` names all."
    ),
    "WrongTypeError": Entry(Left.UNCHANGED, "Correct the name, or give a glob for `--stream`."),
    "ReplyError": Entry(Left.UNCHANGED, "Correct the name that the reply names."),
}


def error_classes() -> dict[str, type[errors.ClaimlibError]]:
    """Return the classes by name, in the order of the module."""
    return {
        name: item
        for name, item in vars(errors).items()
        if inspect.isclass(item) and issubclass(item, errors.ClaimlibError)
    }


def table() -> str:
    """Return the table: one row per class, below the class that it is derived from."""
    return _HEAD + "".join(map(_row, _in_tree_order(errors.ClaimlibError)))


def _in_tree_order(error: type[errors.ClaimlibError]) -> Iterator[type[errors.ClaimlibError]]:
    yield error
    for other in error_classes().values():
        if other.__bases__ == (error,):
            yield from _in_tree_order(other)


def _row(error: type[errors.ClaimlibError]) -> str:
    entry = ENTRIES[error.__name__]
    code, summary = str(error.exit_code), _summary(error)
    texts = (f"`{error.__name__}`", code, summary, entry.store, entry.remedy)
    return "| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |\n"


def _summary(error: type[errors.ClaimlibError]) -> str:
    """Return the first sentence of the docstring."""
    paragraph = (inspect.getdoc(error) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).partition(". ")[0].removesuffix(".")


def with_errors(document: str) -> str:
    """Return the document with the table as the classes are now."""
    new, number = _BLOCK.subn(lambda match: f"{match[1]}{table()}{match[2]}", document)
    assert number == 1, "the document has not one block of errors"
    return new


if __name__ == "__main__":
    FILE.write_text(with_errors(FILE.read_text(encoding="utf-8")), encoding="utf-8")
