"""Pass settings to a JVM that is about to start, by a file that only this user can read.

By default, pyspark passes the settings of a session to the JVM as arguments.  Every user of the
machine can read these arguments while the JVM runs, and settings may be secrets.
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

_ARGUMENTS_VARIABLE = "PYSPARK_SUBMIT_ARGS"
_DEFAULT_ARGUMENTS = "pyspark-shell"
_ESCAPED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {
    char: f"\\{char}" for char in " :=#!"
}


@contextmanager
def settings_in_file(conf: Mapping[str, str]) -> Iterator[None]:
    """Let a JVM that this process starts in the block read these settings from a file.

    The file takes precedence over the user's PYSPARK_SUBMIT_ARGS and over Spark's own files.
    Settings of the session's builder take precedence over the file.
    """
    before = os.environ.get(_ARGUMENTS_VARIABLE)
    words = shlex.split(_DEFAULT_ARGUMENTS if before is None else before)
    user = _UserArguments.of(words, conf)
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:  # mode 0600
        file.writelines(f"{line}\n" for line in user.lines)
        file.writelines(f"{escaped(key)} {escaped(str(value))}\n" for key, value in conf.items())
        file.flush()
        added = ("--properties-file", file.name, *user.defaults)
        os.environ[_ARGUMENTS_VARIABLE] = shlex.join((*added, *user.words))
        try:
            yield
        finally:
            del os.environ[_ARGUMENTS_VARIABLE]
            if before is not None:
                os.environ[_ARGUMENTS_VARIABLE] = before


def is_set_by_user(*keys: str) -> bool:
    """Return True if Spark's own files or PYSPARK_SUBMIT_ARGS set one of these keys.

    If there is a file hive-site.xml, return True without reading it, because it may set any key.
    """
    import pyspark

    home = os.environ.get("SPARK_HOME", pyspark.__path__[0])
    folder = Path(os.environ.get("SPARK_CONF_DIR", Path(home, "conf")))
    words = shlex.split(os.environ.get(_ARGUMENTS_VARIABLE, "").replace("=", " "))
    named = {Path(name) for word, name in pairwise(words) if word == "--properties-file"}
    files = filter(Path.is_file, (folder / "spark-defaults.conf", *named))
    text = "\n".join((*words, *(file.read_text("utf-8", "replace") for file in files)))
    is_set = re.compile(rf"^\s*({'|'.join(map(re.escape, keys))})(?![\w.])", re.MULTILINE)
    return is_set.search(text) is not None or (folder / "hive-site.xml").exists()


@dataclass(frozen=True, slots=True)
class _UserArguments:
    """Hold the user's arguments of spark-submit, without those that claimlib's file replaces.

    Attributes:
        words: the arguments, without `--properties-file` and without the settings that claimlib's
            file replaces.
        lines: the lines of the user's properties file, to be copied into claimlib's file.  If two
            lines set one key, spark-submit uses the last one.
        defaults: the option to read Spark's own file (`spark-defaults.conf`), too.  Without a
            properties file, spark-submit reads it by itself.  Empty if the user named a file.
    """

    words: tuple[str, ...]
    lines: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ("--load-spark-defaults",)

    @classmethod
    def of(cls, words: Sequence[str], conf: Mapping[str, str]) -> _UserArguments:
        """Return the user's arguments, without the settings that `conf` replaces."""
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
    """Return a key or a value with the escapes of `java.util.Properties`."""
    return "".join(_ESCAPED.get(char, char) for char in text)
