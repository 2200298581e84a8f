"""Everything that is printed goes through here (a test walks the source for other ways).

Names, errors and settings come from servers, tables and users: a key may hold bytes that set a
terminal's title, clear it, or turn the direction of a line.  Such characters are written out, on
stdout and stderr, in tables, errors, logs and JSON; nothing else is changed.  CSV, which has no
escapes for them, is harmless only on a terminal itself.

What a stream's encoding lacks is written out, too, everywhere: a name must not end a run.
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
    r"""Return a text of somebody else as one line: what is no printable character is written out,
    `\u001b` or `\U000e0041`; line breaks, too.

    Printable is what Python calls so: no controls (C0, DEL, C1), formats (Cf, those that turn the
    direction among them), line and paragraph separators, surrogates, spaces other than the
    ordinary one, and nothing that Unicode has not assigned.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _written_out(char) for char in text)


def number_of(count: int, singular: str, many: str | None = None) -> str:
    """`1 group`, `2 groups`, `1,000 entries`.

    Args:
        many: the plural.  None means `one` with an s.
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
    """Lines of ours: as `one_line`, but that line breaks stay."""
    return "\n".join(map(one_line, text.split("\n")))


def harmless_json(text: str) -> str:
    """Return a JSON text of the same value, with escapes for what `harmless` would write out: such
    characters stand in strings only, never behind a backslash."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        char if char == "\n" or char.isprintable() else _escaped_in_json(char) for char in text
    )


def _written_out(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escaped_in_json(character: str) -> str:
    """JSON's escapes have four digits: beyond them stand two surrogates."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _encoded_as_escapes(error: UnicodeError) -> tuple[str, int]:
    r"""Return what stands for characters that an encoding lacks.  As in JSON, so that JSON stays
    valid; not Python's own `\xe9`, by which the tables' names spell a byte."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(map(_escaped_in_json, lacking)), error.end


_ESCAPES = "claimlib.escapes"
codecs.register_error(_ESCAPES, _encoded_as_escapes)

# ------------------------------------------------------------------- where it goes


def out(text: str, *, at_once: bool = False) -> None:
    """A result, on stdout; at once: also who reads it through a pipe need not wait for the rest."""
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
    """Lines on stderr."""
    print(harmless(text), file=sys.stderr)  # noqa: T201 - the one place


def say(*texts: str) -> None:
    """One line each, for people, on stderr."""
    for text in texts:
        err(_wrapped(f"claimlib: {one_line(text)}"))


def _wrapped(line: str) -> str:
    """Break a line between words at the width of the terminal, if stderr is a terminal."""
    if not sys.stderr.isatty():
        return line
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH
    except OSError:  # a notebook's stream has no file
        width = _WIDTH
    return textwrap.fill(
        line, width, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


_WIDTH = 80
"""The width in characters if the terminal does not report its own."""


def is_terminal() -> bool:
    """Return True if stdout is one."""
    return sys.stdout.isatty()


def console(file: IO[str] | None = None, *, soft_wrap: bool = False) -> Console:
    """Return a console on stdout (or `file`) that adds colors and moves the cursor itself, and
    writes out whatever would do so in the texts that it is given.

    Args:
        soft_wrap: whether the terminal breaks long lines, and not the console.
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
    """A console on stderr that goes on writing to the terminal where stderr is turned away from it,
    or None if stderr is no terminal.
    """
    if not console(sys.stderr).is_terminal:
        yield None
        return
    number, encoding = os.dup(sys.stderr.fileno()), sys.stderr.encoding
    with os.fdopen(number, "w", encoding=encoding, errors=_ESCAPES) as terminal:
        yield console(terminal)


@contextmanager
def guarded() -> Iterator[None]:
    """Until the block ends, what others print (argparse, click, warnings, loggers) is harmless,
    too, and a reader that has closed its end of a pipe ends nothing: the block goes on."""
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
            # Here it can still be seen that nobody reads: Python itself flushes too late for that.
            for stream in streams:
                if not getattr(stream, "closed", False):
                    stream.flush()


def _open_stream(stream: IO[str] | None) -> IO[str]:
    """Return the stream, or one that nobody reads: a process may be started without one, which is
    null then, and somebody may have closed it.
    """
    return io.StringIO() if stream is None or getattr(stream, "closed", False) else stream


@contextmanager
def _escaping(stream: IO[str]) -> Iterator[None]:
    """Until the block ends, characters that the stream's encoding lacks are escapes, not errors."""
    if not isinstance(stream, io.TextIOWrapper):  # a notebook's encodes nothing
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
    """py4j logs that a command to the JVM did not end, with tracebacks, and raises it as well; how
    the process ends says it in one line.  It logs by loggers of its own and by the root's."""
    root, own = logging.getLogger(), logging.getLogger("py4j")
    level = own.level
    root.addFilter(_is_not_of_py4j)
    own.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        own.setLevel(level)
        root.removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def pyspark_logs_nothing() -> None:
    """Keep pyspark from logging, as JSON, errors that it raises as well: how the process ends says
    them in one line.  Only where pyspark is installed."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # A logger of another class would not do for pyspark.
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextmanager
def unwarned(beginning: str) -> Iterator[None]:
    """Until the block ends, warnings that begin so are not shown."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", beginning)
        yield


class _Guarded:
    """A stream; what is written to it is harmless, and goes nowhere once its reader is gone.

    Attributes:
        rich_proxied_file: where a console writes instead (rich asks for it by this name): its own
            escape sequences must come through.
        has_reader: False once the reader has closed the pipe.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        self.has_reader = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write, and say how much of `text` was taken: all."""
        self.write_exact(harmless(text))
        return len(text)

    def write_exact(self, text: str) -> None:
        """Write a text as it is."""
        with self._for_its_reader():
            self.rich_proxied_file.write(text)

    def flush(self) -> None:
        """Hand on what was written."""
        with self._for_its_reader():
            self.rich_proxied_file.flush()

    @contextmanager
    def _for_its_reader(self) -> Iterator[None]:
        """Who reads a result through a pipe may have seen enough; what the command has yet to do
        and to say does not depend on that."""
        try:
            yield
        except BrokenPipeError:
            self.has_reader = False
            # Else what is left in the buffer would be tried, and complained about, once more.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.rich_proxied_file.fileno())
            os.close(nowhere)

    def writelines(self, lines: list[str]) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)
