"""Settings for a JVM that is about to start, in a file that only this user can read.

pyspark hands what a session is built with to the JVM as arguments, which every user of the machine
can read for as long as it runs; and settings may be secrets.
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
# As pyspark has it, where nobody says otherwise.
_SHELL = "pyspark-shell"
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {
    char: f"\\{char}" for char in " :=#!"
}


@contextmanager
def settings_in_file(conf: Mapping[str, str]) -> Iterator[None]:
    """Until the block ends, a JVM that this process starts reads these settings from a file.

    They come after those of the user's own PYSPARK_SUBMIT_ARGS and of Spark's files, and before
    those that a session is built with.
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
    """What the user has spark-submit told, without what a file of ours replaces.

    Attributes:
        words: the arguments, without a file of settings and settings that ours replace.
        lines: those of the file; of two, spark-submit reads the last.
        defaults: the option to read Spark's own file as well, which it does where it is given none.
    """

    words: tuple[str, ...]
    lines: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ("--load-spark-defaults",)

    @classmethod
    def of(cls, words: Sequence[str], conf: Mapping[str, str]) -> _Arguments:
        """Return the arguments beside these settings."""
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
