"""The DAG file, as far as it can be read without Airflow."""

import ast

from processes import ROOT, run_python

SOURCE = (ROOT / "jobs" / "airflow_dag.py").read_text(encoding="utf-8")
CALLS = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Call)]


def calls_of(name):
    return [
        {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        for call in CALLS
        if isinstance(call.func, ast.Name) and call.func.id == name
    ]


def test_runs_on_the_store_go_one_at_a_time_and_are_not_made_up_for():
    (dag,) = calls_of("DAG")
    assert (dag["max_active_runs"], dag["catchup"]) == ("1", "False")


def test_each_task_submits_a_job_that_is_there_under_the_schedulers_run_id():
    tasks = calls_of("SparkSubmitOperator")
    jobs = [task["application"].partition("/jobs/")[2].rstrip("'") for task in tasks]
    assert jobs == ["snapshot.py", "xautoclaim.py"]
    assert all(task["application_args"].endswith("*_RUN]") for task in tasks)
    assert '"--run-id", "{{ run_id }}"' in SOURCE
    for job in jobs:
        said = run_python(ROOT / "jobs" / job, "--help")
        assert "--run-id" in said.stdout
    assert "--policy" in said.stdout
