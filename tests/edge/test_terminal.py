"""What is printed holds nothing that a terminal would act on, and one place prints it."""

import ast
import fcntl
import io
import json
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata
from functools import partial

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from claimlib import process, terminal
from claimlib.cli.options import Output, View
from claimlib.cli.output import show
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.report.report_model import Report
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.edge.processes import ROOT

EVERY_CHARACTER = "".join(map(chr, range(sys.maxunicode + 1)))
# Controls, formats, surrogates, separators of lines and paragraphs.
DANGEROUS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
TEXTS = st.text(st.characters(exclude_categories=[])) | st.text("\x1b\x07\x9b\u202e\ud800\n\r\\ué[")


def is_dangerous(character):
    return unicodedata.category(character) in DANGEROUS and character != "\n"


def decoded(shown):
    """What a text stands for whose backslashes all write out a character."""
    written = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
    return written.sub(lambda match: chr(int(match[1] or match[2], 16)), shown)


def test_of_all_of_unicode_only_what_a_terminal_would_act_on_or_not_show_is_written_out():
    shown = terminal.harmless(EVERY_CHARACTER)
    assert not any(map(is_dangerous, set(shown)))
    assert decoded(shown) == EVERY_CHARACTER
    written = set(EVERY_CHARACTER) - set(shown)
    # Besides what is dangerous: wide spaces, private characters, and what is not assigned.
    assert set(map(unicodedata.category, written)) == {*DANGEROUS, "Zs", "Co", "Cn"}


@given(TEXTS)
def test_lines_stay_lines_and_all_else_that_is_dangerous_is_written_out(text):
    shown = terminal.harmless(text)
    assert not any(map(is_dangerous, shown))
    assert shown.count("\n") == text.count("\n")
    assert terminal.harmless(shown) == shown
    assert decoded(terminal.harmless(text.replace("\\", ""))) == text.replace("\\", "")
    line = terminal.one_line(text)
    assert line == terminal.harmless(text).replace("\n", r"\u000a")


def _of_json(texts):
    return st.dictionaries(texts, texts) | st.lists(texts)


@given(_of_json(TEXTS.filter(lambda text: not re.search("[\ud800-\udbff][\udc00-\udfff]", text))))
@example({"\x1b": "\\\x1b", "\U000e0041": "\udc9b\n"})
def test_json_is_harmless_and_has_the_same_value(document):
    for indent in (None, 2):
        shown = terminal.harmless_json(json.dumps(document, indent=indent, ensure_ascii=False))
        assert not any(map(is_dangerous, shown))
        assert json.loads(shown) == document


def test_a_console_moves_the_cursor_itself_and_lets_no_text_do_so():
    evil = "\x1b]0;owned\x1b[2J\x9b31m\u202e\ud800"
    file = io.StringIO()
    console = terminal.console(file)
    console._force_terminal = True
    console._color_system = None
    console.width = 200
    table = Table(evil, title=evil)
    table.add_row(Text(evil, "bold"))
    console.print(table)
    console.print(evil, Text(evil))
    console.rule(evil)
    with console.status(evil) as status:
        status.update(f"{evil}2")
    said = file.getvalue()
    # Rich's own: colors, and to erase and rewrite the line of the status.
    rest = re.sub(r"\x1b\[(\??[0-9;]*)[mAKhl]|\r", "", said)
    assert "\x1b[" in said
    assert not any(map(is_dangerous, rest)), ascii(rest)
    assert rest.count(r"\u001b]0;owned\u001b[2J\u009b31m\u202e\ud800") >= 4


def test_what_others_print_while_a_process_works_is_harmless_too(capsys):
    evil = "\x1b[2J\udc9b"

    def work():
        logging.StreamHandler(sys.stderr).emit(logging.makeLogRecord({"msg": evil}))
        typer.echo(evil, err=True)
        print(evil)
        sys.stdout.writelines([evil, "\n"])
        return process.DONE

    assert process.ending(work) == process.DONE
    said = capsys.readouterr()
    assert said.out == "\\u001b[2J\\udc9b\n" * 2
    assert said.err.count(r"\udc9b") == 2
    assert not any(map(is_dangerous, said.err))
    assert "rich_proxied_file" not in vars(sys.stdout)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_that_the_encoding_of_the_output_lacks_is_an_escape_and_json_stays_json(
    encoding, monkeypatch
):
    name = "café заказы 🚚"
    report = Report(
        name, {"stream": "stream"}, ((name,),), (), {"stream": name}, [{"stream": name}]
    )

    def work(output):
        show(report, View(output, None, quiet=False))
        terminal.say(name)
        return process.STALLED

    said = {}
    for output in Output:
        written = [io.BytesIO(), io.BytesIO()]
        with monkeypatch.context() as patched:
            streams = [io.TextIOWrapper(buffer, encoding=encoding) for buffer in written]
            patched.setattr(sys, "stdout", streams[0])
            patched.setattr(sys, "stderr", streams[1])
            code = process.ending(partial(work, output))
        assert code == process.STALLED
        assert [stream.errors for stream in streams] == ["strict", "strict"]
        out, err = (buffer.getvalue().decode(encoding) for buffer in written)
        assert json.loads(f'"{err.removeprefix("claimlib: ").rstrip()}"') == name
        said[output] = out
    assert json.loads(said[Output.JSON]) == json.loads(said[Output.JSONL]) == {"stream": name}
    assert json.loads(f'"{said[Output.CSV].splitlines()[1]}"') == name
    assert json.loads(f'"{said[Output.TABLE].splitlines()[0]}"') == name


def test_what_is_said_to_people_is_one_line_for_each_text(capsys):
    terminal.say("a key\nand more", "\x1b")
    assert capsys.readouterr().err == "claimlib: a key\\u000aand more\nclaimlib: \\u001b\n"


def test_an_error_is_one_line_whatever_it_repeats(capsys):
    def work():
        raise process.ClaimlibError("key a\r\x85\u2028b\x1cc is\n  wrong")

    process.ending(work)
    assert capsys.readouterr().err == (
        "claimlib: error: key a\\u000d\\u0085\\u2028b\\u001cc is wrong\n"
    )


# ------------------------------------------------------------------- the one place

ALLOWED_OF_RICH = {"rich.box", "rich.cells", "rich.table", "rich.text", "rich.status"}
PRINTING_MODULES = {"logging", "warnings", "pprint", "rich", "curses", "getpass", "click"}
PRINTING_NAMES = {"print", "echo", "secho", "print_exc", "print_exception", "print_stack"}
SWEEP = ("--consumer", "c", "--min-idle", "1m")
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}


def executed(tree):
    """The nodes of a syntax tree, without those for type checkers only."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from executed(child)


def other_ways_to_print(tree):
    """What in a syntax tree prints, or gets hold of a stream or a console; types alone do not."""
    for node in executed(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module="warnings", names=[ast.alias(name="filterwarnings")]):
                continue  # it keeps others from printing
            case ast.ImportFrom(module=module, names=names):
                modules = [module or ""]
                yield from (
                    f"{module}.{alias.name}"
                    for alias in names
                    if alias.name in PRINTING_NAMES | (STREAMS if module == "sys" else set())
                )
            case ast.Name(id=name) if name in PRINTING_NAMES:
                yield name
                continue
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                is_stream = (owner == "sys" and name in STREAMS) or (owner, name) == ("os", "write")
                if is_stream or name in PRINTING_NAMES - {"print"}:  # only consoles have `print`
                    yield f"{owner}.{name}"
                continue
            case _:
                continue
        yield from (
            name
            for name in modules
            if name.partition(".")[0] in PRINTING_MODULES and name not in ALLOWED_OF_RICH
        )


def sources():
    files = [*(ROOT / "claimlib").rglob("*.py"), *(ROOT / "jobs").glob("*.py")]
    return sorted(files)


def test_no_other_module_and_no_job_prints():
    assert len(sources()) > 100
    printing = {
        str(path.relative_to(ROOT)): ways
        for path in sources()
        if path.name != "terminal.py"
        if (ways := sorted(set(other_ways_to_print(ast.parse(path.read_text(encoding="utf-8"))))))
    }
    assert printing == {}, "print by claimlib.terminal, so that texts of others are harmless"


@pytest.mark.parametrize(
    "line",
    [
        "print(1)",
        "def f():\n    print(1)",
        "show = print",
        "typer.echo(1)",
        "typer.secho(1)",
        "sys.stdout.write('')",
        "sys.stderr.writelines([])",
        "file = sys.__stderr__",
        "from sys import stderr",
        "from typer import echo",
        "from builtins import print",
        "import rich",
        "from rich import print",
        "from rich.console import Console",
        "import logging",
        "import warnings",
        "from warnings import filterwarnings, warn",
        "traceback.print_exc()",
        "from traceback import print_exc",
        "os.write(2, b'')",
    ],
)
def test_the_walk_sees_other_ways_to_print(line):
    assert list(other_ways_to_print(ast.parse(line)))


def test_the_walk_sees_the_one_place():
    tree = ast.parse((ROOT / "claimlib" / "terminal.py").read_text(encoding="utf-8"))
    assert {"print", "sys.stdout", "sys.stderr"} <= set(other_ways_to_print(tree))


def test_a_stream_that_is_closed_before_or_meanwhile_ends_nothing(monkeypatch):
    closed, open_ = io.StringIO(), io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    monkeypatch.setattr(sys, "stderr", open_)

    def work():
        print("nobody reads it")
        open_.close()
        return 3

    assert process.ending(work) == 3


def test_on_a_terminal_lines_on_stderr_break_between_words(tmp_path):
    controller, of_process = pty.openpty()
    fcntl.ioctl(of_process, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    words = [sys.executable, "-m", "claimlib", "check", tmp_path / "absent"]
    subprocess.run(words, cwd=ROOT, stderr=of_process, check=False)
    os.close(of_process)
    lines = os.read(controller, 10_000).decode().replace("\r", "").splitlines()
    os.close(controller)
    assert lines[0].startswith("claimlib: error: no store at")
    assert len(lines) > 1
    assert " ".join(lines).endswith(f"create it with: claimlib init {tmp_path}/absent")
    assert all(len(line) <= 50 or " " not in line for line in lines)


def test_elsewhere_a_message_on_stderr_is_one_line(capsys):
    terminal.say("word " * 100)
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "{store}", "1", "--as-commands"),
        ("runs", "{store}", "1", "--claimed", "--output", "csv"),
        ("xautoclaim", "{store}", *SWEEP, "--explain", "--output", "csv"),
    ],
    ids=lambda words: words[-1],
)
def test_what_goes_into_a_file_is_the_same_where_stderr_is_a_terminal(store, tmp_path, words):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST))
    command = [
        word.format(store=store.where) for word in (sys.executable, "-m", "claimlib", *words)
    ]
    controller, of_process = pty.openpty()
    with (tmp_path / "result").open("w+b") as result:
        environment = {**os.environ, "TERM": "xterm"}
        done = subprocess.run(
            command, cwd=ROOT, stdout=result, stderr=of_process, env=environment, check=False
        )
        result.seek(0)
        on_terminal = result.read()
    os.close(of_process)
    os.close(controller)
    plain = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert (done.returncode, on_terminal) == (0, plain.stdout)
    assert plain.stdout
