"""Settings for a JVM that is about to start, in a file that only this user can read.

pyspark hands what a session is built with to the JVM as arguments, which every user of the machine
can read for as long as it runs; and settings may be secrets.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# As pyspark has it, where nobody says otherwise.
_SHELL = "pyspark-shell"
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {
    one: f"\\{one}" for one in " :=#!"
}


@contextmanager
def settings_in_file(conf: Mapping[str, str]) -> Iterator[None]:
    """Until the block ends, a JVM that this process starts reads these settings from a file.

    Settings that a session is built with come before them.  Files of Spark's own are read as
    without it.
    """
    before = os.environ.get(_ARGUMENTS)
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:  # mode 0600
        file.writelines(f"{escaped(key)} {escaped(str(value))}\n" for key, value in conf.items())
        file.flush()
        ours = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults"
        os.environ[_ARGUMENTS] = f"{ours} {_SHELL if before is None else before}"
        try:
            yield
        finally:
            del os.environ[_ARGUMENTS]
            if before is not None:
                os.environ[_ARGUMENTS] = before


def escaped(text: str) -> str:
    """A key or a value as `java.util.Properties` reads it."""
    return "".join(_ESCAPED.get(one, one) for one in text)
