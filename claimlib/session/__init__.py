"""Open the Spark session: the active one, or else a new local one.

spark-submit, Databricks and notebooks have a session.  Its settings (packages, extensions, catalog)
were given before its JVM started, and are not changed.  In other cases, this module builds a local
session with Delta.  Ivy downloads Delta's jars the first time (about 40 MB).
"""

from __future__ import annotations

import codecs
import locale
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from claimlib import terminal
from claimlib.errors import ConfigError, MissingExtraError, SparkUnreachableError
from claimlib.places import local_folder
from claimlib.process import without_classes
from claimlib.session.settings_file import settings_in_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_JAVA = 17
_JAVA_NEEDED = f"Spark needs Java {_LEAST_JAVA} or newer"
_JAVA_HINT = "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
_SPECIFICATION = re.compile(r"java\.specification\.version = (\d+)")
_PROVIDERS = ("PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE")

# conf/spark-defaults.conf has the same settings for spark-submit.  A test compares the two.
LOCAL_SETTINGS = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Spark has a newer Hadoop client than the one that Delta names.  It is half of Ivy's download.
    "spark.jars.excludes": (
        "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
    ),
    "spark.log.level": "ERROR",
    # Otherwise each call of a column function tells the JVM which line of Python calls it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # By default, Spark keeps the code of 100 classes that it generates.  A sweep needs more, so it
    # would compile all of them again at each run.  That was half the time of a small one.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.session.timeZone": "UTC",
    # VACUUM lists a table's files in 32 tasks. Spark's default of 10,000 takes minutes per table.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Faster for large sweeps than Java's own choice (docs/decisions/022).
COLLECTOR = "-XX:+UseParallelGC"

# Spark makes a text of the stack of an exception, and of the stacks of its causes.  PySpark
# fetches these texts, and waits for each that is longer than 8 KB.  Spark also reads the stack for
# each job (docs/decisions/022).
SHORT_STACKS = "-XX:MaxJavaStackTraceDepth=32"

# `java_options` for a JVM with little work, for which a second compiler costs more than it saves.
# With one compiler, Java by default keeps 48 MB for compiled code.  Once they are full, Java
# interprets the rest.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xmn1g"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)

# The file that `python -m claimlib.session.class_archive` creates.  Java ignores it if the packages
# or the version of Java have changed since.  Java must not print that.
CLASS_ARCHIVE = Path(sys.prefix) / "claimlib-spark.jsa"


def open_session(
    *,
    master: str = "local[*]",
    driver_memory: str = "4g",
    shuffle_partitions: int = 4,
    app_name: str = "claimlib",
    java_options: str = "",
    conf: Mapping[str, str] = MappingProxyType({}),
    muted: bool = True,
) -> SparkSession:
    """Return the active session, or else a new local one with Delta.

    An active session ignores all arguments.

    Args:
        master: Spark's master URL.
        driver_memory: memory of the JVM, as Spark spells it (`4g`).
        shuffle_partitions: partitions after a shuffle.
        app_name: the name that Spark shows for the session.
        java_options: further options of the JVM.  Its garbage collector is `COLLECTOR`, unless
            these options or the environment choose another one, or Spark's own files may do so.
        conf: further settings of Spark, for example `spark.hadoop.fs.s3a.endpoint`.  They take
            precedence over all others.
        muted: True if the log of the JVM is hidden, and the stacks in its errors are short.  The
            errors of a query are raised in both cases.

    Raises:
        MissingExtraError: pyspark or delta-spark is not installed.  Or SPARK_REMOTE is set, and a
            package that Spark Connect needs is not installed.
        SparkUnreachableError: no server answers at SPARK_REMOTE.
        ConfigError: Java is missing or too old, or Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError.for_package("spark", error.name or "pyspark") from error
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder
    if "SPARK_REMOTE" in os.environ:
        _check_connect(os.environ["SPARK_REMOTE"])
    if not starts_jvm():
        return _with_own_python(_configured(builder.appName(app_name), conf).getOrCreate())
    check_java()
    own = {
        "spark.app.name": app_name,
        "spark.driver.memory": driver_memory,
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
    }
    short = SHORT_STACKS if muted else ""
    by_us = (short, _with_collector(java_options, conf), archive_options())
    options = " ".join(option for option in by_us if option)
    if options:
        own["spark.driver.extraJavaOptions"] = options
    if _starts_connect_server():  # SPARK_REMOTE names its master
        own["spark.connect.grpc.binding.address"] = "127.0.0.1"  # else any machine can connect
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else its workers run python3
    else:
        own["spark.master"] = master
    builder = _with_delta(builder, {**LOCAL_SETTINGS, **own}, conf)
    in_file = {} if _has_jvm() else {key: conf[key] for key in conf if _is_for_file(key)}
    others = {key: conf[key] for key in conf if key not in in_file and key != _PACKAGES}
    builder = _configured(builder, others)
    # Settings with which a Connect server was started cannot be set again for the session.
    unwarned = terminal.unwarned("Failed to set ")
    with _jvm_muted(muted=muted), unwarned, settings_in_file(in_file), _locale_of_python():
        spark = builder.getOrCreate()
    _end_without_memory()
    return _with_own_python(spark)


_PACKAGES = "spark.jars.packages"
_DELTA_JAR = re.compile(r"delta-spark[^/,]*\.jar")


def _with_delta(
    builder: SparkSession.Builder, settings: Mapping[str, str], conf: Mapping[str, str]
) -> SparkSession.Builder:
    """Return the builder with the settings that `conf` does not replace, and with Delta's jar.

    The jar is added to the packages that `conf` names.  If it is one of the jars that `conf` names,
    it is not added, because then no download is needed.
    """
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise MissingExtraError.for_package("spark", "delta-spark") from error
    builder = _configured(builder, {key: settings[key] for key in settings.keys() - conf.keys()})
    packages = conf.get(_PACKAGES, "")
    if _DELTA_JAR.search(conf.get("spark.jars", "")):
        return _configured(builder, {_PACKAGES: packages} if packages else {})
    others = [package for package in packages.split(",") if package]
    extra = [package for package in others if not package.startswith("io.delta:delta-spark")]
    return configure_spark_with_delta_pip(builder, extra_packages=extra)


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _has_jvm() -> bool:
    """Return True if this process already has a JVM.

    The JVM may be that of a session that was stopped, or of another library.  Settings are then
    sent to the JVM, and are not arguments of a command.
    """
    from pyspark import SparkContext

    return getattr(SparkContext, "_gateway", None) is not None


def _is_for_file(key: str) -> bool:
    """Return True if spark-submit reads a setting from a file and `_with_delta` does not set it."""
    return key.startswith("spark.") and key != _PACKAGES


@contextmanager
def _locale_of_python() -> Iterator[None]:
    """Start the JVM in a locale in which it encodes file names as Python does.

    Without it, Java encodes them as ASCII in the locale C, and Python as UTF-8 (PEP 540).
    """
    of_python, of_locale = sys.getfilesystemencoding(), locale.getencoding()
    if _codec(of_python) != "utf-8" or _codec(of_locale) == "utf-8":
        yield
        return
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = _UTF8_LOCALE
    try:
        yield
    finally:
        if before is None:
            del os.environ["LC_ALL"]
        else:
            os.environ["LC_ALL"] = before


_UTF8_LOCALE = "C.UTF-8"


def _codec(encoding: str) -> str:
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        return encoding


def check_file_names(spark: SparkSession, *places: str) -> None:
    """Raise ConfigError if Java and Python encode the name of a local folder differently.

    Args:
        places: the places of a store or of tables.  Names in ASCII are the same for both.
    """
    from pyspark.sql.utils import is_remote

    names = [place for place in places if not place.isascii() and local_folder(place) is not None]
    if not names or is_remote():
        return
    row = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'sun.jnu.encoding')")
    (of_java,) = row.collect()[0]
    of_python = sys.getfilesystemencoding()
    if of_java is not None and _codec(of_java) != _codec(of_python):
        raise ConfigError(
            f"{names[0]} cannot be opened: Java encodes file names as {of_java}, Python as"
            f" {of_python}. Start Spark with the environment variable LC_ALL={_UTF8_LOCALE}",
            place=names[0],
        )


def _end_without_memory() -> None:
    """Make a JVM that claimlib started end if one of its threads lacks memory.

    Java by itself ends that thread only.  If it is a thread of Spark's scheduler, the command would
    wait without end.
    """
    from pyspark import SparkContext

    # pyspark has no other name for it that also exists for a Connect server of claimlib.
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    handler = jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)


def is_provided() -> bool:
    """Return True if another program has started, or will start, Spark for this process."""
    return any(name in os.environ for name in _PROVIDERS)


def starts_jvm() -> bool:
    """Return True if `open_session` starts a JVM when no session is active."""
    return _starts_connect_server() or not is_provided()


def _starts_connect_server() -> bool:
    """Return True if pyspark starts a Connect server for this process.

    The server has a JVM of its own, which has no Delta by default.
    """
    return os.environ.get("SPARK_REMOTE", "").startswith("local")


def _check_connect(remote: str) -> None:
    """Refuse to start if a package of the extra is missing, or if no server listens.

    pyspark names missing packages one by one.  If no server listens, it would try for ten minutes,
    and could not be stopped.

    Args:
        remote: `local[N]`, or `sc://HOST[:PORT]/…`.

    Raises:
        MissingExtraError: a package is missing.
        ConfigError: the port is not a number from 0 to 65535.
        SparkUnreachableError: the server cannot be reached.
    """
    for name in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            import_module(name)
        except ImportError as error:
            raise MissingExtraError.for_package("connect", name) from error
    server = urlsplit(remote)
    try:
        port = server.port or _CONNECT_PORT
    except ValueError as error:
        # Only the host is named, because the rest may contain a token.
        raise ConfigError(
            f"the port of SPARK_REMOTE is no number from 0 to 65535 (host {server.hostname}):"
            " set it to sc://HOST:PORT"
        ) from error
    is_by_proxy = any(name.lower() in _PROXIES for name in os.environ)
    if server.scheme != "sc" or server.hostname is None or is_by_proxy:
        return
    at = (server.hostname, port)
    try:
        socket.create_connection(at, _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise SparkUnreachableError(
            f"no Spark Connect server answers at {at[0]}:{at[1]} ({error.strerror or error}):"
            " check SPARK_REMOTE and that the server runs, or try again"
        ) from error


_CONNECT_PORT = 15002
_CONNECT_TIMEOUT_S = 10
_PROXIES = {"grpc_proxy", "https_proxy", "http_proxy"}  # gRPC connects to these instead


def may_be_elsewhere(conf: Mapping[str, str]) -> bool:
    """Return True if a path need not be a folder of this machine.

    This is so if Spark is provided, or if a setting may choose another file system.
    """
    by_java = any("-Dspark." in os.environ.get(name, "") for name in _JAVA_OPTIONS)
    by_files = any(name in os.environ for name in _SPARKS_OWN)
    return is_provided() or by_java or by_files or any(map(_MOVES_PATHS.match, conf))


def takes_paths_for_folders(master: str, conf: Mapping[str, str]) -> bool:
    """Return True if `open_session` is certain to start Spark on this machine.

    For this Spark, a path is a folder of this machine.  So a store in it can be read before there
    is a session.
    """
    if may_be_elsewhere(conf) or not master.startswith("local"):
        return False
    return not _has_files() and not has_session()


def has_session() -> bool:
    """Return True if this process has an active Spark session."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def has_catalog(conf: Mapping[str, str]) -> bool:
    """Return True if a session with these settings may have a catalog with tables.

    By default the catalog of a session that claimlib starts is in memory, and empty.
    """
    return any(map(_NAMES_CATALOG.match, conf))


_NAMES_CATALOG = re.compile(r"spark\.sql\.(catalog|extensions|warehouse|hive)")


# Variables by which Spark and Hadoop find settings of their own, and by which a JVM gets some.
_SPARKS_OWN = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_CLASSPATH", "PYSPARK_SUBMIT_ARGS"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# Settings of Hadoop, and settings that add classes, or files of settings, to the JVM.
_MOVES_PATHS = re.compile(
    r"spark\.(hadoop|jars|archives|files|plugins|.*extra(ClassPath|JavaOptions|Listeners))\b",
    re.IGNORECASE,
)


def _with_collector(java_options: str, conf: Mapping[str, str]) -> str:
    """Return options of a JVM that choose one garbage collector.

    Java does not start with two.  The choice of the environment takes precedence over
    `java_options`, and these over `COLLECTOR`.
    """
    by_environment = " ".join(os.environ.get(name, "") for name in _JAVA_OPTIONS)
    chosen = _CHOOSES.findall(by_environment)
    if chosen:
        return _CHOOSES.sub(
            lambda match: match[0] if match[0] in chosen else "", java_options
        ).strip()
    by_conf = str(conf.get("spark.driver.defaultJavaOptions", ""))
    if _has_files() or any(map(_CHOOSES.search, (java_options, by_conf))):
        return java_options
    return f"{COLLECTOR} {java_options}".strip()


_CHOOSES = re.compile(r"-XX:\+Use\w+GC\b")


def _has_files() -> bool:
    """Return True if Spark may find settings in files of its own."""
    import pyspark

    has_defaults = Path(pyspark.__path__[0], "conf").exists()
    return has_defaults or any(name in os.environ for name in _SPARKS_OWN)


def archive_options() -> str:
    """Return options of a JVM that reads Spark's classes from the archive.

    Return an empty text if there is no archive.  The same holds if its path has a blank, because
    Spark would split the options there.
    """
    if not CLASS_ARCHIVE.is_file() or re.search(r"\s", str(CLASS_ARCHIVE)):
        return ""
    return f"-XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _with_own_python(spark: SparkSession) -> SparkSession:
    """Make local workers run the Python of this process, and return the session.

    The Python on PATH may lack numpy and pandas.
    """
    from pyspark.sql.utils import is_remote

    if is_remote() or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return spark
    if (spark.sparkContext.master or "").startswith("local"):
        spark.sparkContext.pythonExec = sys.executable
    return spark


@contextmanager
def _jvm_muted(*, muted: bool) -> Iterator[None]:
    """Write the output of a JVM that starts in the block to a temporary file.

    The output is some 90 lines before the first result, most of them from Ivy.  If the JVM does not
    start, the error states the cause.  If `muted` is False, the output goes to standard error,
    because standard output is for results.

    Raises:
        ConfigError: the JVM does not start.
    """
    with tempfile.TemporaryFile() if muted else nullcontext() as log:
        try:
            with _output_turned_to(2 if log is None else log.fileno()):
                yield
        except Exception as error:
            said = ""
            if log is not None:
                log.seek(0)
                said = log.read().decode(errors="replace")
            raise ConfigError(f"Spark does not start: {_why_not_started(said, error)}") from error


@contextmanager
def _output_turned_to(target: int) -> Iterator[None]:
    """Redirect standard output and standard error to a file descriptor until the block ends.

    Processes that this process starts write there, too.
    """
    kept = {number: _copied(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(target, number)
        yield
    finally:
        for number, before in kept.items():
            if before is None:
                os.close(number)
            else:
                os.dup2(before, number)
                os.close(before)


def _copied(number: int) -> int | None:
    """Return a copy of a file descriptor, or None if the process was started without it."""
    try:
        return os.dup(number)
    except OSError:
        return None


def _why_not_started(said: str, error: Exception) -> str:
    """Return the cause and the remedy in one line, without the names of Java's classes."""
    lacking = _UNRESOLVED.search(said)
    if lacking:
        package = re.sub("[#;]", ":", lacking[1])
        return (
            f"the package {package} cannot be downloaded: check its name (spark.jars.packages) and"
            " the connection to Maven Central, or give Spark the jars that it needs (spark.jars)"
        )
    if _PORT_IN_USE.search(f"{said}{error}"):
        return (
            f"port {_CONNECT_PORT} is in use on this machine, by another Connect server: wait until"
            " it has ended, or use it (SPARK_REMOTE=sc://localhost)"
        )
    lines = [line.strip() for line in (*str(error).splitlines(), *said.splitlines())]
    named = (match[match.lastindex or 0] for line in lines if (match := _JVM_ERROR.match(line)))
    cause = next(named, None) or next(filter(None, reversed(lines)), type(error).__name__)
    cause = without_classes(cause).rstrip(".")
    return (
        f"{cause}; check its settings (--spark-conf, or [spark] of the configuration file)."
        " --debug, or open_session(muted=False) in Python, shows its full output"
    )


_PORT_IN_USE = re.compile(r"Failed to bind .*SparkConnectService")
_UNRESOLVED = re.compile(r"unresolved dependency: (\S+?): ")
# The lines of a JVM that ends at once, and of Java's errors, that name the cause.
_JVM_ERROR = re.compile(
    r"((?:Invalid|Unrecognized|Error occurred) .+)"
    r"|(?:: |Caused by: |Exception in thread \"[^\"]*\" )([\w.$]+(?:Exception|Error): .+)"
)


def check_java() -> str:
    """Return the version of Java.

    Spark's own message does not state that Java is too old, so this is checked here.

    Raises:
        ConfigError: Java is missing or too old.  The message states which version was found, if
            any, and what to install.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"  # noqa: PTH118 - may not exist
    where = f"JAVA_HOME={home}" if home else "PATH"
    if shutil.which(java) is None:
        raise ConfigError(f"{_JAVA_NEEDED}, but {where} has none: {_JAVA_HINT}", java=None)
    command = [java, "-XshowSettings:properties", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    match = _SPECIFICATION.search(said)
    if match is None or int(match[1]) < _LEAST_JAVA:
        version = match[1] if match else "an unknown version"
        raise ConfigError(
            f"{_JAVA_NEEDED}, but that of {where} is {version}: {_JAVA_HINT}", java=version
        )
    return match[1]
