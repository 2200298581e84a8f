"""Pass settings to a JVM that is about to start, by a file that only this user can read.

pyspark passes the settings of a session to the JVM as arguments.  Every user of the machine can
read them as long as the JVM runs, and settings may be secrets.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
# The value that pyspark uses by default.
_SHELL = "pyspark-shell"
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {
    char: f"\\{char}" for char in " :=#!"
}


@contextmanager
def settings_in_file(conf: Mapping[str, str]) -> Iterator[None]:
    """Let a JVM that this process starts in the block read these settings from a file.

    They take precedence over those of the user's own PYSPARK_SUBMIT_ARGS and of Spark's files.
    Settings that a session is built with take precedence over them.
    """
    before = os.environ.get(_ARGUMENTS)
    theirs = _Arguments.of(shlex.split(_SHELL if before is None else before), conf)
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:  # mode 0600
        file.writelines(f"{line}\n" for line in theirs.lines)
        file.writelines(f"{escaped(key)} {escaped(str(value))}\n" for key, value in conf.items())
        file.flush()
        ours = ("--properties-file", file.name, *theirs.defaults)
        os.environ[_ARGUMENTS] = shlex.join((*ours, *theirs.words))
        try:
            yield
        finally:
            del os.environ[_ARGUMENTS]
            if before is not None:
                os.environ[_ARGUMENTS] = before


def is_set_by_user(*keys: str) -> bool:
    """Return True if Spark's own files or PYSPARK_SUBMIT_ARGS set one of these keys.

    A file hive-site.xml is not read, but counts, because it may set any key.
    """
    import pyspark

    home = os.environ.get("SPARK_HOME", pyspark.__path__[0])
    folder = Path(os.environ.get("SPARK_CONF_DIR", Path(home, "conf")))
    words = shlex.split(os.environ.get(_ARGUMENTS, "").replace("=", " "))
    named = {Path(name) for word, name in pairwise(words) if word == "--properties-file"}
    files = filter(Path.is_file, (folder / "spark-defaults.conf", *named))
    text = "\n".join((*words, *(file.read_text("utf-8", "replace") for file in files)))
    is_set = re.compile(rf"^\s*({'|'.join(map(re.escape, keys))})(?![\w.])", re.MULTILINE)
    return is_set.search(text) is not None or (folder / "hive-site.xml").exists()


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Hold the user's arguments of spark-submit, without those that claimlib's file replaces.

    Attributes:
        words: the arguments, without a file of settings, and without settings that claimlib's file
            replaces.
        lines: the lines of the user's file.  If two set one key, spark-submit reads the last.
        defaults: the option to read Spark's own file as well.  spark-submit does so by itself if no
            file is given.
    """

    words: tuple[str, ...]
    lines: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ("--load-spark-defaults",)

    @classmethod
    def of(cls, words: Sequence[str], conf: Mapping[str, str]) -> _Arguments:
        """Return the arguments that remain beside these settings."""
        kept: list[str] = []
        file, rest = None, iter(words)
        for word in rest:
            option, _, value = word.partition("=")
            if option not in {"--properties-file", "--conf", "-c"}:
                kept.append(word)
                continue
            value = value or next(rest, "")
            if option == "--properties-file":
                file = value
            elif value.partition("=")[0] not in conf:
                kept += [option, value]
        if file is None:
            return cls(tuple(kept))
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        return cls(tuple(kept), tuple(lines), ())


def escaped(text: str) -> str:
    """Return a key or a value as `java.util.Properties` reads it."""
    return "".join(_ESCAPED.get(char, char) for char in text)
