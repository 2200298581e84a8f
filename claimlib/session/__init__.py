"""Return the active Spark session, or open a new one.

Under spark-submit, on Databricks and in notebooks, Spark is already running.  Its settings
(packages, extensions, catalog) were chosen before its JVM started, and this module does not change
them.  SPARK_REMOTE may name a server to connect to.  In all other cases, this module builds a local
session with Delta.  The first time, Ivy downloads Delta's jars (about 40 MB).
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

_MIN_JAVA = 17
_JAVA_NEEDED = f"Spark needs Java {_MIN_JAVA} or newer"
_JAVA_HINT = "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
_JAVA_VERSION = re.compile(r"java\.specification\.version = (\d+)")
_PROVIDERS = ("PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE")

# conf/spark-defaults.conf has the same settings for spark-submit.  A test compares the two.
LOCAL_SETTINGS = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Spark contains a newer Hadoop client than the one that Delta depends on.  Without this
    # exclusion, Ivy would download twice as much.
    "spark.jars.excludes": (
        "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
    ),
    "spark.log.level": "ERROR",
    # Otherwise each call of a column function tells the JVM which line of Python calls it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # By default, Spark keeps the code of 100 classes that it generates.  A sweep needs more, so it
    # would compile all of them again in each run, which is slow.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.session.timeZone": "UTC",
    # The number of tasks in which VACUUM lists a table's files.  Spark's default, 10,000, is slow.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# This garbage collector is faster for large sweeps than Java's default (docs/decisions/022).
COLLECTOR = "-XX:+UseParallelGC"

# The depth of Java's stack traces is limited, because Spark converts the stack of an exception, and
# those of its causes, to text.  PySpark fetches these texts, and is slow for a text of more than
# 8 KB.  Spark also reads the stack for each job (docs/decisions/022).
SHORT_STACKS = "-XX:MaxJavaStackTraceDepth=32"

# `java_options` for a JVM with little work, for which a second compiler costs more than it saves.
# With one compiler, Java by default reserves only 48 MB for compiled code, and interprets the rest.
# So these options reserve more.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xmn1g"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)

# The file that `python -m claimlib.session.class_archive` creates.  If the packages or the version
# of Java have changed since, Java ignores the file.
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
    """Return the active session, or else a new one, by default a local one with Delta.

    If a session is active, all arguments are ignored.  If another program provides Spark
    (`is_provided`), only `app_name` and `conf` are used.

    Args:
        master: Spark's master URL.
        driver_memory: memory of the JVM, as Spark spells it (`4g`).
        shuffle_partitions: partitions after a shuffle.
        app_name: the name that Spark shows for the session.
        java_options: further options of the JVM.  Its garbage collector is `COLLECTOR`, unless
            these options, `conf` or the environment choose one, or Spark's own files may do so.
        conf: further settings of Spark, for example `spark.hadoop.fs.s3a.endpoint`.  They take
            precedence over all others.
        muted: True to hide the log of the JVM, and to shorten the stacks in its errors.  The
            errors of a query are raised in both cases.

    Raises:
        MissingExtraError: pyspark or delta-spark is not installed.  Or SPARK_REMOTE is set, and a
            package that Spark Connect needs is not installed.
        SparkUnreachableError: no server answers at SPARK_REMOTE.
        ConfigError: Java is missing or too old, Spark does not start, or the port in SPARK_REMOTE
            is not valid.
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
    settings = {
        "spark.app.name": app_name,
        "spark.driver.memory": driver_memory,
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
    }
    stack_depth = SHORT_STACKS if muted else ""
    jvm_options = (stack_depth, _with_collector(java_options, conf), archive_options())
    options = " ".join(option for option in jvm_options if option)
    if options:
        settings["spark.driver.extraJavaOptions"] = options
    if _starts_connect_server():  # then SPARK_REMOTE contains the master
        # By default, any machine can connect.
        settings["spark.connect.grpc.binding.address"] = "127.0.0.1"
        # By default, the workers of the server run the python3 on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    else:
        settings["spark.master"] = master
    builder = _with_delta(builder, {**LOCAL_SETTINGS, **settings}, conf)
    file_settings = {} if _has_jvm() else {key: conf[key] for key in conf if _is_for_file(key)}
    others = {key: conf[key] for key in conf if key not in file_settings and key != _PACKAGES}
    builder = _configured(builder, others)
    # pyspark warns that settings of a started Connect server cannot be set for the session.
    warnings_hidden = terminal.warnings_hidden("Failed to set ")
    with (
        _jvm_muted(muted=muted),
        warnings_hidden,
        settings_in_file(file_settings),
        _locale_of_python(),
    ):
        spark = builder.getOrCreate()
    _exit_when_out_of_memory()
    return _with_own_python(spark)


_PACKAGES = "spark.jars.packages"
_DELTA_JAR = re.compile(r"delta-spark[^/,]*\.jar")


def _with_delta(
    builder: SparkSession.Builder, settings: Mapping[str, str], conf: Mapping[str, str]
) -> SparkSession.Builder:
    """Return the builder with the settings that `conf` does not replace, and with Delta's package.

    Delta's package is added to the packages that `conf` names (`spark.jars.packages`).  If `conf`
    names a jar of Delta (`spark.jars`), the package is not added, because no download is needed.
    """
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError as error:
        raise MissingExtraError.for_package("spark", "delta-spark") from error
    builder = _configured(builder, {key: settings[key] for key in settings.keys() - conf.keys()})
    packages = conf.get(_PACKAGES, "")
    if _DELTA_JAR.search(conf.get("spark.jars", "")):
        return _configured(builder, {_PACKAGES: packages} if packages else {})
    named = [package for package in packages.split(",") if package]
    extra = [package for package in named if not package.startswith("io.delta:delta-spark")]
    return configure_spark_with_delta_pip(builder, extra_packages=extra)


def _configured(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _has_jvm() -> bool:
    """Return True if this process already has a JVM.

    The JVM may be that of a stopped session, or of another library.  Then pyspark sends settings
    to the running JVM, and does not pass them as arguments of a command.  So they need no file.
    """
    from pyspark import SparkContext

    return getattr(SparkContext, "_gateway", None) is not None


def _is_for_file(key: str) -> bool:
    """Return True if a setting can be passed in a file.

    spark-submit reads from a file only the settings whose names begin with `spark.`.  `_with_delta`
    sets the packages.
    """
    return key.startswith("spark.") and key != _PACKAGES


@contextmanager
def _locale_of_python() -> Iterator[None]:
    """Set a locale in which a JVM that starts in the block encodes file names as Python does.

    In the locale C, Java would encode file names as ASCII, but Python encodes them as UTF-8
    (PEP 540).
    """
    python_encoding, locale_encoding = sys.getfilesystemencoding(), locale.getencoding()
    if _codec(python_encoding) != "utf-8" or _codec(locale_encoding) == "utf-8":
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
        places: the places of a store or of tables.  Names in ASCII need no check, because Java and
            Python encode them in the same way.
    """
    from pyspark.sql.utils import is_remote

    names = [place for place in places if not place.isascii() and local_folder(place) is not None]
    if not names or is_remote():
        return
    rows = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'sun.jnu.encoding')")
    (java_encoding,) = rows.collect()[0]
    python_encoding = sys.getfilesystemencoding()
    if java_encoding is not None and _codec(java_encoding) != _codec(python_encoding):
        raise ConfigError(
            f"{names[0]} cannot be opened: Java encodes file names as {java_encoding}, Python as"
            f" {python_encoding}. Start Spark with the environment variable LC_ALL={_UTF8_LOCALE}",
            place=names[0],
        )


def _exit_when_out_of_memory() -> None:
    """Make the JVM that claimlib started exit if one of its threads runs out of memory.

    By default, Java ends only this thread.  If it is a thread of Spark's scheduler, the command
    would wait forever.
    """
    from pyspark import SparkContext

    # pyspark has no public name for the JVM that also exists if claimlib started a Connect server.
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
    """Refuse to start if a package of Spark Connect is missing, or if no server listens.

    pyspark itself would name missing packages one by one.  If no server listens, pyspark would try
    to connect for a long time, and could not be interrupted.

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
    uses_proxy = any(name.lower() in _PROXIES for name in os.environ)
    if server.scheme != "sc" or server.hostname is None or uses_proxy:
        return
    address = (server.hostname, port)
    try:
        socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise SparkUnreachableError(
            f"no Spark Connect server answers at {address[0]}:{address[1]}"
            f" ({error.strerror or error}): check SPARK_REMOTE and that the server runs, or try"
            " again"
        ) from error


_CONNECT_PORT = 15002
_CONNECT_TIMEOUT_S = 10
# If one of these variables names a proxy, gRPC connects to the proxy instead.
_PROXIES = {"grpc_proxy", "https_proxy", "http_proxy"}


def may_use_other_file_system(conf: Mapping[str, str]) -> bool:
    """Return True if, for Spark, a path may be elsewhere than in a folder of this machine.

    This is so if another program provides Spark, or if a setting may choose another file system.
    """
    has_java_options = any("-Dspark." in os.environ.get(name, "") for name in _JAVA_OPTIONS)
    has_variables = any(name in os.environ for name in _SPARKS_OWN)
    has_conf = any(map(_MOVES_PATHS.match, conf))
    return is_provided() or has_java_options or has_variables or has_conf


def reads_paths_as_local_folders(master: str, conf: Mapping[str, str]) -> bool:
    """Return True if `open_session` is certain to start Spark on this machine.

    Then a path is a folder of this machine for Spark, too.  So a store in this folder can be read
    without a session.
    """
    if may_use_other_file_system(conf) or not master.startswith("local"):
        return False
    return not _may_have_settings() and not has_session()


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


# Environment variables that lead Spark and Hadoop to settings of their own.
_SPARKS_OWN = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_CLASSPATH",
    "PYSPARK_SUBMIT_ARGS",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)
# Environment variables that contain options of a JVM.
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# Settings that may choose another file system: those of Hadoop, and those that add classes, options
# or files of settings to the JVM.
_MOVES_PATHS = re.compile(
    r"spark\.(hadoop|jars|archives|files|plugins|.*extra(ClassPath|JavaOptions|Listeners))\b",
    re.IGNORECASE,
)


def _with_collector(java_options: str, conf: Mapping[str, str]) -> str:
    """Return the options of a JVM, so that they choose at most one garbage collector.

    Java does not start with two.  If the environment chooses a collector, others are removed from
    `java_options`.  `COLLECTOR` is added unless `java_options` or `conf` choose a collector, or
    Spark's own files may choose one.
    """
    environment_options = " ".join(os.environ.get(name, "") for name in _JAVA_OPTIONS)
    chosen = _COLLECTOR_OPTION.findall(environment_options)
    if chosen:
        return _COLLECTOR_OPTION.sub(
            lambda match: match[0] if match[0] in chosen else "", java_options
        ).strip()
    default_options = str(conf.get("spark.driver.defaultJavaOptions", ""))
    if _may_have_settings() or any(map(_COLLECTOR_OPTION.search, (java_options, default_options))):
        return java_options
    return f"{COLLECTOR} {java_options}".strip()


_COLLECTOR_OPTION = re.compile(r"-XX:\+Use\w+GC\b")


def _may_have_settings() -> bool:
    """Return True if Spark's own files or environment variables may contain settings."""
    import pyspark

    has_defaults = Path(pyspark.__path__[0], "conf").exists()
    return has_defaults or any(name in os.environ for name in _SPARKS_OWN)


def archive_options() -> str:
    """Return options with which a JVM reads Spark's classes from the archive.

    Return an empty text if there is no archive, or if its path contains a blank.  Spark would split
    the options at the blank.
    """
    if not CLASS_ARCHIVE.is_file() or re.search(r"\s", str(CLASS_ARCHIVE)):
        return ""
    return f"-XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _with_own_python(spark: SparkSession) -> SparkSession:
    """Make local workers run the Python of this process, and return the session.

    By default, workers run the Python on PATH, which may lack numpy and pandas.
    """
    from pyspark.sql.utils import is_remote

    if is_remote() or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return spark
    if (spark.sparkContext.master or "").startswith("local"):
        spark.sparkContext.pythonExec = sys.executable
    return spark


@contextmanager
def _jvm_muted(*, muted: bool) -> Iterator[None]:
    """Redirect the output of a JVM that starts in the block.

    If `muted` is True, the output goes to a temporary file, because it is long, and most of it
    comes from Ivy.  If the JVM does not start, the error takes its cause from this file.  If
    `muted` is False, the output goes to standard error, because standard output is for results.

    Raises:
        ConfigError: the JVM does not start.
    """
    with tempfile.TemporaryFile() if muted else nullcontext() as log:
        try:
            with _output_redirected_to(2 if log is None else log.fileno()):
                yield
        except Exception as error:
            output = ""
            if log is not None:
                log.seek(0)
                output = log.read().decode(errors="replace")
            reason = _cause_and_remedy(output, error)
            raise ConfigError(f"Spark does not start: {reason}") from error


@contextmanager
def _output_redirected_to(target: int) -> Iterator[None]:
    """Redirect standard output and standard error to a file descriptor until the block ends.

    Processes that this process starts write there, too.
    """
    copies = {number: _copied(number) for number in (1, 2)}
    try:
        for number in copies:
            os.dup2(target, number)
        yield
    finally:
        for number, copy in copies.items():
            if copy is None:
                os.close(number)
            else:
                os.dup2(copy, number)
                os.close(copy)


def _copied(number: int) -> int | None:
    """Return a copy of a file descriptor, or None if the process was started without it."""
    try:
        return os.dup(number)
    except OSError:
        return None


def _cause_and_remedy(output: str, error: Exception) -> str:
    """Return in one line why the JVM did not start, without names of Java's classes, and a remedy.

    Args:
        output: the output of the JVM.  Empty if it is not known.
    """
    unresolved = _UNRESOLVED.search(output)
    if unresolved:
        package = re.sub("[#;]", ":", unresolved[1])
        return (
            f"the package {package} cannot be downloaded: check its name (spark.jars.packages) and"
            " the connection to Maven Central, or give Spark the jars that it needs (spark.jars)"
        )
    if _PORT_IN_USE.search(f"{output}{error}"):
        return (
            f"port {_CONNECT_PORT} is in use on this machine, by another Connect server: wait until"
            " it has ended, or use it (SPARK_REMOTE=sc://localhost)"
        )
    lines = [line.strip() for line in (*str(error).splitlines(), *output.splitlines())]
    causes = (match[match.lastindex or 0] for line in lines if (match := _JVM_ERROR.match(line)))
    cause = next(causes, None) or next(filter(None, reversed(lines)), type(error).__name__)
    cause = without_classes(cause).rstrip(".")
    return (
        f"{cause}; check its settings (--spark-conf, or [spark] of the configuration file)."
        " --debug, or open_session(muted=False) in Python, shows its full output"
    )


_PORT_IN_USE = re.compile(r"Failed to bind .*SparkConnectService")
_UNRESOLVED = re.compile(r"unresolved dependency: (\S+?): ")
# The lines that name the cause: of a JVM that ends at once (`Invalid maximum heap size: -Xmx0x`),
# and of Java's errors (`Caused by: java.net.BindException: Address already in use`).
_JVM_ERROR = re.compile(
    r"((?:Invalid|Unrecognized|Error occurred) .+)"
    r"|(?:: |Caused by: |Exception in thread \"[^\"]*\" )([\w.$]+(?:Exception|Error): .+)"
)


def check_java() -> str:
    """Return the version of Java that Spark will use.

    This is checked here, because Spark's own message does not state that Java is too old.

    Raises:
        ConfigError: Java is missing or too old.  The message states the version that was found, if
            any, and the package to install.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"  # noqa: PTH118 - may not exist
    source = f"JAVA_HOME={home}" if home else "PATH"
    if shutil.which(java) is None:
        raise ConfigError(f"{_JAVA_NEEDED}, but {source} has none: {_JAVA_HINT}", java=None)
    command = [java, "-XshowSettings:properties", "-version"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    match = _JAVA_VERSION.search(output)
    if match is None or int(match[1]) < _MIN_JAVA:
        version = match[1] if match else "an unknown version"
        raise ConfigError(
            f"{_JAVA_NEEDED}, but that of {source} is {version}: {_JAVA_HINT}", java=version
        )
    return match[1]
