"""The bundle for Databricks, as far as it can be checked without it; and the entry point of its
tasks."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import time
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
import yaml

from claimlib.cli import task
from claimlib.cli.commands import app
from claimlib.commands.runs import find_run
from claimlib.store.tables import Store

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "databricks.yml").read_text(encoding="utf-8")
BUNDLE = yaml.safe_load(TEXT)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
JOBS = BUNDLE["resources"]["jobs"]
TASKS = {
    f"{job}.{job_task['task_key']}": (JOBS[job], job_task)
    for job in JOBS
    for job_task in JOBS[job]["tasks"]
}
WHEELS = {
    name: job_task for name, (_, job_task) in TASKS.items() if "python_wheel_task" in job_task
}
NOTEBOOKS = {name: job_task for name, (_, job_task) in TASKS.items() if "notebook_task" in job_task}
HOUR_MS = 3_600_000
COMMANDS = typer.main.get_command(app).commands


def filled_in(parameter, **chosen):
    """A parameter as a run gets it, by the variables' defaults where they are not given."""
    parameter = parameter.replace("{{job.run_id}}", "123456")
    values = {name: variable["default"] for name, variable in BUNDLE["variables"].items()} | chosen
    return re.sub(r"\$\{var\.(\w+)\}", lambda match: values[match[1]], parameter)


def asked_by(notebook):
    """What a notebook asks its reader for."""
    tree = ast.parse(notebook.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    (call,) = (call for call in calls if ast.unparse(call.func) == "widget_values")
    return {keyword.arg for keyword in call.keywords}


def test_there_are_wheel_tasks_on_both_kinds_of_compute_and_a_task_for_each_notebook():
    assert any("environment_key" in job_task for job_task in WHEELS.values())
    assert any("job_cluster_key" in job_task for job_task in WHEELS.values())
    notebooks = [job_task["notebook_task"]["notebook_path"] for job_task in NOTEBOOKS.values()]
    there = [f"./notebooks/{path.name}" for path in sorted((ROOT / "notebooks").glob("*.py"))]
    assert notebooks == there
    assert TASKS.keys() == {*WHEELS, *NOTEBOOKS, "mirror_server.is_written_back"}


def test_the_server_is_written_only_if_a_variable_says_so():
    assert BUNDLE["variables"]["writeback"]["default"] == "false"
    condition = TASKS["mirror_server.is_written_back"][1]["condition_task"]
    assert (condition["op"], filled_in(condition["left"], writeback="true")) == ("EQUAL_TO", "true")
    writers = [
        name
        for name, job_task in WHEELS.items()
        if {"writeback", "rescue", "--writeback"} & {*job_task["python_wheel_task"]["parameters"]}
    ]
    assert writers == ["mirror_server.writeback"]
    (before,) = WHEELS["mirror_server.writeback"]["depends_on"]
    assert before == {"task_key": "is_written_back", "outcome": condition["right"]}


@pytest.mark.parametrize("name", WHEELS)
def test_a_wheel_task_names_an_entry_point_that_is_there_and_a_command_that_takes_its_parameters(
    name,
):
    wheel = WHEELS[name]["python_wheel_task"]
    assert wheel["package_name"] == PROJECT["name"]
    module, _, function = PROJECT["scripts"][wheel["entry_point"]].partition(":")
    assert getattr(importlib.import_module(module), function) is task.main
    command, *words = map(filled_in, wheel["parameters"])
    parsed = COMMANDS[command].make_context(command, words).params
    assert "." in parsed["store"], "serverless compute has no folders: catalog.schema"
    if "run_id" in parsed:
        assert parsed["run_id"] == "123456", "a retry must find what was done"
    else:
        assert command in {"init", "xpending"}


@pytest.mark.parametrize("name", WHEELS)
def test_a_wheel_task_brings_the_wheel_and_what_the_runtime_lacks(name):
    job, job_task = TASKS[name]
    needed = ["./dist/*.whl", *EXTRAS["databricks"]]
    if "environment_key" in job_task:
        environments = {each["environment_key"]: each["spec"] for each in job["environments"]}
        assert environments[job_task["environment_key"]]["dependencies"] == needed
    else:
        libraries = [each.get("whl") or each["pypi"]["package"] for each in job_task["libraries"]]
        assert libraries == needed
        clusters = {each["job_cluster_key"] for each in job["job_clusters"]}
        assert job_task["job_cluster_key"] in clusters


def test_the_extra_is_what_the_command_line_needs_besides_a_spark():
    brought = {"delta-spark", "pandas", "pyarrow", "pyspark"}  # by every runtime
    for_folders = {"deltalake", "duckdb", "sqlglot", "xxhash"}  # no store is in a local folder
    others = brought | for_folders
    spark = [
        package for package in EXTRAS["spark"] if re.match(r"[a-z-]+", package)[0] not in others
    ]
    assert EXTRAS["databricks"] == sorted({*spark, *EXTRAS["redis"], *EXTRAS["cli"]})


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_task_names_a_notebook_that_is_there_and_asks_for_its_parameters(name):
    job, job_task = TASKS[name]
    assert job_task["environment_key"] in {each["environment_key"] for each in job["environments"]}
    notebook = ROOT / job_task["notebook_task"]["notebook_path"]
    assert notebook.read_text(encoding="utf-8").startswith("# Databricks notebook source\n")
    assert set(job_task["notebook_task"].get("base_parameters", ())) <= asked_by(notebook)


@pytest.mark.parametrize("job", JOBS)
def test_tasks_wait_for_tasks_of_their_job_and_runs_on_a_store_go_one_at_a_time(job):
    keys = [job_task["task_key"] for job_task in JOBS[job]["tasks"]]
    for number, job_task in enumerate(JOBS[job]["tasks"]):
        waited_for = [each["task_key"] for each in job_task.get("depends_on", [])]
        is_step = "notebook_task" not in job_task
        assert waited_for == keys[max(number - 1, 0) : number] if is_step else waited_for == []
    if any("python_wheel_task" in job_task for job_task in JOBS[job]["tasks"]):
        assert JOBS[job]["max_concurrent_runs"] == 1


def test_the_job_of_your_own_tables_tells_of_stalled_entries_and_missing_imports_in_any_case():
    last = JOBS["mirror_tables"]["tasks"][-1]
    assert last["run_if"] == "ALL_DONE", "a sweep that has refused some groups is a failed task"
    options = last["python_wheel_task"]["parameters"][2:]
    assert options == ["--fail-on-stalled", "1d", "--fail-on-stale", "1d"]


def own_tables(folder):
    """Tables of one's own, by the variables that name them: an entry that stalled two hours ago,
    one that is new, and one that is no longer in its stream."""
    now_ms = time.time_ns() // 1_000_000
    times = {f"{now_ms - n}-0": now_ms - n for n in (2 * HOUR_MS, HOUR_MS, 1000)}
    ids = list(times)
    tables = {
        "entries_table": {"stream": ["s", "s"], "id": [ids[0], ids[2]]},
        "pending_table": {
            "stream": ["s"] * 3,
            "consumer_group": ["g"] * 3,
            "id": ids,
            "consumer": ["bob"] * 3,
            "delivery_time_ms": list(times.values()),
            "delivery_count": [1] * 3,
        },
        "groups_table": {
            "stream": ["s"],
            "consumer_group": ["g"],
            "last_delivered": [ids[2]],
            "snapshot_ms": [now_ms],
        },
        "streams_table": {"stream": ["s"], "complete_from": [ids[0]], "complete_to": [ids[2]]},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return {name: str(folder / f"{name}.parquet") for name in tables}


def test_the_job_of_your_own_tables_claims_by_its_own_parameters(spark, tmp_path, monkeypatch):
    store = str(tmp_path / "store")
    chosen = {"store": store, **own_tables(tmp_path)}
    for job_task in (*JOBS["make_store"]["tasks"], *JOBS["mirror_tables"]["tasks"]):
        words = job_task["python_wheel_task"]["parameters"]
        run(monkeypatch, *(filled_in(word, **chosen) for word in words))
    counts = find_run(Store.open(spark, store), "xautoclaim:123456").counts
    assert (counts["claimed"], counts["deleted"]) == (1, 1)


def test_every_variable_is_there_and_used_and_none_is_a_secret():
    used = set(re.findall(r"\$\{var\.(\w+)\}", TEXT))
    assert used == set(BUNDLE["variables"])
    secrets = re.findall(r"REDIS_PASSWORD: (.*)", TEXT)
    assert secrets == ['"{{secrets/${var.secret_scope}/redis_password}}"']


def test_the_wheel_is_built_from_what_the_bundle_says():
    (wheel,) = BUNDLE["artifacts"].values()
    assert wheel == {"type": "whl", "build": "uv build --wheel"}


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["claimlib-task", *map(str, words)])
    return task.main()


def test_the_entry_point_returns_where_the_command_is_done(monkeypatch, capsys):
    assert run(monkeypatch, "--version") is None
    assert capsys.readouterr().out.startswith("claimlib 0.")


def test_the_entry_point_raises_what_the_command_says(monkeypatch, capsys, tmp_path):
    with pytest.raises(RuntimeError, match="claimlib runs ended with exit code 4: no store at "):
        run(monkeypatch, "runs", tmp_path / "absent")
    assert capsys.readouterr().err.startswith("claimlib: error: no store at ")


def test_the_entry_point_raises_on_options_that_no_command_has(monkeypatch, capsys):
    with pytest.raises(RuntimeError, match="exit code 2: No such option: --no-such-option"):
        run(monkeypatch, "xautoclaim", "main.claimlib", "--no-such-option")
    assert "--no-such-option" in capsys.readouterr().err


@pytest.mark.parametrize("code", [1, 3, 5, 6, 75, 130])
def test_the_entry_point_raises_where_a_command_ends_with_another_code_than_0(monkeypatch, code):
    monkeypatch.setattr(task, "run_command", lambda _words: code)
    with pytest.raises(RuntimeError, match=f"claimlib check ended with exit code {code}: "):
        run(monkeypatch, "check", "main.claimlib")


def test_the_entry_point_raises_what_is_not_expected_too(monkeypatch, capsys):
    def fail(_words):
        raise ValueError("some fault")

    monkeypatch.setattr(task, "run_command", fail)
    with pytest.raises(RuntimeError, match="exit code 1: some fault"):
        run(monkeypatch, "check", "main.claimlib")
    assert "some fault" in capsys.readouterr().err


TRACE = """An error occurred while calling o1.load.
: org.apache.spark.SparkException: Job aborted. File file:/s/p.parquet does not exist
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)"""


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            TRACE.replace("File", "java.io.FileNotFoundException: File"),
            4,
            "/s/p.parquet is missing, although the log of its table refers to it: restore it",
        ),
        (TRACE, 1, "org.apache.spark.SparkException: Job aborted. File file:/s/p.parquet does not"),
    ],
)
def test_the_entry_point_raises_one_line_without_a_stack_trace_of_java(
    monkeypatch, capsys, text, code, said
):
    def fail(_words):
        raise RuntimeError(text)

    monkeypatch.setattr(task, "run_command", fail)
    with pytest.raises(RuntimeError) as raised:
        run(monkeypatch, "xpending", "main.claimlib")
    assert str(raised.value).startswith(f"claimlib xpending ended with exit code {code}: {said}")
    assert "\n" not in str(raised.value)
    assert said in capsys.readouterr().err


def test_the_entry_point_says_of_an_interrupt_that_it_was_one(monkeypatch, capsys):
    def fail(_words):
        raise ValueError("a connection is lost") from KeyboardInterrupt()

    monkeypatch.setattr(task, "run_command", fail)
    with pytest.raises(RuntimeError, match=r"exit code 130: interrupted$"):
        run(monkeypatch, "xpending", "main.claimlib")
    assert capsys.readouterr().err.startswith("claimlib: interrupted: ")
