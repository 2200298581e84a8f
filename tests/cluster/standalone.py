"""A standalone cluster of Spark on this machine, from the classes of the pip package: a master and
workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import pyspark

from claimlib.session import archive_options
from claimlib.testing.server_process import free_port

ROOT = Path(__file__).resolve().parents[2]
_SPARK_HOME = Path(pyspark.__file__).parent
_START_S = 60
# These JVMs live for seconds: what `session.SHORT_LIVED` says, for executors of 512 MB.
_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m -XX:+UseSerialGC " + archive_options()
).rstrip()


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        url: `spark://127.0.0.1:PORT`.
        workers: the processes of the workers that are alive.
    """

    url: str
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self) -> None:
        """One more worker, with a core and room for one executor."""
        name = f"worker-{len(list(self.folder.glob('worker-*.log')))}"
        resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name))
        worker = _daemon(self.folder, name, "worker.Worker", *resources, self.url)
        self.workers.append(worker)
        _wait_for(self.folder / f"{name}.log", "Successfully registered with master")

    def kill_worker(self) -> None:
        """Kill the oldest worker, and with it its executors, as a host that goes down does."""
        worker = self.workers.pop(0)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


@contextmanager
def standalone(workers: int) -> Iterator[Cluster]:
    """A cluster, until the block ends."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = free_port()
        address = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()))
        master = _daemon(folder, "master", "master.Master", *address)
        cluster = Cluster(f"spark://127.0.0.1:{port}", folder)
        try:
            _wait_for(folder / "master.log", "New state: ALIVE")
            for _ in range(workers):
                cluster.add_worker()
            yield cluster
        finally:
            for process in (*cluster.workers, master):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def package_zip(file: Path) -> Path:
    """The package as `make zip` builds it."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((ROOT / "claimlib").rglob("*.py")):
            archive.write(path, path.relative_to(ROOT))
    return file


def bare_python(folder: Path) -> Path:
    """A Python for executors that has all libraries, and not the package: an editable installation
    puts that on the path by a .pth file, which Python reads in its own site-packages only."""
    libraries = sysconfig.get_paths()["purelib"]
    script = folder / "bare-python"
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def submit(
    cluster: Cluster,
    package: Path | None,
    python: Path,
    job: str,
    *words: str,
    conf: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[str]:
    """spark-submit of a job.  What it says can be read line by line, all from its stdout: that is
    where spark-submit passes on what Python writes to stderr."""
    settings = {
        "spark.executor.memory": "512m",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.pyspark.python": str(python),
        "spark.pyspark.driver.python": sys.executable,
        "spark.driver.extraJavaOptions": _JAVA,
        "spark.executor.extraJavaOptions": _JAVA,
        # Code that is generated runs once here: to compile it takes longer.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # What a killed worker had is asked for again at once, not three times after 5 s each.
        "spark.shuffle.io.retryWait": "200ms",
        **conf,
    }
    options = [
        *("--master", cluster.url, "--properties-file", str(ROOT / "conf/spark-cluster.conf")),
        *chain.from_iterable(("--conf", f"{key}={value}") for key, value in settings.items()),
    ]
    if package is not None:
        options += ["--py-files", str(package)]
    return subprocess.Popen(
        [str(_SPARK_HOME / "bin/spark-submit"), *options, str(ROOT / "jobs" / job), *words],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def killing_workers(process: subprocess.Popen[str], cluster: Cluster, *phases: str) -> str:
    """What a submitted run says.  As each of the phases begins a worker is killed, and replaced;
    all are reached, and Spark has lost an executor (on a slow machine not one for each worker: its
    executor may not have been there yet)."""
    said, left = [], list(phases)
    for line in process.stdout or ():
        said.append(line)
        if left and line.startswith(f"claimlib: {left[0]}"):
            left.pop(0)
            cluster.kill_worker()
            cluster.add_worker()
    text = "".join(said)
    assert not left, text
    assert "Lost executor" in text, text
    return text


def _daemon(folder: Path, name: str, kind: str, *words: str) -> subprocess.Popen[bytes]:
    """A process of its own group, so that what it starts is ended with it."""
    daemon = {
        "SPARK_DAEMON_JAVA_OPTS": _JAVA,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with Path(folder, f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(_SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", *words],
            env=_environment() | daemon,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    dropped = ("SPARK_", "PYSPARK_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"SPARK_HOME": str(_SPARK_HOME)}


def _wait_for(log: Path, text: str) -> None:
    until = time.monotonic() + _START_S
    while text not in log.read_text(encoding="utf-8", errors="replace"):
        if time.monotonic() > until:
            raise AssertionError(f"{log.name} does not say {text!r}: {log.read_text()[-2000:]}")
        time.sleep(0.1)
