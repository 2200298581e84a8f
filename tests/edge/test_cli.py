"""The command line where no Spark is needed."""

import re

import pytest
import typer.main

import claimlib
from claimlib.testing.server_process import free_port
from tests.edge.commands import COMMANDS
from tests.edge.processes import ROOT, promptly, run_claimlib, run_python

XCLAIM = ("xclaim", "store", "s", "g", "c")
JOBS = sorted({*(ROOT / "jobs").glob("*.py")} - {ROOT / "jobs" / "airflow_dag.py"})
SWEEP = ("xautoclaim", "store", "--consumer", "c", "--min-idle", "1h")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_units_and_an_example(claimlib, command):
    said = claimlib(command, "--help")
    assert (said.code, said.err) == (0, "")
    text = " ".join(said.out.split())
    assert COMMANDS[command].unit in text
    assert f"Example: claimlib {command} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_no_file_of_a_checkout(claimlib, command):
    said = claimlib(command, "--help")
    assert not re.findall(r"\b(?:conf|docs|jobs|notebooks|tests)/\S+", said.out)


@pytest.mark.parametrize(
    ("command", "groups"),
    [
        (
            "xautoclaim",
            {
                "Which entries": "--min-idle",
                "Who gets them": "--consumer",
                "Guards": "--max-claims",
                "Options": "--password-file",
                "How to run": "--dry-run",
                "Output": "--columns",
            },
        ),
        (
            "xclaim",
            {
                "Which entries": "--ids-from",
                "Who gets them": "--assign",
                "What is set": "--retrycount",
                "Guards": "--max-age",
                "Options": "--password-file",
                "How to run": "--dry-run",
                "Output": "--columns",
            },
        ),
    ],
)
def test_help_has_the_options_in_groups(claimlib, monkeypatch, command, groups):
    monkeypatch.setenv("COLUMNS", "80")
    said = claimlib(command, "--help")
    heading, by_heading = "", {}
    for line in said.out.splitlines():
        assert len(line) <= 80
        if line.endswith(":") and not line.startswith(" "):
            heading = line.removesuffix(":")
        by_heading.setdefault(heading, []).append(line)
    assert list(by_heading) == ["", "Arguments", *groups]
    for group, option in groups.items():
        assert any(line.startswith(f"  {option}") for line in by_heading[group]), group


def test_the_first_help_lists_the_commands_and_the_exit_codes():
    said = promptly(lambda: run_claimlib("--help"))
    assert (said.returncode, said.stderr) == (0, "")
    text = " ".join(said.stdout.split())
    assert all(f" {command} " in text for command in COMMANDS)
    assert "6 done but some groups refused" in text
    assert "Finds and claims stalled Redis stream entries in all consumer groups at once" in text


def test_the_version_is_that_of_the_package(claimlib):
    from claimlib import __version__

    shown = claimlib("--version").out
    assert shown.startswith(f"claimlib {__version__}, Spark 4.")
    assert re.fullmatch(r".*, Delta 4\.[0-9.]+, Java [0-9.]+\n", shown)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("xautoclaim",), "STORE"),
        (("nonsense",), "nonsense"),
        ((*SWEEP, "--nonsense"), "--nonsense"),
        ((*SWEEP, "--min-idle", "15"), "--min-idle: '15' has no unit"),
        ((*SWEEP, "--min-idle", "-5m"), "--min-idle"),
        ((*SWEEP, "--start", "x-1"), "'x-1'"),
        ((*SWEEP, "--now", "2026-01-01T00:00:00"), "no time zone"),
        ((*SWEEP, "--stream", "[a"), "'[a'"),
        ((*SWEEP, "--group", ""), "glob"),
        (("reset-cursor", "store", ""), "the cursor's name is empty"),
        (("reset-cursor", "store", "x\udcff"), "is not valid UTF-8"),
        (("reset-cursor", "store", "a", "--stream", ""), "--stream: the glob is empty"),
        (("reset-cursor", "store", "a", "--group", ""), "--group: the glob is empty"),
        (("xpending", "store", "--stream", ""), "--stream: the glob is empty"),
        (("xpending", "store", "--group", ""), "--group: the glob is empty"),
        (("xpending", "store", "s", "g", "--stream", ""), "--stream: the glob is empty"),
        (("xpending", "store", "s", "g", "--fail-on-stale", ""), "are for the overview of all"),
        (("xpending", "store", "s", "g", "--count", "5", "--start", ""), "'' is not a valid"),
        (("xpending", "store", "s", "g", "--count", "5", "--end", ""), "'' is not a valid"),
        (("describe", "store", "", "g"), "STREAM_GLOB: the glob is empty"),
        (("describe", "store", "s", ""), "GROUP_GLOB: the glob is empty"),
        ((*SWEEP, "--idle-rule", "strict"), "--idle-rule"),
        ((*SWEEP, "--consumer", "a\\b"), "--consumer"),
        ((*SWEEP, "--limit", "0"), "--limit"),
        ((*SWEEP, "--count", "\u0665"), "option --count: must be a whole number"),
        ((*SWEEP, "--count", "1_0"), "option --count: must be a whole number"),
        ((*SWEEP, "--max-claims", "1_0"), "option --max-claims: must be a whole number"),
        ((*SWEEP, "--max-deliveries", "\u0665"), "option --max-deliveries: must be a whole number"),
        ((*SWEEP, "--max-deleted-share", "1e-1"), "option --max-deleted-share: must be a number"),
        (
            ("snapshot", "redis://h", "store", "--max-commands-per-second", "1e9"),
            "option --max-commands-per-second: must be a number",
        ),
        ((*SWEEP, "--config", "absent.toml"), "absent.toml"),
        (("xautoclaim", "store", "--min-idle", "1h"), "--consumer"),
        (("xautoclaim", "store", "--consumer", "c"), "--min-idle"),
        (
            ("xpending", "store", "s", "g", "--count", "0"),
            "'--count': must be greater than or equal to 1",
        ),
        (
            ("xpending", "store", "s", "g", "--count", "-1"),
            "'--count': must be greater than or equal to 1",
        ),
        (("runs", "store", "--claimed"), "give a RUN with --claimed: claimlib runs STORE lists"),
        (("xpending", "store", "s"), "GROUP is missing: give STREAM and GROUP"),
        (("xpending", "store", "--start", "5"), "give STREAM and GROUP too"),
        (("xpending", "store", "--consumer", "c", "--end", "5"), "give STREAM and GROUP too"),
        (("xpending", "store", "--consumer", "c", "--limit", "5"), "--count says how many entries"),
        (("xpending", "store", "--idle", "5m", "--fail-on-stale", "1h"), "leave them out"),
        (("xpending", "store", "--min-deliveries", "0"), "'--min-deliveries': must be greater"),
        (("xpending", "store", "--fields", "--max-bytes", "0"), "'--max-bytes': must be greater"),
        (("xpending", "store", "--max-bytes", "5"), "--max-bytes goes with --fields"),
        (("xpending", "store", "s", "g", "--count", "5", "--end", "x"), "'x'"),
        (("xpending", "store", "--fail-on-stalled", "5"), "'5' has no unit"),
        (("runs", "store", "1", "--claimed", "--lost"), "give only one of --claimed, --lost"),
        (("runs", "store", "1", "--ids", "--as-commands"), "only one of --ids, --as-commands"),
        ((*XCLAIM, "1-0"), "--min-idle is required"),
        ((*XCLAIM, "--min-idle", "1h"), "no ids: give them"),
        ((*XCLAIM, "--min-idle", "1h", "1-0", "--ids-from", "f"), "cannot be combined"),
        ((*XCLAIM, "--min-idle", "1h", "1-0", "x"), "'x' is not a valid stream id"),
        ((*XCLAIM, "--min-idle", "1h", "1-0", "--lastid", "-"), "'-' is not a valid stream id"),
        (
            (*XCLAIM, "--min-idle", "1h", "1-0", "--idle", "1h", "--time", "5"),
            "give only one of them",
        ),
        ((*XCLAIM, "--min-idle", "1h", "1-0", "--idle-rule", "x"), "'x' is not one of documented"),
        ((*XCLAIM, "--min-idle", "1h", "1-0", "--idle-rule", ""), "'' is not one of documented"),
        ((*XCLAIM, "--min-idle", "1h", "1-0", "--profile", ""), "'' is not one of redis-7.2"),
        ((*XCLAIM, "--min-idle", "1h", "--ids-from", ""), "--ids-from is empty (in a script"),
        ((*XCLAIM, "--min-idle", "1h", "1-0", "--ids-from", ""), "--ids-from is empty"),
        (("xclaim", "store", "--requests", ""), "--requests is empty (in a script"),
        (("xack", "store", "--requests", "t", "--ids-from", " "), "--ids-from is empty"),
        (("xack", "store", "--requests", ""), "--requests is empty"),
        (("import", "store", "--entries", "", "--pending", "p"), "--entries is empty (in a script"),
        (("import", "store", "--entries", "e", "--pending", ""), "--pending is empty"),
        (
            ("import", "store", "--entries", "e", "--pending", "p", "--streams", ""),
            "--streams is empty",
        ),
        ((*SWEEP, "--count", "5", "--cursor", ""), "the cursor's name is empty"),
        ((*SWEEP, "--count", "5", "--cursor", "x\udcff"), "is not valid UTF-8: give a name"),
        (
            ("xpending", "store", "s", "g", "--count", "5", "--consumer", ""),
            "--consumer is empty (in a script",
        ),
        ((*XCLAIM, "1-0", "--requests", "t"), "--requests cannot be combined"),
        (("xclaim", "store", "--requests", "t", "--force"), "--requests cannot be combined"),
        (("xclaim", "store", "s", "g"), "missing argument CONSUMER;"),
        (("xclaim", "store", "--requests", "t", "--consumer", "c"), "--requests cannot be comb"),
        ((*XCLAIM, "--min-idle", "1m", "--consumer", "b"), "'c' is not a valid stream id"),
        (("xack", "store", "s"), "missing argument GROUP;"),
        (("xack", "store"), "missing arguments STREAM GROUP;"),
        (("xack", "store", "s", "g"), "no ids: give them"),
        (("xack", "store", "s", "g", "1-0-0"), "'1-0-0' is not a valid stream id"),
        (("retire", "store", "s", "g", "c"), "--to"),
        (
            ("retire", "store", "s", "g", "c", "--to", "c"),
            "--to must name at least one other consumer",
        ),
        (("retire", "store", "s", "g", "c", *["--to", "d"] * 2), "and each only once"),
        (("runs", "store", "--ids"), "give a RUN with --ids"),
        ((*SWEEP, "--limit", "x"), "'--limit': must be a whole number; see --help"),
        (("init", "store", "--buckets", "0"), "--buckets"),
        (("snapshot", "http://localhost", "store"), "redis://"),
        (("snapshot", "redis://u:sesame@localhost", "store"), "REDIS_PASSWORD"),
    ],
)
def test_a_request_that_cannot_be_used_ends_with_2_and_names_what_is_wrong(
    claimlib, arguments, named
):
    said = claimlib(*arguments)
    assert (said.code, said.out) == (2, "")
    assert named in said.err
    assert "Traceback" not in said.err
    assert "sesame" not in said.err


def test_an_unknown_config_key_ends_with_2_and_names_key_and_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[xautoclaim]\nmin_idel = "1h"\n')
    said = run_claimlib(*SWEEP, "--config", file)
    assert (said.returncode, said.stdout) == (2, "")
    assert f"xautoclaim.min_idel in {file}" in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_a_server_that_is_not_there_ends_with_75_before_spark_starts(tmp_path):
    (tmp_path / "streams" / "_delta_log").mkdir(parents=True)
    said = run_claimlib("snapshot", "redis://127.0.0.1:1/0", tmp_path)
    assert (said.returncode, said.stdout) == (75, "")
    assert said.stderr.startswith("claimlib: error: 127.0.0.1:1/0 cannot be reached")


def test_the_statements_that_create_a_store_can_be_had_without_spark():
    said = run_claimlib("init", "main.streams", "--print-sql")
    assert said.returncode == 0
    assert "CREATE TABLE IF NOT EXISTS `main`.`streams`.`pending`" in said.stdout


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import sys; sys.argv[1:] = ['runs', 's']; from claimlib.cli import main; main()", "cli"),
        ("from claimlib.config import settings", "spark"),
        ("from claimlib import session; session.open_session()", "spark"),
    ],
)
def test_without_an_extra_the_error_names_it(code, extra):
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    said = run_python("-I", "-S", "-c", start)
    assert said.returncode != 0
    assert f"pip install 'PATH[{extra}]'" in said.stderr.splitlines()[-1]


def test_the_extra_cli_alone_is_enough_for_help():
    """Hide other packages, because only `make test-environments` installs this extra alone."""
    others = ("deltalake", "duckdb", "jinja2", "numpy", "pandas", "pyarrow", "pyspark", "redis")
    hide = f"import sys; sys.modules.update(dict.fromkeys({others}))"
    said = run_python(
        "-c", f"{hide}; from claimlib.cli import main; sys.argv[1:] = ['--help']; main()"
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert "Commands:" in said.stdout


def test_without_what_spark_connect_needs_the_error_names_its_extra(tmp_path):
    start = tmp_path / "claimlib.py"  # a file: pyspark takes a `python -c` for its own doctests
    start.write_text(
        "import sys; sys.modules['grpc_status'] = None; sys.path.pop(0)\n"
        "from claimlib.cli import main; main()\n",
        encoding="utf-8",
    )
    said = run_python(start, "init", tmp_path / "store", SPARK_REMOTE="sc://127.0.0.1:1")
    assert said.returncode == 2
    assert said.stderr.splitlines()[-1] == (
        "claimlib: error: grpc_status is not installed:"
        " pip install 'PATH[connect]', where PATH is claimlib's checkout or wheel"
    )


def test_a_connect_server_that_is_not_there_ends_with_75_at_once(tmp_path):
    where = f"127.0.0.1:{free_port()}"
    said = run_claimlib("init", tmp_path / "store", SPARK_REMOTE=f"sc://{where}/;user_id=me")
    assert said.returncode == 75
    assert said.stderr.splitlines()[-1] == (
        f"claimlib: error: no Spark Connect server answers at {where} (Connection refused):"
        " check SPARK_REMOTE and that the server runs, or try again"
    )


def test_a_port_of_spark_remote_that_is_none_is_refused_without_its_token(tmp_path):
    said = run_claimlib("init", tmp_path / "store", SPARK_REMOTE="sc://h:1500x/;token=s3cret")
    assert said.returncode == 2
    assert said.stderr.splitlines()[-1].startswith(
        "claimlib: error: the port of SPARK_REMOTE is no number from 0 to 65535 (host h)"
    )
    assert "s3cret" not in said.stderr


def test_python_can_start_the_command_line_as_a_module():
    said = promptly(lambda: run_python("-m", "claimlib", "--version"))
    assert said.returncode == 0
    assert said.stdout.startswith(f"claimlib {claimlib.__version__}, ")


def test_every_command_that_may_start_spark_takes_settings_for_it():
    from claimlib.cli.commands import app

    commands = typer.main.get_command(app).commands
    without = {
        name
        for name, command in commands.items()
        if not any("--spark-conf" in parameter.opts for parameter in command.params)
    }
    assert without == {"demo"}  # its Spark and its stores are its own


@pytest.mark.parametrize("script", JOBS, ids=lambda script: script.stem)
def test_each_job_is_thin_and_refuses_bad_arguments_with_2(job, script):
    assert len(script.read_text(encoding="utf-8").splitlines()) < 50
    said = job(script.stem, "--nonsense")
    assert (said.code, said.out) == (2, "")


def test_a_job_without_a_unit_ends_with_2_in_one_line():
    said = run_python(ROOT / "jobs" / "xautoclaim.py", "s", "--consumer", "c", "--min-idle", "15")
    assert said.returncode == 2
    assert "'15' has no unit" in said.stderr
    assert len(said.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("store", "s", "g", "c", "--min-idle", "15", "1-0", "2-0"),
        ("store", "--min-idle", "15", "s", "g", "c", "1-0"),
        ("store", "s", "g", "c", "1-0", "--min-idle", "15", "--force"),
    ],
)
def test_a_job_takes_options_between_its_arguments_as_the_command_does(words):
    said = run_python(ROOT / "jobs" / "xclaim.py", *words)
    assert said.returncode == 2
    assert "'15' has no unit" in said.stderr
