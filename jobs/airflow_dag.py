"""A DAG for Airflow 3: take a snapshot of a server, claim stalled entries, and alert.

`init` (an existing store stays) → `snapshot` → `xautoclaim` → `xpending`, every quarter of an hour,
one run at a time.  Each task is one process: `claimlib COMMAND` of an environment of its own or,
with the variable `claimlib_spark_submit`, a job of this folder.  Airflow needs no other package.
The scheduler's run id is the run id of the commands, so a retry finds what was done and changes
nothing.  `docs/airflow.md` lists the variables.  All have defaults.  With the variable
`claimlib_writeback_url`, which is empty by default, `xautoclaim` writes its claims to the server.

A second DAG, `claimlib_maintain`, runs `maintain` once a day.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, Connection, Param
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)

VARIABLES = {
    "home": str(Path(__file__).resolve().parents[1]),  # of the project, not of the DAGs folder
    "command": "",
    "spark_submit": "",
    "java_home": "",
    "store": "store",
    "redis_url": "redis://127.0.0.1:6379/0",
    "redis_conn_id": "",
    "config": "",
    "policy": "",
    "consumer": "reclaimer",
    "min_idle": "15m",
    "writeback_url": "",
    "alert_idle": "1h",
    "alert_view": "server",
    "keep_history": "",
}
"""The defaults, by the name without `claimlib_`; what is empty is chosen by the functions below."""

SETTINGS = {
    name: f"{{{{ var.value.get('claimlib_{name}', {default!r}) }}}}"
    for name, default in VARIABLES.items()
}

# Of the worker's own environment: they would lead claimlib to another Python or another Spark.
LEFT_OUT = (
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
    "PYTHONHOME",
    "PYTHONPATH",
    "SPARK_HOME",
)

# ------------------------------------------------------------------- what is run


def words_of(
    command: str, settings: Mapping[str, str], run_id: str, *, dry_run: bool = False
) -> list[str]:
    """The words of one claimlib command; no secret is among them."""
    store = settings["store"]
    match command:
        case "snapshot":
            words = [settings["redis_url"], store, "--run-id", run_id]
        case "xautoclaim":
            words = [store, "--run-id", run_id, "--limit", "1", *_request(settings)]
            url = settings["writeback_url"]
            words += ["--writeback", url] if url else []
            words += ["--dry-run"] if dry_run else []
        case "xpending":
            words = [store, "--fail-on-stalled", settings["alert_idle"], "--limit", "1"]
            words += ["--view", settings["alert_view"]]
        case "maintain":
            words = [store, "--run-id", run_id]
            keep = settings["keep_history"]
            words += ["--keep-history", keep] if keep else []
            words += ["--dry-run"] if dry_run else []
        case _:
            words = [store]
    config = ["--config", settings["config"]] if settings["config"] else []
    return [command, *words, *config, "--output", "json"]


def _request(settings: Mapping[str, str]) -> list[str]:
    if settings["policy"]:
        return ["--policy", settings["policy"]]
    return ["--consumer", settings["consumer"], "--min-idle", settings["min_idle"]]


def with_secret(settings: Mapping[str, str]) -> str | None:
    """The name of the setting with a password in it, or with what could be one; null: there is
    none.  What claimlib is given is logged, and everyone who lists processes can read it."""
    for name in ("redis_url", "writeback_url"):
        server = settings[name]
        if _has_login(server.partition("://")[2] or server) or "?" in server:
            return name
    store = _URL.match(settings["store"])
    # Of a folder, and of a name in a catalog, nothing is a secret.
    if store is None or store["scheme"] == "file":
        return None
    return "store" if _has_login(store["host"]) or "?" in store["rest"] else None


_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/+(?P<host>[^/]*)(?P<rest>.*)")


def _has_login(text: str) -> bool:
    return ":" in text.rpartition("@")[0]


def started_by(settings: Mapping[str, str]) -> list[str]:
    """What comes before the words: a command line, or the `claimlib` of the project's environment,
    or that of PATH."""
    if settings["command"]:
        return shlex.split(settings["command"])
    own = Path(settings["home"]) / ".venv" / "bin" / "claimlib"
    return [str(own) if own.exists() else "claimlib"]


def argv_of(settings: Mapping[str, str], words: list[str]) -> list[str]:
    """The whole list of arguments, for a process without a shell."""
    if settings["spark_submit"]:
        job = Path(settings["home"]) / "jobs" / f"{words[0]}.py"
        return [*shlex.split(settings["spark_submit"]), str(job), *words[1:]]
    return [*started_by(settings), *words]


def environment_of(
    settings: Mapping[str, str], environ: Mapping[str, str], password: str | None
) -> dict[str, str]:
    """The process' environment: the worker's; the server's password stands in it, if anywhere."""
    left_out = () if settings["spark_submit"] else LEFT_OUT
    own = {name: value for name, value in environ.items() if name not in left_out}
    if settings["java_home"]:
        own["JAVA_HOME"] = settings["java_home"]
    if password:
        own["REDIS_PASSWORD"] = password
    return own


# ------------------------------------------------------------------- how it ended

DONE = 0
STALLED = 3
SOME_REFUSED = 6
WORTH_A_RETRY = {
    5: "another run came first or still writes",
    75: "the server or the storage did not answer",
    130: "interrupted",
}
OF_SIGNALS = range(128 + 1, 128 + 64 + 1)


def why_retry(code: int) -> str | None:
    """Why the same command can succeed when it is run again; null: it can not, or need not.

    A process that a signal ended (a negative code, or as a shell tells it 128 and its number) has
    done nothing wrong: with its run id it goes on where it was.
    """
    if code in WORTH_A_RETRY:
        return WORTH_A_RETRY[code]
    if code < 0 or code in OF_SIGNALS:
        return f"ended by signal {-code if code < 0 else code - 128}"
    return None


def parted(printed: str) -> tuple[dict[str, Any], list[str]]:
    """What came on stdout: the JSON of the result (empty: there is none), and the other lines.

    spark-submit lets out there, too, what its Python says on stderr.
    """
    for begin in (match.start() for match in re.finditer(r"^\{", printed, re.MULTILINE)):
        try:
            result, end = json.JSONDecoder().raw_decode(printed, begin)
        except ValueError:
            continue
        return result, (printed[:begin] + printed[end:]).splitlines()
    return {}, printed.splitlines()


def last_said(lines: Sequence[str]) -> str:
    """The line that says how a command ended: claimlib's last, for Spark may say more after it."""
    ours = [line for line in lines if line.startswith("claimlib: ")]
    return (ours or list(lines) or ["it said nothing"])[-1]


def small_result(result: Mapping[str, Any], code: int) -> dict[str, Any]:
    """What the next task gets: the result without its lists of rows."""
    small = {key: value for key, value in result.items() if not isinstance(value, list)}
    return {**small, "exit_code": code}


def only_in_the_store(result: Mapping[str, Any], store: str) -> str | None:
    """Return a message if claims were not written back, or None."""
    counts = result.get("counts") or {}
    if (
        "writeback" in result
        or result.get("dry_run")
        or not (counts.get("claimed") or counts.get("deleted"))
    ):
        return None
    run = shlex.quote(f"xautoclaim:{result['run_id']}")
    return (
        f"{counts['claimed']} claimed and {counts['deleted']} deleted in the store, not on the "
        "server: the next snapshot shows the server's owners again, and the next run claims again. "
        "Set the variable claimlib_writeback_url, or review what `claimlib runs "
        f"{shlex.quote(store)} {run} --as-commands` prints and run it on the server"
    )


# ------------------------------------------------------------------- the tasks


class ClaimlibOperator(BaseOperator):  # type: ignore[misc]  # Airflow need not be installed
    """One claimlib command: that of the task's id.

    Ends as the exit code says: done (0, and 6 with a warning), failed for good, or worth a retry
    (5, 75, a signal).
    """

    template_fields = ("settings", "run_id")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = dict(SETTINGS)
        self.run_id = "{{ run_id }}"
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Run the command; its result without the rows is the task's XCom."""
        if name := with_secret(self.settings):
            raise AirflowFailException(
                f"The variable claimlib_{name} contains a password, or something that looks like "
                "one (before an @ or after a ?). Nothing was started. Remove it from the variable: "
                "the server's password belongs in REDIS_PASSWORD or in the connection that "
                "claimlib_redis_conn_id names, and keys of the storage in Spark's settings."
            )
        dry_run = bool(context["params"]["dry_run"])
        if dry_run and self.task_id == "xpending":
            raise AirflowSkipException(
                "Skipped: a dry run claims nothing, so every stalled entry would raise the alert."
            )
        words = words_of(self.task_id, self.settings, self.run_id, dry_run=dry_run)
        code, whole, last = self._run(words)
        if why := why_retry(code):
            raise AirflowException(f"exit code {code}, {why}: {last}")
        if code == STALLED:
            raise AirflowFailException(
                f"stalled entries or outdated snapshots (exit code {code}): {last}"
            )
        if code not in {DONE, SOME_REFUSED}:
            raise AirflowFailException(f"exit code {code}, a retry would not help: {last}")
        result = small_result(whole, code)
        if code == SOME_REFUSED:
            self.log.warning("done, but some groups were refused or left (exit code 6): %s", last)
        if self.task_id == "xautoclaim" and (said := only_in_the_store(result, words[1])):
            self.log.warning("%s", said)
        return result

    def on_kill(self) -> None:
        """The command ends in order, where the task is ended."""
        if self._process is not None:
            self._process.terminate()

    def _run(self, words: list[str]) -> tuple[int, dict[str, Any], str]:
        """The exit code, the result, and the line that says how it ended; all that is said goes to
        the task's log, what comes on stderr as it comes."""
        argv = argv_of(self.settings, words)
        self.log.info("claimlib %s", shlex.join(words))
        said = deque[str](maxlen=1000)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
            try:
                self._process = subprocess.Popen(
                    argv,
                    cwd=self.settings["home"],
                    env=environment_of(self.settings, os.environ, self._password()),
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    errors="replace",
                )
            except OSError as error:
                raise AirflowFailException(
                    f"{argv[0]} cannot be started ({error.strerror}): see the variables "
                    "claimlib_home, claimlib_command and claimlib_spark_submit"
                ) from error
            with self._process as process:
                try:
                    for line in process.stderr or ():
                        said.append(line.rstrip())
                        self.log.info("%s", said[-1])
                except BaseException:  # a task's time is over, say
                    process.terminate()
                    raise
            printed.seek(0)
            result, others = parted(printed.read())
        for line in filter(None, others):
            self.log.info("%s", line)
        return process.returncode, result, last_said([*said, *others])

    def _password(self) -> str | None:
        """That of the Airflow connection, if one is named; else the worker's environment has it."""
        name = self.settings["redis_conn_id"]
        try:
            password: str | None = Connection.get(name).password if name else None
        except AirflowNotFoundException as error:
            raise AirflowFailException(f"{error} (the variable claimlib_redis_conn_id)") from error
        return password


def _arguments(what: str, dry_run: str) -> dict[str, Any]:
    """Return the arguments that both DAGs share.

    Args:
        what: the description of the DAG.
        dry_run: the description of its parameter `dry_run`.
    """
    return {
        "description": what,
        "start_date": datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it as UTC
        "catchup": False,
        "max_active_runs": 1,
        "default_args": {"retries": 3},  # after Airflow's default_task_retry_delay
        "params": {"dry_run": Param(False, type="boolean", description=dry_run)},
        "tags": ["claimlib"],
    }


with DAG(
    dag_id="claimlib_maintain",
    schedule=timedelta(days=1),
    **_arguments("Compact the tables of a store", "Change nothing. Only show what would be done."),
):
    maintain = ClaimlibOperator(task_id="maintain")

with DAG(
    dag_id="claimlib",
    schedule=timedelta(minutes=15),
    **_arguments(
        "Redis' stalled stream entries: snapshot, claim, alert",
        "Take the snapshot, and only say what would be claimed.",
    ),
):
    init = ClaimlibOperator(task_id="init")
    snapshot = ClaimlibOperator(task_id="snapshot")
    xautoclaim = ClaimlibOperator(task_id="xautoclaim")
    xpending = ClaimlibOperator(task_id="xpending")
    init >> snapshot >> xautoclaim >> xpending
