"""The SparkSession: the one that is there, or a local one of our own.

spark-submit, Databricks and notebooks have a session; its settings (packages, extensions, catalog)
were given before its JVM started, and are left alone.  Anywhere else a local session with Delta is
built, and Ivy fetches Delta's jars the first time (about 40 MB).
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

# conf/spark-defaults.conf says the same to spark-submit; a test compares the two.
LOCAL_SETTINGS = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Spark brings a newer Hadoop client than the one that Delta names: half of Ivy's download.
    "spark.jars.excludes": (
        "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
    ),
    "spark.log.level": "ERROR",
    # Else PySpark tells the JVM, at each call of a function of columns, which line of Python calls.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark keeps the code of 100 classes that it generates, and a sweep needs more: each run would
    # compile all of them again, which was half the time of a small one.
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

# Spark makes a text of the stack of an exception, and of the stacks of its causes.  PySpark has
# these texts sent, and waits for each that is longer than 8 KB.  Spark also looks at the stack for
# each job (docs/decisions/022).
SHORT_STACKS = "-XX:MaxJavaStackTraceDepth=32"

# `java_options` for a JVM with little work: its second compiler would cost more than it saves.
# With one compiler Java keeps 48 MB for compiled code; once they are full, the rest is interpreted.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xmn1g"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)

# What `python -m claimlib.session.class_archive` makes.  With other packages or another Java than
# it was made with, Java passes it by; it must not say so.
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
    """Return the session that is there (it ignores all arguments), else a new local one with Delta.

    Args:
        master: Spark's master URL.
        driver_memory: memory of the JVM, as Spark spells it (`4g`).
        shuffle_partitions: partitions after a shuffle.
        app_name: what Spark shows for the session.
        java_options: further options of the JVM.  Its garbage collector is `COLLECTOR`, unless
            they or the environment choose another, or files of Spark's own may do so.
        conf: further settings of Spark, as `spark.hadoop.fs.s3a.endpoint`; they come after all
            others.
        muted: whether the log of the JVM is hidden, and the stacks in its errors are short (the
            errors of a query are raised all the same).

    Raises:
        MissingExtraError: pyspark or delta-spark is not installed, or SPARK_REMOTE is set and what
            Spark Connect needs is not.
        SparkUnreachableError: nobody answers at SPARK_REMOTE.
        ConfigError: there is no Java, or too old a one, or Spark does not start.
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
    if _starts_connect_server():  # its master is what SPARK_REMOTE says
        own["spark.connect.grpc.binding.address"] = "127.0.0.1"  # else anybody's machine can call
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else its workers run python3
    else:
        own["spark.master"] = master
    builder = _with_delta(builder, {**LOCAL_SETTINGS, **own}, conf)
    in_file = {} if _has_jvm() else {key: conf[key] for key in conf if _is_for_file(key)}
    others = {key: conf[key] for key in conf if key not in in_file and key != _PACKAGES}
    builder = _configured(builder, others)
    # What a Connect server was started with cannot be set once more for the session.
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
    """Return the builder with those settings that `conf` does not replace, and with Delta's jar
    besides the packages that `conf` names, unless it is among the jars that this names: then nobody
    need be asked for it.
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
    """Return True if this process has a JVM already, of a session that was stopped, or of somebody
    else: settings are told to it, and are no arguments of anything.
    """
    from pyspark import SparkContext

    return getattr(SparkContext, "_gateway", None) is not None


def _is_for_file(key: str) -> bool:
    """Return True if spark-submit takes a setting from a file, and `_with_delta` does not see to
    it.
    """
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
        places: of a store or of tables; names that are ASCII are the same for both.
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

    # pyspark has no other name for it that a Connect server of our own has, too.
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    handler = jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)


def is_provided() -> bool:
    """Return True if somebody else has started, or is about to start, Spark for this process."""
    return any(name in os.environ for name in _PROVIDERS)


def starts_jvm() -> bool:
    """Return True if `open_session` starts a JVM, where no session is active."""
    return _starts_connect_server() or not is_provided()


def _starts_connect_server() -> bool:
    """Return True if pyspark starts a Connect server for this process, in a JVM of its own, which
    has no Delta by itself.
    """
    return os.environ.get("SPARK_REMOTE", "").startswith("local")


def _check_connect(remote: str) -> None:
    """Refuse to start where a package of the extra is missing (pyspark names them one by one), or
    where nobody listens: pyspark would try for ten minutes, and could not be stopped.

    Args:
        remote: `local[N]`, or `sc://HOST[:PORT]/…`.

    Raises:
        MissingExtraError: a package is missing.
        ConfigError: the port is none.
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
        # Only the host: what follows may be a token.
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
    """Return True if Spark is provided, or something could tell it of another file system: then a
    path need not be a folder of this machine.
    """
    by_java = any("-Dspark." in os.environ.get(name, "") for name in _JAVA_OPTIONS)
    by_files = any(name in os.environ for name in _SPARKS_OWN)
    return is_provided() or by_java or by_files or any(map(_MOVES_PATHS.match, conf))


def takes_paths_for_folders(master: str, conf: Mapping[str, str]) -> bool:
    """Return True if `open_session` is certain to start Spark on this machine, for which a path is
    a folder here: a store in it can be looked at before there is a session.
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


# Where Spark and Hadoop look for settings of their own, and how a JVM is given some.
_SPARKS_OWN = (
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_CLASSPATH", "PYSPARK_SUBMIT_ARGS"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# Settings of Hadoop, and what brings classes, or files of settings, into the JVM.
_MOVES_PATHS = re.compile(
    r"spark\.(hadoop|jars|archives|files|plugins|.*extra(ClassPath|JavaOptions|Listeners))\b",
    re.IGNORECASE,
)


def _with_collector(java_options: str, conf: Mapping[str, str]) -> str:
    """Options with which Java does not get two garbage collectors, for then it does not start: what
    the environment says comes before `java_options`, and that before `COLLECTOR`."""
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
    """Options of a JVM that is to take Spark's classes from the archive; empty: there is none, or
    its path has a blank, at which Spark would split the options."""
    if not CLASS_ARCHIVE.is_file() or re.search(r"\s", str(CLASS_ARCHIVE)):
        return ""
    return f"-XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _with_own_python(spark: SparkSession) -> SparkSession:
    """Local workers run this very Python: the one on PATH need not have numpy and pandas."""
    from pyspark.sql.utils import is_remote

    if is_remote() or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return spark
    if (spark.sparkContext.master or "").startswith("local"):
        spark.sparkContext.pythonExec = sys.executable
    return spark


@contextmanager
def _jvm_muted(*, muted: bool) -> Iterator[None]:
    """A JVM started here writes what it has to say (some 90 lines before the first result, most of
    them Ivy's) to a file that goes away with it; if it does not start, the error says why.  Not
    muted, it says it on standard error: standard output is for results.

    Raises:
        ConfigError: it does not start.
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
    """Until the block ends, this process and those that it starts write both standard output and
    standard error there."""
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
    """Return the cause in one line, without the names of Java's classes, and what to do."""
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
# How a JVM that ends at once, and Java's errors, say it.
_JVM_ERROR = re.compile(
    r"((?:Invalid|Unrecognized|Error occurred) .+)"
    r"|(?:: |Caused by: |Exception in thread \"[^\"]*\" )([\w.$]+(?:Exception|Error): .+)"
)


def check_java() -> str:
    """Return the version of Java, of which Spark's own message would not say that it is too old.

    Raises:
        ConfigError: naming what was found, and what to install.
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
