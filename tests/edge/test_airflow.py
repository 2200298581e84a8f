"""The DAG file without Airflow: little stands in for it here.  `make test-airflow` has the real."""

import ast
import importlib.util
import inspect
import logging
import re
import sys
from types import ModuleType, SimpleNamespace

import pytest

from claimlib import errors
from claimlib.process import INTERRUPTED, TERMINATED
from tests.edge.processes import ROOT

FILE = ROOT / "jobs" / "airflow_dag.py"
COMMANDS = ("init", "snapshot", "xautoclaim", "xpending")
PASSWORDS = {"redis": "geheim"}


class StandIn:
    """What the file takes from Airflow."""

    dags = {}  # noqa: RUF012 - one DAG of each name

    class DAG:
        def __init__(self, **kwargs):
            StandIn.dags[kwargs["dag_id"]] = kwargs

        def __enter__(self):
            return self

        def __exit__(self, *raised):
            pass

    class BaseOperator:
        log = logging.getLogger("airflow.task")

        def __init__(self, *, task_id):
            self.task_id = task_id
            self.next = None

        def __rshift__(self, other):
            self.next = other
            return other

    class Connection:
        @staticmethod
        def get(name):
            if name not in PASSWORDS:
                raise StandIn.AirflowNotFoundException(f"{name} isn't defined")
            return SimpleNamespace(password=PASSWORDS[name])

    class AirflowException(Exception):  # noqa: N818 - their names
        pass

    class AirflowFailException(AirflowException):
        pass

    class AirflowNotFoundException(AirflowException):
        pass

    class AirflowSkipException(AirflowException):
        pass

    @staticmethod
    def Param(default, **schema):  # noqa: N802 - their name
        return default, schema


@pytest.fixture(scope="module")
def dags():
    """The module."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("airflow", "airflow.sdk", "airflow.sdk.exceptions"):
            module = ModuleType(name)
            vars(module).update({k: v for k, v in vars(StandIn).items() if k[0] != "_"})
            vars(module)["Param"] = StandIn.Param
            patch.setitem(sys.modules, name, module)
        spec = importlib.util.spec_from_file_location("airflow_dag", FILE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.fixture
def settings(dags):
    return {**dags.VARIABLES, "home": str(ROOT)}


@pytest.fixture
def task(dags, settings, tmp_path):
    """A task whose command is a process that ends as it is told."""

    def made(code, printed="", task_id="xautoclaim", **others):
        script = tmp_path / "ends.py"
        script.write_text(
            "import os, sys\n"
            f"sys.stdout.write({printed!r})\n"
            "said = os.environ.get('REDIS_PASSWORD')\n"
            "print('claimlib: said', said, file=sys.stderr, flush=True)\n"
            f"sys.exit({code}) if {code} >= 0 else os.kill(os.getpid(), -{code})\n",
            encoding="utf-8",
        )
        operator = dags.ClaimlibOperator(task_id=task_id)
        operator.settings = {**settings, "command": f"{sys.executable} {script}", **others}
        operator.run_id = "scheduled__1"
        return operator

    return made


def run(task, *, dry_run=False):
    return task.execute({"params": {"dry_run": dry_run}})


def test_airflow_parses_the_file_with_itself_and_the_standard_library_alone():
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    froms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    plain = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    others = {name for name in froms | plain if name.split(".")[0] not in sys.stdlib_module_names}
    assert others == {"airflow.sdk", "airflow.sdk.exceptions"}


@pytest.mark.usefixtures("dags")
def test_runs_on_the_store_go_one_at_a_time_and_are_not_made_up_for():
    assert StandIn.dags.keys() == {"claimlib", "claimlib_maintain"}
    for dag in StandIn.dags.values():
        assert (dag["max_active_runs"], dag["catchup"]) == (1, False)
        assert dag["default_args"] == {"retries": 3}
        default, schema = dag["params"]["dry_run"]
        assert (default, schema["type"]) == (False, "boolean")
    assert StandIn.dags["claimlib_maintain"]["schedule"].days == 1


def test_a_maintenance_keeps_all_history_unless_a_variable_says_how_much(dags, settings):
    words = dags.words_of("maintain", settings, "r")
    assert words == ["maintain", "store", "--run-id", "r", "--output", "json"]
    some = dags.words_of("maintain", {**settings, "keep_history": "90d"}, "r")
    assert some[4:6] == ["--keep-history", "90d"]
    assert dags.maintain.task_id == "maintain"
    assert dags.maintain.next is None


def test_the_tasks_are_commands_in_this_order(dags):
    order, task = [], dags.init
    while task is not None:
        order.append(task.task_id)
        task = task.next
    assert tuple(order) == COMMANDS


def test_all_settings_and_the_run_id_are_templates_with_defaults(dags):
    assert dags.ClaimlibOperator.template_fields == ("settings", "run_id")
    assert dags.init.run_id == "{{ run_id }}"
    assert dags.init.settings.keys() == dags.VARIABLES.keys()
    store = dags.init.settings["store"]
    assert store == "{{ var.value.get('claimlib_store', 'store') }}"
    assert dags.VARIABLES["home"] == str(ROOT)
    assert dags.VARIABLES["writeback_url"] == "", "nothing is written to a server by default"


@pytest.mark.parametrize("url", ["", "redis://writer@localhost:6379/0"])
@pytest.mark.parametrize(("policy", "config"), [("", ""), ("conf/policy.toml", "s3.toml")])
@pytest.mark.parametrize("command", [*COMMANDS, "maintain"])
def test_each_command_has_the_options_that_it_is_given(
    dags, settings, claimlib, monkeypatch, command, policy, config, url
):
    monkeypatch.setenv("COLUMNS", "200")
    named = {**settings, "policy": policy, "config": config, "writeback_url": url}
    words = dags.words_of(command, named, "r", dry_run=True)
    shown = claimlib(command, "--help").out
    assert words[0] == command
    assert words[-2:] == ["--output", "json"]
    shown_options = set(re.findall(r"--[a-z-]+", shown))
    assert {word for word in words if word.startswith("--")} <= shown_options
    assert ("--run-id" in words) == (command in {"snapshot", "xautoclaim", "maintain"})
    assert ("--dry-run" in words) == (command in {"xautoclaim", "maintain"})
    written_back = bool(url) and command == "xautoclaim"
    assert ("--writeback" in words) == (url in words) == written_back
    assert ("--config" in words) == (config in words) == bool(config)
    if command == "xautoclaim":
        assert ("--policy" in words, "--consumer" in words) == (bool(policy), not policy)


def test_a_command_is_that_of_the_variable_or_of_the_project_or_of_path(dags, settings, tmp_path):
    assert dags.argv_of({**settings, "home": str(tmp_path)}, ["init"]) == ["claimlib", "init"]
    own = tmp_path / ".venv" / "bin" / "claimlib"
    own.parent.mkdir(parents=True)
    own.touch()
    assert dags.argv_of({**settings, "home": str(tmp_path)}, ["init"]) == [str(own), "init"]
    named = {**settings, "command": "'my python' -m claimlib"}
    assert dags.argv_of(named, ["init"]) == ["my python", "-m", "claimlib", "init"]


@pytest.mark.parametrize("command", COMMANDS)
def test_spark_submit_gets_its_own_words_and_the_job(dags, settings, command):
    submit = {**settings, "spark_submit": "spark-submit --master 'spark://a b'"}
    argv = dags.argv_of(submit, [command, "store"])
    job = ROOT / "jobs" / f"{command}.py"
    assert argv == ["spark-submit", "--master", "spark://a b", str(job), "store"]
    assert job.is_file()


def test_the_workers_python_and_spark_are_left_out_unless_spark_submit_needs_them(dags, settings):
    environ = {"PATH": "p", "PYTHONPATH": "x", "PYSPARK_PYTHON": "x", "SPARK_HOME": "x"}
    assert dags.environment_of(settings, environ, None) == {"PATH": "p"}
    submit = {**settings, "spark_submit": "spark-submit", "java_home": "j"}
    assert dags.environment_of(submit, environ, "geheim") == {
        **environ,
        "JAVA_HOME": "j",
        "REDIS_PASSWORD": "geheim",
    }


def test_only_what_can_go_otherwise_the_next_time_is_retried(dags):
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.ClaimlibError)}
    assert {code for code in codes | {0, 3, 6} if dags.why_retry(code)} == {5, 75}
    assert all(dags.why_retry(code) for code in (INTERRUPTED, TERMINATED, 137, -9, -15))
    assert dags.why_retry(192) == "ended by signal 64"
    assert not any(dags.why_retry(code) for code in (128, 193, 255)), "no signal has these numbers"


@pytest.mark.parametrize("code", [5, 75, 130, 143, -9])
def test_a_task_is_retried(task, code):
    with pytest.raises(StandIn.AirflowException, match="said") as raised:
        run(task(code))
    assert raised.type is StandIn.AirflowException


@pytest.mark.parametrize("code", [1, 2, 3, 4, 99])
def test_a_task_fails_for_good(task, code):
    with pytest.raises(StandIn.AirflowFailException, match=rf"exit code {code}\b.*said"):
        run(task(code))


def test_what_cannot_be_started_fails_for_good_and_names_the_variables(task):
    with pytest.raises(StandIn.AirflowFailException, match="claimlib_command"):
        run(task(0, command="/nowhere/claimlib"))


def test_a_done_task_hands_on_its_result_without_the_rows_and_says_where_the_claims_are(
    task, caplog
):
    printed = '{"run_id": "a b", "counts": {"claimed": 2, "deleted": 1}, "groups": [{"stream": 1}]}'
    assert run(task(0, f"Spark said something\n{printed}")) == {
        "run_id": "a b",
        "counts": {"claimed": 2, "deleted": 1},
        "exit_code": 0,
    }
    assert "2 claimed and 1 deleted in the store, not on the server" in caplog.text
    assert "claimlib runs store 'xautoclaim:a b' --as-commands" in caplog.text


def test_what_spark_submit_lets_out_on_stdout_is_said_and_is_not_the_result(dags):
    printed = 'claimlib: starting Spark\n{odd\nclaimlib: stalled: 1\n{\n  "a": [\n{}\n]\n}\nbye\n'
    result, said = dags.parted(printed)
    assert result == {"a": [{}]}
    assert [line for line in said if line] == [
        *("claimlib: starting Spark", "{odd", "claimlib: stalled: 1", "bye")
    ]
    assert dags.last_said(["Spark said something", *said]) == "claimlib: stalled: 1"
    assert dags.last_said(["a", "b"]) == "b"
    assert dags.last_said([]) == "it said nothing"


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "{",
        '{"run_id": "r", "counts": {"claimed": 0, "deleted": 0}}',
        '{"run_id": null, "dry_run": true, "counts": {"claimed": 2, "deleted": 0}}',
        '{"run_id": "r", "counts": {"claimed": 2, "deleted": 0}, "writeback": {"counts": {}}}',
    ],
)
def test_where_nothing_was_claimed_nothing_is_said_of_it(task, caplog, printed):
    assert run(task(0, printed))["exit_code"] == 0
    assert "not on the server" not in caplog.text


def test_refused_groups_are_a_warning(task, caplog):
    assert run(task(6)) == {"exit_code": 6}
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "some groups were refused" in warning.getMessage()


def test_a_dry_run_has_no_alert(task):
    said = "Skipped: a dry run claims nothing, so every stalled entry would raise the alert."
    with pytest.raises(StandIn.AirflowSkipException, match=re.escape(said)):
        run(task(0, task_id="xpending"), dry_run=True)


def test_the_password_is_in_the_environment_only(task, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("REDIS_PASSWORD", "of the worker")
    run(task(0))
    assert "said of the worker" in caplog.text
    operator = task(0, redis_conn_id="redis")
    run(operator)
    assert "said geheim" in caplog.text  # by the process, which has it of its environment
    assert "geheim" not in " ".join(operator._process.args)
    with pytest.raises(StandIn.AirflowFailException, match="claimlib_redis_conn_id"):
        run(task(0, redis_conn_id="none"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("redis_url", "redis://:s3cr3t@127.0.0.1:6379/0"),
        ("redis_url", "rediss://user:s3/cr3t@redis.example.com"),
        ("redis_url", "redis://127.0.0.1:6379/0?password=s3cr3t"),
        ("redis_url", ":s3cr3t@127.0.0.1:6379"),
        ("writeback_url", "redis://writer:s3cr3t@127.0.0.1:6379/0"),
        ("store", "s3a://KEY:s3cr3t@bucket/store"),
        ("store", "s3a:/KEY:s3cr3t@bucket/store"),
        ("store", "https://account.example.com/store?sig=s3cr3t"),
    ],
)
def test_a_secret_in_a_place_is_refused_before_anything_is_logged_or_started(
    task, caplog, command, name, place
):
    caplog.set_level(logging.DEBUG)
    operator = task(0, task_id=command, **{name: place})
    with pytest.raises(StandIn.AirflowFailException, match=f"claimlib_{name} ") as raised:
        run(operator)
    assert operator._process is None
    # Frames of other tests that Python drops meanwhile are let go in the JVM, which is logged.
    assert [record for record in caplog.records if not record.name.startswith("py4j")] == []
    assert "cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("redis_url", "rediss://user@[::1]:6379/0"),
        ("store", "abfss://container@account.dfs.core.windows.net/store"),
        ("store", "./what?/a:b@c"),
        ("store", "hdfs://namenode:8020/user/me@corp/store"),
        ("store", "s3a://bucket/a:b@c"),
        ("store", "file:///tmp/what?/store"),
    ],
)
def test_a_place_without_a_secret_is_taken(task, name, place):
    assert run(task(0, **{name: place}))["exit_code"] == 0


def test_a_task_that_is_ended_ends_its_process(task):
    operator = task(0)
    operator.on_kill()  # before it has begun
    ended = []
    operator._process = SimpleNamespace(terminate=lambda: ended.append("terminated"))
    operator.on_kill()
    assert ended == ["terminated"]
