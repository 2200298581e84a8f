"""The DAG, run by Airflow itself (`make test-airflow`): SQLite, `airflow dags test`.

No test_ in this file's name: `make test` leaves it out, for it needs an environment with Airflow.
"""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from claimlib.testing.server_process import valkey_server
from tests.delta.reading import query
from tests.edge.processes import QUICK_JAVA
from tests.unit.test_words import read_by_redis_cli

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
AIRFLOW = ROOT / ".venv-airflow" / "bin" / "airflow"
BIN = ROOT / ".venv" / "bin"
CLAIMLIB = f"{shlex.quote(sys.executable)} -m claimlib"
# Where .venv is a link, its `claimlib`, which the DAG would take, is that of another folder.
OWN = {"command": CLAIMLIB} if (ROOT / ".venv").is_symlink() else {}
SUBMIT = (
    f"{BIN}/spark-submit --properties-file {ROOT}/conf/spark-defaults.conf"
    f" --conf spark.pyspark.python={BIN}/python"
)
HOUR_MS = 3_600_000
COMMANDS = ("init", "snapshot", "xautoclaim", "xpending")
DONE_AT_ONCE = dict.fromkeys(COMMANDS, ("success", 1))


@dataclass(frozen=True)
class Run:
    """What Airflow made of a run: tasks are (state, tries), results are their XComs."""

    code: int
    log: str
    run_id: str
    tasks: dict
    results: dict


class Airflow:
    """An installation of its own, whose only DAG is a link to the file."""

    def __init__(self, home):
        (home / "dags").mkdir(parents=True)
        (home / "dags" / "claimlib.py").symlink_to(ROOT / "jobs" / "airflow_dag.py")
        self._database = home / "airflow.db"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "PYTHON"))}
        self._env = {
            **kept,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "2",
            "AIRFLOW_CONN_REDIS": json.dumps({"conn_type": "redis", "password": "geheim77"}),
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
            # For the jobs of spark-submit; `claimlib` does not get it.
            "PYTHONPATH": str(ROOT),
        }
        done = self._call("db", "migrate")
        assert done.returncode == 0, done.stdout

    def run(self, date, *, dry_run=False, **variables):
        """`airflow dags test` at a date of its own."""
        named = {f"AIRFLOW_VAR_CLAIMLIB_{k.upper()}": str(v) for k, v in variables.items()}
        conf = ("--conf", json.dumps({"dry_run": dry_run})) if dry_run is not False else ()
        done = self._call("dags", "test", "claimlib", date, *conf, **named)
        with sqlite3.connect(self._database) as database:
            runs = database.execute(
                "SELECT run_id FROM dag_run WHERE logical_date LIKE ?",
                (f"{date.replace('T', ' ')}%",),
            ).fetchall()
            run_id = runs[0][0] if runs else ""
            tasks = database.execute(
                "SELECT task_id, state, try_number FROM task_instance WHERE run_id = ?", (run_id,)
            ).fetchall()
            results = database.execute(
                "SELECT task_id, value FROM xcom WHERE run_id = ? AND key = 'return_value'",
                (run_id,),
            ).fetchall()
        database.close()
        return Run(
            done.returncode,
            done.stdout,
            run_id,
            {task: (state, tries) for task, state, tries in tasks},
            {task: json.loads(value) for task, value in results},
        )

    def _call(self, *words, **variables):
        return subprocess.run(
            [AIRFLOW, *words],
            env={**self._env, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=3600,
            check=False,
        )


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    return Airflow(tmp_path_factory.mktemp("airflow") / "home")


# ------------------------------------------------------------------- how tasks end


class Ends:
    def __init__(self, folder, codes):
        self.folder = folder
        self.command = f"{shlex.quote(sys.executable)} {HERE / 'ends.py'} {folder}"
        (folder / "codes.json").write_text(json.dumps(codes), encoding="utf-8")

    def calls(self):
        lines = (self.folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def test_what_is_worth_a_retry_is_retried_with_the_same_words_and_no_secret_in_them(
    airflow, tmp_path
):
    ends = Ends(tmp_path, {"snapshot": [75, 5], "xautoclaim": [-9, 6], "xpending": [3]})
    variables = {
        "store": "/a b/store",
        "redis_conn_id": "redis",
        "policy": "p.toml",
        "config": "c d.toml",
    }
    run = airflow.run("2026-02-01T00:00:00", command=ends.command, **variables)
    assert run.tasks == {
        "init": ("success", 1),
        "snapshot": ("success", 3),
        "xautoclaim": ("success", 2),
        "xpending": ("failed", 1),
    }, run.log
    assert run.code != 0
    said = "stalled entries or outdated snapshots (exit code 3): claimlib: this ends with 3"
    assert said in run.log
    assert "some groups were refused or left (exit code 6)" in run.log
    assert run.results["init"] == {"command": "init", "run_id": "r", "counts": {}, "exit_code": 0}
    words = [words for words, _ in ends.calls()]
    assert [line[0] for line in words] == [
        *["init"],
        *["snapshot"] * 3,
        *["xautoclaim"] * 2,
        "xpending",
    ]
    assert words[1] == words[2] == words[3]
    assert words[1][1:] == [
        *("redis://127.0.0.1:6379/0", "/a b/store", "--run-id", run.run_id),
        *("--config", "c d.toml", "--output", "json"),
    ]
    assert words[4] == words[5]
    assert words[5][2:4] == ["--run-id", run.run_id]
    assert words[5][-6:-2] == ["--policy", "p.toml", "--config", "c d.toml"]
    assert {password for _, password in ends.calls()} == {"geheim77"}
    assert "geheim77" not in run.log


@pytest.mark.parametrize(("code", "date"), [(2, "2026-02-02T00:00:00"), (4, "2026-02-03T00:00:00")])
def test_what_is_refused_is_tried_once(airflow, tmp_path, code, date):
    ends = Ends(tmp_path, {"snapshot": [code]})
    run = airflow.run(date, command=ends.command)
    assert run.tasks["snapshot"] == ("failed", 1)
    assert run.tasks["xautoclaim"][0] == "upstream_failed"
    assert f"exit code {code}, a retry would not help: claimlib: this ends with {code}" in run.log
    assert len(ends.calls()) == 2


def test_a_dry_run_that_is_neither_true_nor_false_is_refused_before_anything_begins(
    airflow, tmp_path
):
    ends = Ends(tmp_path, {})
    run = airflow.run("2026-02-04T00:00:00", command=ends.command, dry_run="maybe")
    assert run.code != 0
    assert "'maybe' is not of type 'boolean'" in run.log
    assert not (tmp_path / "calls.jsonl").exists()


# ------------------------------------------------------------------- stalled work on a server


@dataclass(frozen=True)
class Story:
    """What came of each run; `pending` is the store's of group g after the killed one."""

    dry: Run
    killed: Run
    again: Run
    written: Run
    store: Path
    before: dict
    pending: dict
    kills: set
    commands: list


@pytest.fixture(scope="module")
def story(airflow, tmp_path_factory):
    folder = tmp_path_factory.mktemp("story")
    store = folder / "store"
    with valkey_server() as server, server.client() as client:
        _stall(client)
        before = _pending_on(client)
        # So long that alive's entry does not stall while the runs go on.
        named = {"store": store, "redis_url": server.url, "min_idle": "50m"}
        dry = airflow.run("2026-01-01T00:00:00", dry_run=True, **OWN, **named)
        killing = f"{shlex.quote(sys.executable)} {HERE / 'killed.py'} {folder}"
        killed = airflow.run("2026-01-01T00:15:00", command=killing, **named)
        shown = _claimlib("xpending", store, "orders", "g", "--count", "9", "--output", "json")
        pending = {
            row["id"]: (row["consumer"], row["delivery_count"]) for row in json.loads(shown)["rows"]
        }
        again = airflow.run("2026-01-01T00:30:00", **OWN, **named)
        assert _pending_on(client) == before, "the server is only read"
        commands = _claimlib(
            "runs", store, f"xautoclaim:{again.run_id}", "--as-commands"
        ).splitlines()
        for line in commands:
            client.execute_command(*read_by_redis_cli(line))
        written = airflow.run("2026-01-01T00:45:00", spark_submit=SUBMIT, alert_idle="1ms", **named)
    kills = {path.name for path in folder.iterdir()} - {"store"}
    return Story(dry, killed, again, written, store, before, pending, kills, commands)


def _stall(client):
    """Two groups in which dead has had all of three entries for an hour, one of them deleted since;
    alive has got another just now."""
    for n in (1, 2, 3):
        client.xadd("orders", {"n": n}, id=f"{n}-0")
    for group in ("g", "h"):
        client.xgroup_create("orders", group, id="0")
        client.xreadgroup(group, "dead", {"orders": ">"})
        ids = ["1-0", "2-0", "3-0"]
        client.xclaim("orders", group, "dead", 0, ids, idle=HOUR_MS, retrycount=1)
    client.xadd("orders", {"n": 4}, id="4-0")
    client.xreadgroup("g", "alive", {"orders": ">"})
    client.xdel("orders", "2-0")


def _pending_on(client):
    return {
        (group, row["message_id"].decode()): (row["consumer"].decode(), row["times_delivered"])
        for group in ("g", "h")
        for row in client.xpending_range("orders", group, "-", "+", 9)
    }


def _claimlib(*words):
    done = subprocess.run(
        [sys.executable, "-m", "claimlib", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _claims(story, run):
    """What the journal says that a run claimed: (group, id's time, from whom, delivered before)."""
    (swept,) = query(
        story.store,
        "runs",
        f"SELECT run_seq FROM t WHERE command = 'xautoclaim' AND run_id = '{run.run_id}'",
    )
    rows = query(
        story.store,
        "journal",
        "SELECT consumer_group, id_ms, from_consumer, from_delivery_count FROM t"
        f" WHERE kind = 'claimed' AND run_seq = {swept['run_seq']} ORDER BY 1, 2",
    )
    return [tuple(row.values()) for row in rows]


# The alert checks the server. There, dead owns its entries until a writeback sends the claims.
NOT_WRITTEN_BACK = {**DONE_AT_ONCE, "xpending": ("failed", 1)}
STALLED = "stalled on the server: 6 entries in 2 groups have been idle for 1h or longer"
ALL_CLAIMS = [(group, ms, "dead", 1) for group in ("g", "h") for ms in (1, 3)]


def test_a_dry_run_says_what_would_be_claimed_and_claims_nothing(story):
    assert story.dry.code == 0, story.dry.log
    assert story.dry.tasks == {**DONE_AT_ONCE, "xpending": ("skipped", 1)}
    result = story.dry.results["xautoclaim"]
    assert result["dry_run"] is True
    assert (result["totals"]["claimed"], result["totals"]["deleted"]) == (4, 2)
    runs = query(story.store, "runs", "SELECT command FROM t WHERE run_seq = 2 OR run_seq = 1")
    assert {row["command"] for row in runs} == {"snapshot"}


def test_a_run_that_is_killed_twice_is_retried_and_claims_once(story):
    assert story.kills == {"apply", "verify"}
    state, tries = story.killed.tasks["xautoclaim"]
    assert state == "success"
    assert tries in {3, 4}
    assert story.killed.log.count("exit code -9, ended by signal 9") == 2
    assert _claims(story, story.killed) == ALL_CLAIMS
    reclaimed = ("reclaimer", 2)
    assert story.pending == {"1-0": reclaimed, "3-0": reclaimed, "4-0": ("alive", 1)}
    result = story.killed.results["xautoclaim"]
    assert (result["counts"]["claimed"], result["counts"]["deleted"]) == (4, 2)
    assert story.killed.tasks["xpending"] == ("failed", 1)
    assert STALLED in story.killed.log


def test_the_next_run_claims_again_and_the_log_says_why(story):
    assert story.again.tasks == NOT_WRITTEN_BACK, story.again.log
    assert story.again.run_id != story.killed.run_id
    assert _claims(story, story.again) == ALL_CLAIMS  # from dead, as the server says
    assert "4 claimed and 2 deleted in the store, not on the server" in story.again.log
    assert f"xautoclaim:{story.again.run_id}" in story.again.log


def test_once_they_are_written_back_the_next_run_claims_nothing(story):
    assert {line.split()[0] for line in story.commands} == {"XCLAIM", "XACK"}
    # The alert of this run counts entries as stalled after 1 ms.
    assert story.written.tasks == NOT_WRITTEN_BACK, story.written.log
    assert story.written.results["xautoclaim"]["totals"]["claimed"] == 0
    assert _claims(story, story.written) == []
    assert "not on the server" not in story.written.log


def test_the_alert_fails_for_good_and_says_what_is_stalled(story):
    assert "stalled entries or outdated snapshots (exit code 3): claimlib: " in story.written.log
    assert re.search(
        r"claimlib: stalled on the server: [0-9,]+ entr\w+ in [0-9,]+ groups? ha\w+ been idle for"
        r" 1ms or longer",
        story.written.log,
    )
