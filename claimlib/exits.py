"""How a process ends: one clear line on stderr, and an exit code (the table is in `errors`)."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from claimlib import terminal
from claimlib.errors import ClaimlibError, MissingExtraError, StoreUnreachableError

DONE = 0
OUR_FAULT = 1
STALLED = 3
INPUT_REFUSED = 4
SOME_REFUSED = 6
INTERRUPTED = 130

# What Java's text says where storage did not answer; it crosses to Python as text only.
_NETWORK_ERRORS = (
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.SocketException",
    "java.net.SocketTimeoutException",
    "java.net.UnknownHostException",
)

_EXTRAS = {
    "delta": "spark",
    "numpy": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "pydantic": "spark",
    "pydantic_settings": "spark",
    "pyspark": "spark",
    "redis": "redis",
    "rich": "cli",
    "typer": "cli",
}


def ending(work: Callable[[], int], *, debug: Callable[[], bool] | None = None) -> int:
    """The exit code of `work`; what it raises is said on stderr.

    Args:
        work: gives the exit code where nothing is raised.
        debug: whether a traceback is wanted too; asked once something was raised.  Null: the
            process has no option for it.
    """
    with terminal.guarded():
        return _ending(work, debug)


def _ending(work: Callable[[], int], debug: Callable[[], bool] | None) -> int:
    try:
        return work()
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:  # who read our output has seen enough
        terminal.stop_printing()
        return DONE
    except Exception as raised:  # noqa: BLE001 - this is where a process ends
        if _comes_of_an_interrupt(raised):
            return _interrupted()
        says_all = debug is not None and debug()
        if says_all:
            terminal.err(traceback.format_exc().rstrip("\n"))
        error = _translated(raised)
        terminal.say(f"error: {_one_line(error, can_say_more=debug is not None and not says_all)}")
        return error.exit_code if isinstance(error, ClaimlibError) else OUR_FAULT


def _interrupted() -> int:
    terminal.say("interrupted; what was decided is finished by the next run")
    return INTERRUPTED


def _comes_of_an_interrupt(error: BaseException) -> bool:
    """Whether it was raised while an interrupt was on its way up: Spark tells the JVM of it, over a
    connection that may be in the middle of a command, and so another error comes out."""
    seen: set[int] = set()
    before: BaseException | None = error
    while before is not None and id(before) not in seen:
        if isinstance(before, KeyboardInterrupt):
            return True
        seen.add(id(before))
        before = before.__cause__ or before.__context__
    return False


def _translated(error: Exception) -> Exception:
    """What a library raised, in our words: a package that is not installed is the extra that brings
    it, and storage that did not answer can be tried again."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if package in _EXTRAS and isinstance(error, ModuleNotFoundError):
        return MissingExtraError.for_package(_EXTRAS[package], package)
    by_java = not isinstance(error, ClaimlibError) and any(
        name in str(error) for name in _NETWORK_ERRORS
    )
    if by_java or isinstance(error, ConnectionError | TimeoutError):
        first = next(iter(str(error).strip().splitlines()), "")
        return StoreUnreachableError(f"storage did not answer, try again: {first}")
    return error


def _one_line(error: Exception, *, can_say_more: bool) -> str:
    if isinstance(error, ClaimlibError):
        return " ".join(line.strip() for line in error.message.split("\n"))
    first = next(iter(str(error).strip().splitlines()), "")
    more = "; --debug shows more" if can_say_more else ""
    return f"{type(error).__name__}: {first} (this is not expected{more})"
