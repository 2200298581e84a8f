"""An empty run id ends each command and each job with 2 before Spark is started."""

import pytest

from claimlib import session
from tests.edge.commands import COMMANDS, NAMES, with_option
from tests.edge.processes import ROOT

NAMED = tuple(name for name in with_option("run_id") if name != "reset-cursor")


@pytest.fixture(autouse=True)
def _spark_does_not_start(monkeypatch):
    def started(**_):
        raise AssertionError("Spark is started")

    monkeypatch.setattr(session, "open_session", started)


def test_every_command_is_tried():
    assert COMMANDS.keys() == {*NAMES}


def test_each_job_is_the_command_of_its_name():
    jobs = {path.stem for path in (ROOT / "jobs").glob("*.py")} - {"airflow_dag"}
    assert jobs == {*NAMES} - {"abandon", "demo", "describe", "doctor", "reset-cursor"}
    for name in jobs:
        assert f'job("{name}")' in (ROOT / "jobs" / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("run_id", ["", " "])
@pytest.mark.parametrize("kind", ["claimlib", "job"])
@pytest.mark.parametrize("command", NAMED)
def test_an_empty_run_id_ends_with_2_before_spark_starts(request, kind, command, run_id):
    run = request.getfixturevalue(kind)
    said = run(command, *COMMANDS[command].on("store"), "--run-id", run_id)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("claimlib: error: the run id is empty (in a script: ")
    assert said.err.count("\n") == 1
