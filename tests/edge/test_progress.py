"""What is said of a run while it goes on: on a terminal one line, with Spark's tasks and the time
left; in a log a line per phase."""

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest
from pyspark.core.status import SparkStageInfo
from pyspark.sql import SparkSession
from pyspark.sql.connect.shell.progress import Progress as QueryProgress
from pyspark.sql.connect.shell.progress import StageInfo
from rich.console import Console
from rich.status import Status

from claimlib.cli import progress as progress_module
from claimlib.cli.opened_store import _state
from claimlib.cli.progress import Durations, Log, _Line, shown
from claimlib.cli.spark_tasks import Pace, Stage
from claimlib.errors import RequestError
from claimlib.runs import Phase
from tests.edge.processes import ROOT

SWEEP = ("xautoclaim", "absent", "--consumer", "c", "--min-idle", "1h")


class Ticking:
    """Seconds, as they are set."""

    now = 1000.0

    def __call__(self):
        return self.now


def test_a_log_has_a_line_per_phase_and_within_it_one_in_ten_seconds(capsys):
    clock = Ticking()
    log = Log(clock)
    log.tell(Phase.READ, "1 row")
    for second in range(1, 26):
        clock.now = 1000 + second
        log.tell(Phase.READ, f"{second} rows")
    log.tell(Phase.DECIDE, "run 1")
    log.tell(Phase.APPLY, "run 1")
    log.tell(Phase.APPLY, "run 1, still")
    assert capsys.readouterr().err.splitlines() == [
        "claimlib: read · 1 row",
        "claimlib: read · 10 rows",
        "claimlib: read · 20 rows",
        "claimlib: decide · run 1",
        "claimlib: apply · run 1",
    ]


def test_verbose_a_log_has_each_detail_and_how_long_each_phase_took(capsys):
    with shown(lambda: "a session", verbose=True) as (start, tell):
        start()
        for rows in range(3):
            tell(Phase.READ, f"{rows} rows")
        tell(Phase.DECIDE, "run 1")
        tell(Phase.DECIDE, "run 1 · 5 pending entries")
    said = re.sub(r"[0-9]+\.[0-9] s$", "… s", capsys.readouterr().err, flags=re.MULTILINE)
    assert said.splitlines() == [
        "claimlib: starting Spark",
        "claimlib: starting Spark · took … s",
        "claimlib: reading the store",
        "claimlib: reading the store · took … s",
        "claimlib: read · 0 rows",
        "claimlib: read · 1 rows",
        "claimlib: read · 2 rows",
        "claimlib: read · 2 rows · took … s",
        "claimlib: decide · run 1",
        "claimlib: decide · run 1 · 5 pending entries",
        "claimlib: decide · run 1 · 5 pending entries · took … s",
    ]


def test_a_phase_takes_from_when_it_is_first_told_until_the_next_one_is():
    clock, said = Ticking(), []
    durations = Durations(lambda *_: None, said.append, clock)
    for seconds, phase, detail in [(0, "read", "a"), (1.5, "read", "b"), (1234.5, "decide", "")]:
        clock.now = 1000 + seconds
        durations.tell(phase, detail)
    clock.now += 0.25
    durations.end()
    assert said == ["read · b · took 1,234.5 s", "decide · took 0.2 s"]


def test_of_a_phase_that_an_error_ends_nobody_says_how_long_it_took(capsys):
    with pytest.raises(RequestError, match="no"):
        decide_in_vain("a session", verbose=True)
    *_, before, last = capsys.readouterr().err.splitlines()
    assert before.startswith("claimlib: reading the store · took ")
    assert last == "claimlib: decide · run 1"


def decide_in_vain(session, *, verbose=False):
    """A run that ends with an error."""
    with shown(lambda: session, verbose=verbose) as (start, tell):
        start()
        tell(Phase.DECIDE, "run 1")
        raise RequestError("no")


def test_a_log_names_each_run_that_is_recovered(capsys):
    log = Log(Ticking())
    for detail in ("", "run 1 (xautoclaim:a)", "run 2 (xack:b)"):
        log.tell(Phase.RECOVER, detail)
    assert capsys.readouterr().err.splitlines() == [
        "claimlib: recover",
        "claimlib: recover · run 1 (xautoclaim:a)",
        "claimlib: recover · run 2 (xack:b)",
    ]


def test_quiet_shows_no_progress(capsys):
    with shown(lambda: "a session", quiet=True) as (start, progress):
        assert start() == "a session"
        progress(Phase.READ, "1 row")
    assert capsys.readouterr() == ("", "")
    with shown(lambda: "a session") as (start, progress):
        assert capsys.readouterr().err == ""
        start()
        progress(Phase.READ, "1 row")
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_quiet_and_verbose_together_are_refused_before_anything_is_done(claimlib):
    said = claimlib(*SWEEP, "--quiet", "--verbose")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "claimlib: error: --quiet and --verbose cannot be combined: give one of them\n"
    )


def test_quiet_still_says_errors(claimlib, tmp_path):
    said = claimlib("runs", tmp_path / "absent", "--quiet", "--debug")
    assert said.code == 4
    assert "claimlib: error: " in said.err


def test_quiet_and_verbose_reach_the_progress_of_every_command(claimlib, monkeypatch):
    told = []

    def opened(_store, _settings, common, **_):
        told.append((common.quiet, common.verbose))
        raise RequestError("seen")

    for module in (
        *("bulk_commands", "reading_commands", "report_command", "run_history_commands"),
        *("store_commands", "sweep_command"),
    ):
        monkeypatch.setattr(f"claimlib.cli.{module}.opened_store", opened)
    tables = ("--entries", "e", "--pending", "p")
    commands = [
        ("xclaim", "s", "s", "g", "c", "1-0", "--min-idle", "1h"),
        ("xack", "s", "s", "g", "1-0"),
        ("retire", "s", "s", "g", "c", "--to", "d"),
        SWEEP,
        (*SWEEP, "--explain"),
        ("reset-cursor", "s", "nightly"),
        *(("xpending", "s"), ("describe", "s"), ("runs", "s"), ("abandon", "s", "7")),
        *(("check", "s"), ("import", "s", *tables), ("report", "s")),
    ]
    for words in commands:
        for options in ([], ["--quiet"], ["--verbose"]):
            assert claimlib(*words, *options).err == "claimlib: error: seen\n"
            assert told.pop() == ("--quiet" in options, "--verbose" in options)


@pytest.mark.parametrize(
    ("phase", "detail", "left"),
    [
        (Phase.DECIDE, "dry run · 5 pending entries", "nothing was decided, so the store is"),
        (Phase.DECIDE, "run 1 · 5 pending entries", "nothing was decided, so the store is"),
        (Phase.APPLY, "run 1 · 5 rows to write", "the decision of run 1 was written: the same"),
    ],
)
def test_what_an_interruption_leaves_is_said_without_numbers_of_rows(phase, detail, left):
    assert _state(phase, detail).startswith(left)


# ------------------------------------------------------------------- the time left


@pytest.fixture
def clock():
    return Ticking()


def test_the_time_left_follows_from_the_tasks_that_are_done_and_becomes_less_until_the_next(clock):
    pace = Pace(clock)
    said = []
    for second, done in [(0, 0), (4, 16), (6, 24), (13, 24), (15, 24), (25, 24), (26, 48)]:
        clock.now = 1000 + second
        said.append(pace.text([Stage(7, done, 96)]))
    assert said == [
        "0 of 96 tasks",
        "16 of 96 tasks",  # too early to say
        "24 of 96 tasks · about 20 s left",
        "24 of 96 tasks · about 20 s left",
        "24 of 96 tasks · a few seconds left",
        "24 of 96 tasks",  # it takes longer than it seemed
        "48 of 96 tasks · about 30 s left",
    ]


def test_stages_that_are_added_take_time_and_those_that_have_ended_are_forgotten(clock):
    pace = Pace(clock)
    assert pace.text([]) == ""
    assert pace.text([Stage(1, 0, 100)]) == "0 of 100 tasks"
    clock.now += 10
    assert pace.text([Stage(1, 50, 100)]) == "50 of 100 tasks · about 10 s left"
    both = [Stage(1, 50, 100), Stage(2, 0, 2300)]
    assert pace.text(both) == "50 of 2,400 tasks · about 8 min left"
    clock.now += 5
    assert pace.text([Stage(3, 9, 10)]) == "9 of 10 tasks"
    clock.now += 5
    assert pace.text([Stage(3, 9, 10)]) == "9 of 10 tasks"
    clock.now += 5
    assert pace.text([Stage(3, 10, 10)]) == "10 of 10 tasks"
    assert pace.text([]) == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (9.9, "a few seconds left"),
        (10, "about 10 s left"),
        (41, "about 50 s left"),
        (51, "about 1 min left"),
        (61, "about 2 min left"),
        (3540, "about 59 min left"),
        (3600, "about 1.0 h left"),
        (400_000, "about 111.1 h left"),
    ],
)
def test_the_time_left_is_said_as_roughly_as_it_is_known(clock, seconds, said):
    pace = Pace(clock)
    pace.text([Stage(1, 0, 2)])
    clock.now += seconds
    assert pace.text([Stage(1, 1, 2)]) == f"1 of 2 tasks · {said}"


# ------------------------------------------------------------------- the line on a terminal


class Classic:
    """A session with a JVM of its own, of which one stage is active; another one has just ended."""

    registerProgressHandler = SparkSession.registerProgressHandler  # noqa: N815 - pyspark's

    def __init__(self):
        self.done = 0
        self.is_dead = False

    @property
    def sparkContext(self):  # noqa: N802 - pyspark's
        return self

    def statusTracker(self):  # noqa: N802 - pyspark's
        if self.is_dead:
            raise ConnectionRefusedError
        return self

    def getActiveStageIds(self):  # noqa: N802 - pyspark's
        return [3, 4]

    def getStageInfo(self, number):  # noqa: N802 - pyspark's
        if number == 3:
            return None
        return SparkStageInfo(number, 0, "s", 1096, 2, self.done, 0)


class Remote:
    """A session over Connect; its queries are told of as pyspark does it."""

    def __init__(self):
        self.handlers = []
        self.registerProgressHandler = self.handlers.append
        self.removeProgressHandler = self.handlers.remove

    def query(self, name):
        return QueryProgress(handlers=self.handlers, operation_id=name)


def a_console():
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


@pytest.fixture
def line(clock):
    return _Line(Status("", console=a_console()), Pace(clock))


def seen(line):
    """What stands on the line now, behind the spinner."""
    console = a_console()
    line.poll()
    console.print(line._status.renderable)
    return console.file.getvalue().strip().partition(" ")[2]


def test_the_line_has_the_phase_its_rows_the_tasks_and_the_time_left(line, clock):
    session = Classic()
    assert line.watch_spark(session) is session
    line.tell(Phase.DECIDE, "run 1 · 1,234 pending entries")
    assert seen(line) == "decide · run 1 · 1,234 pending entries · 0 of 1,096 tasks"
    clock.now, session.done = clock.now + 10, 548
    assert seen(line) == (
        "decide · run 1 · 1,234 pending entries · 548 of 1,096 tasks · about 10 s left"
    )
    line.tell(Phase.APPLY, "a\x1b[2Jb")
    assert seen(line).startswith("apply · a\\u001b[2Jb · 548 of")


def test_where_the_jvm_has_ended_the_line_goes_on_without_tasks(line):
    session = Classic()
    line.watch_spark(session)
    line.tell(Phase.DECIDE, "run 1")
    session.is_dead = True
    assert seen(line) == "decide · run 1"


def test_over_connect_the_line_has_the_tasks_of_all_queries_until_they_are_done(line, clock):
    session = Remote()
    line.watch_spark(session)
    line.tell(Phase.READ, "the given tables")
    assert seen(line) == "read · the given tables"
    with session.query("a") as first, session.query("b") as second:
        first.update_ticks([StageInfo(1, 4, 4, 0, True), StageInfo(2, 8, 0, 0, False)], 2)
        assert seen(line) == "read · the given tables · 0 of 8 tasks"
        clock.now += 6
        first.update_ticks([StageInfo(1, 4, 4, 0, True), StageInfo(2, 8, 4, 0, False)], 2)
        assert seen(line) == "read · the given tables · 4 of 8 tasks · a few seconds left"
        skipped = StageInfo(3, 40, 0, 0, False)
        second.update_ticks([skipped, StageInfo(4, 10, 0, 0, False)], 1)
        assert seen(line).startswith("read · the given tables · 4 of 58 tasks · ")
        second.update_ticks([skipped, StageInfo(4, 10, 1, 0, False)], 1)
        assert seen(line).startswith("read · the given tables · 5 of 18 tasks · ")
    assert seen(line) == "read · the given tables"
    line.forget_spark()
    assert session.handlers == []


@pytest.fixture
def on_terminal(monkeypatch):
    """A terminal that stderr goes to."""
    console = a_console()

    @contextmanager
    def error_console():
        yield console

    monkeypatch.setattr(progress_module, "error_console", error_console)
    return console.file


@pytest.mark.usefixtures("on_terminal")
def test_a_session_that_goes_on_over_connect_is_not_listened_to_any_longer():
    session = Remote()
    with shown(lambda: session) as (start, _):
        assert start() is session
        assert len(session.handlers) == 1
    assert session.handlers == []
    with pytest.raises(RequestError, match="no"):
        decide_in_vain(session)
    assert session.handlers == []


def test_verbose_the_terminal_keeps_a_line_per_phase_with_its_duration(on_terminal):
    with shown(Classic, verbose=True) as (start, tell):
        start()
        tell(Phase.READ, "1 row")
        tell(Phase.READ, "2 rows")
        tell(Phase.DECIDE, "run 1")
    kept = re.findall(r"claimlib: (.*) · took [0-9.]+ s", on_terminal.getvalue())
    assert kept == ["starting Spark", "reading the store", "read · 2 rows", "decide · run 1"]


def test_without_verbose_nothing_stays_on_the_terminal(on_terminal):
    with shown(Classic) as (start, tell):
        start()
        tell(Phase.READ, "1 row")
    assert "claimlib: " not in on_terminal.getvalue()


ON_A_TERMINAL = """
import time
from claimlib.cli.progress import shown
from claimlib.runs import Phase
from tests.edge.test_progress import Classic
with shown(Classic, verbose=True) as (start, tell):
    start()
    tell(Phase.DECIDE, "run 1 · 1,234 pending entries")
    time.sleep(1.5)
"""


def test_a_process_shows_the_line_on_a_real_terminal_and_takes_it_away():
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": str(ROOT)},
        stderr=its,
    )
    os.close(its)
    shown_ = "".join(iter(lambda: _read(ours), ""))
    assert process.wait(60) == 0, shown_
    os.close(ours)
    assert "decide · run 1 · 1,234 pending entries · 0 of 1,096 tasks" in shown_
    assert "claimlib: decide · run 1 · 1,234 pending entries · took " in shown_
    assert shown_.endswith("\x1b[2K")


def _read(descriptor):
    """What comes next; empty, once the process has closed its side."""
    try:
        return os.read(descriptor, 4096).decode(errors="replace")
    except OSError:
        return ""
