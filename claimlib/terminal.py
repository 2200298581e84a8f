"""Print everything that claimlib prints.  A test fails if another module prints by itself.

Names, errors and settings come from servers, tables and users.  A key may contain bytes that set
the title of a terminal, clear the terminal, or reverse the direction of a line.  Such characters
are escaped on stdout and stderr, in tables, errors, logs and JSON.  Nothing else is changed.  CSV
has no escapes for them, so in CSV they are escaped only on a terminal.

Characters that the encoding of a stream lacks are always escaped.  Otherwise they would raise an
error, and a name must not end a run.
"""

from __future__ import annotations

import codecs
import io
import logging
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console

# ------------------------------------------------------------------- texts


def one_line(text: str) -> str:
    r"""Return a text of another program or user as one line, with escapes for special characters.

    Characters that are not printable become escapes, as `\u001b` or `\U000e0041`.  Python decides
    which characters are printable (`str.isprintable`).  These are not:

    - controls (C0, DEL, C1), which include line breaks
    - formats (Cf), which include the characters that reverse the direction
    - line and paragraph separators, and spaces other than the ordinary one
    - surrogates, private characters, and characters that Unicode has not assigned
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _written_out(char) for char in text)


def number_of(count: int, singular: str, many: str | None = None) -> str:
    """Return a number with its noun, as `1 group`, `2 groups` or `1,000 entries`.

    Args:
        many: the plural.  None means `singular` with an s.
    """
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def listed(names: Sequence[str], total: int) -> str:
    """Return names, comma separated, and the number of further ones.

    Args:
        total: the number of all names.
    """
    more = total - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")


def harmless(text: str) -> str:
    """Return lines with escapes as in `one_line`.  Line breaks stay."""
    return "\n".join(map(one_line, text.split("\n")))


def harmless_json(text: str) -> str:
    """Return a JSON text of the same value, in which special characters are escapes.

    `harmless` escapes the same characters.  In JSON, they occur in strings only, and never after a
    backslash.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        char if char == "\n" or char.isprintable() else _escaped_in_json(char) for char in text
    )


def _written_out(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escaped_in_json(character: str) -> str:
    """Return the escapes of a character in JSON.

    An escape has four digits.  A character whose code has more digits becomes two surrogates.
    """
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _encoded_as_escapes(error: UnicodeError) -> tuple[str, int]:
    r"""Return escapes for characters that an encoding lacks, and the position after them.

    The escapes are those of JSON, so JSON stays valid.  Python's own `\xe9` is not used, because in
    the names in tables it stands for a byte.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(map(_escaped_in_json, lacking)), error.end


_ESCAPES = "claimlib.escapes"
codecs.register_error(_ESCAPES, _encoded_as_escapes)

# ------------------------------------------------------------------- streams


def out(text: str, *, at_once: bool = False) -> None:
    """Write a result to stdout.

    Args:
        at_once: True to flush, so that the reader of a pipe gets the result without a delay.
    """
    print(harmless(text), flush=at_once)  # noqa: T201 - the one place


def out_lines(lines: Iterable[str], *, are_exact: bool = False) -> None:
    """Write results for programs on stdout, line by line, until the reader closes the pipe.

    Args:
        are_exact: True if the format has no escapes (CSV).  Then control characters are escaped
            only on a terminal.
    """
    are_harmless = not are_exact or is_terminal()
    write = sys.stdout.write if are_harmless else _write_exact()
    for line in lines:
        write(f"{harmless(line) if are_harmless else line}\n")
        if not _has_reader():
            return


def out_chunks(chunks: Iterable[str]) -> None:
    """Write a text to stdout in pieces, then a line end."""
    for chunk in chunks:
        sys.stdout.write(harmless(chunk))
        if not _has_reader():
            return
    sys.stdout.write("\n")


def _write_exact() -> Callable[[str], object]:
    write: Callable[[str], object] = getattr(sys.stdout, "write_exact", sys.stdout.write)
    return write


def _has_reader() -> bool:
    return getattr(sys.stdout, "has_reader", True)


def err(text: str) -> None:
    """Write lines to stderr."""
    print(harmless(text), file=sys.stderr)  # noqa: T201 - the one place


def say(*texts: str) -> None:
    """Write messages for users to stderr, one line each."""
    for text in texts:
        err(_wrapped(f"claimlib: {one_line(text)}"))


def _wrapped(line: str) -> str:
    """Break a line between words at the width of the terminal, if stderr is a terminal."""
    if not sys.stderr.isatty():
        return line
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH
    except OSError:  # the stream of a notebook has no file
        width = _WIDTH
    return textwrap.fill(
        line, width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


_WIDTH = 80
"""The width in characters if the terminal does not report its own."""


def is_terminal() -> bool:
    """Return True if stdout is a terminal."""
    return sys.stdout.isatty()


def console(file: IO[str] | None = None, *, soft_wrap: bool = False) -> Console:
    """Return a console on stdout (or `file`), which writes colors and moves the cursor.

    Texts cannot do so, because the console escapes such characters in the texts that it prints.

    Args:
        soft_wrap: True if the terminal breaks long lines, False if the console does.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class _HarmlessConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                is_ours = segment.control is not None
                yield segment if is_ours else segment._replace(text=harmless(segment.text))

    return _HarmlessConsole(file=file, highlight=False, soft_wrap=soft_wrap)


@contextmanager
def error_console() -> Iterator[Console | None]:
    """Yield a console on stderr, or None if stderr is not a terminal.

    The console continues to write to the terminal while stderr is redirected.
    """
    if not console(sys.stderr).is_terminal:
        yield None
        return
    number, encoding = os.dup(sys.stderr.fileno()), sys.stderr.encoding
    with os.fdopen(number, "w", encoding=encoding, errors=_ESCAPES) as terminal:
        yield console(terminal)


@contextmanager
def guarded() -> Iterator[None]:
    """Escape everything that is printed until the block ends.

    This includes the output of argparse, click, warnings and loggers.  If a reader closes its end
    of a pipe, the block continues.
    """
    unguarded = [_open_stream(stream) for stream in (sys.stdout, sys.stderr)]
    streams = [_Guarded(stream) for stream in unguarded]
    stdout, stderr = (cast("IO[str]", stream) for stream in streams)
    with (
        _py4j_logs_nothing(),
        _escaping(unguarded[0]),
        _escaping(unguarded[1]),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
    ):
        try:
            yield
        finally:
            # If a pipe is closed, the error must occur here.  Python itself would flush too late.
            for stream in streams:
                if not getattr(stream, "closed", False):
                    stream.flush()


def _open_stream(stream: IO[str] | None) -> IO[str]:
    """Return the stream, or a stream without a reader if the stream is None or closed.

    The stream is None if the process was started without it.
    """
    return io.StringIO() if stream is None or getattr(stream, "closed", False) else stream


@contextmanager
def _escaping(stream: IO[str]) -> Iterator[None]:
    """Write characters that the stream's encoding lacks as escapes until the block ends."""
    if not isinstance(stream, io.TextIOWrapper):  # the stream of a notebook encodes nothing
        yield
        return
    errors = stream.errors
    stream.reconfigure(errors=_ESCAPES)
    try:
        yield
    finally:
        if not stream.closed:
            stream.reconfigure(errors=errors)


@contextmanager
def _py4j_logs_nothing() -> Iterator[None]:
    """Keep py4j from logging until the block ends.

    If a command to the JVM does not end, py4j logs tracebacks.  It also raises the error, which is
    printed in one line when the process ends.  py4j uses loggers of its own and the root logger.
    """
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    level = py4j.level
    root.addFilter(_is_not_of_py4j)
    py4j.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        py4j.setLevel(level)
        root.removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def pyspark_logs_nothing() -> None:
    """Keep pyspark from logging, as JSON, errors that it also raises.

    Such errors are printed in one line when the process ends.  Call this only if pyspark is
    installed.
    """
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # pyspark does not accept a logger of another class.
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextmanager
def warnings_hidden(beginning: str) -> Iterator[None]:
    """Hide warnings that begin with a text until the block ends."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", beginning)
        yield


class _Guarded:
    """Wrap a stream, and escape what is written to it.

    Once the reader of the stream is gone, nothing is written.

    Attributes:
        rich_proxied_file: the stream to which a console writes instead, because its own escape
            sequences must not be changed.  rich looks for this name.
        has_reader: False once the reader of a pipe has closed it.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        self.has_reader = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write a text with escapes, and return its length."""
        self.write_exact(harmless(text))
        return len(text)

    def write_exact(self, text: str) -> None:
        """Write a text as it is."""
        with self._ignoring_closed_pipe():
            self.rich_proxied_file.write(text)

    def flush(self) -> None:
        """Flush the stream."""
        with self._ignoring_closed_pipe():
            self.rich_proxied_file.flush()

    @contextmanager
    def _ignoring_closed_pipe(self) -> Iterator[None]:
        """Ignore the error of a write to a pipe that its reader has closed.

        The reader may have read enough of the result.  The rest of the command must still be done.
        """
        try:
            yield
        except BrokenPipeError:
            self.has_reader = False
            # Otherwise Python would write the rest of the buffer again, and print an error.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.rich_proxied_file.fileno())
            os.close(nowhere)

    def writelines(self, lines: list[str]) -> None:
        """Write lines one after the other."""
        for line in lines:
            self.write(line)
