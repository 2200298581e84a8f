"""An empty run id ends each command and each job with 2 before Spark is started."""

import inspect

import pytest

from claimlib import session
from claimlib.cli.commands import app
from tests.edge.processes import ROOT

ARGUMENTS = {
    "snapshot": ("redis://127.0.0.1:1/0", "store"),
    "import": ("store", "--entries", "e", "--pending", "p"),
    "xautoclaim": ("store", "--consumer", "c", "--min-idle", "1h"),
    "xclaim": ("store", "s", "g", "c", "1-0", "--min-idle", "1h"),
    "xack": ("store", "s", "g", "1-0"),
    "retire": ("store", "s", "g", "c", "--to", "d"),
    "writeback": ("store", "1", "redis://127.0.0.1:1/0"),
    "undo": ("store", "1"),
    "maintain": ("store",),
    "rescue": ("redis://127.0.0.1:1/0", "store", "--consumer", "c", "--min-idle", "1h"),
}


@pytest.fixture(autouse=True)
def _spark_does_not_start(monkeypatch):
    def started(**_):
        raise AssertionError("Spark is started")

    monkeypatch.setattr(session, "open_session", started)


def test_these_are_all_commands_that_take_a_run_id():
    commands = {
        (command.name or command.callback.__name__)
        for command in app.registered_commands
        if "run_id" in inspect.signature(command.callback).parameters
    }
    assert commands == {*ARGUMENTS, "reset-cursor"}


def test_each_job_is_the_command_of_its_name():
    names = {(command.name or command.callback.__name__) for command in app.registered_commands}
    jobs = {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"airflow_dag"}
    assert jobs == names - {"abandon", "demo", "describe", "doctor", "reset-cursor"}
    for name in jobs:
        assert f'job("{name}")' in (ROOT / "jobs" / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("run_id", ["", " "])
@pytest.mark.parametrize("kind", ["claimlib", "job"])
@pytest.mark.parametrize("command", ARGUMENTS)
def test_an_empty_run_id_ends_with_2_before_spark_starts(request, kind, command, run_id):
    run = request.getfixturevalue(kind)
    said = run(command, *ARGUMENTS[command], "--run-id", run_id)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("claimlib: error: the run id is empty (in a script: ")
    assert said.err.count("\n") == 1
