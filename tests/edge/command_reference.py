"""`python -m tests.edge.command_reference` writes docs/commands.md from the commands themselves."""

from __future__ import annotations

from enum import Enum
from typing import Any

import typer.main

from claimlib.cli.commands import app
from tests.edge.commands import COMMANDS
from tests.edge.documents import ROOT

FILE = ROOT / "docs" / "commands.md"
_HEAD = """\
# Commands and options

<!-- Generated: do not edit. `python -m tests.edge.command_reference` writes this file. -->

The text below is that of `claimlib COMMAND --help`. Each command is also a script for
`spark-submit` with the same arguments and options: `jobs/COMMAND.py`{}.

An option wins over the environment variable `CLAIMLIB_<SECTION>__<KEY>`
(`CLAIMLIB_XAUTOCLAIM__MIN_IDLE=1h`), the variable over the file that `--config` names, and the file
over the default. `conf/local.toml` shows every key of such a file. A key that does not exist is
refused, and so is a variable `CLAIMLIB_…` that names no key, in upper or lower case.

Results go to stdout, progress and errors to stderr. The
[exit codes](../README.md#exit-codes) are in the README.
"""
_FOR_NO_STORE = ("doctor", "demo")
_Row = tuple[str, str]


def reference() -> str:
    """The whole file."""
    group: Any = typer.main.get_command(app)
    commands: dict[str, Any] = group.commands
    told = {name: [_row(param) for param in command.params] for name, command in commands.items()}
    # What all commands have but those that are for no store in particular.
    common = [
        row
        for row in next(iter(told.values()))
        if sum(row in rows for rows in told.values()) >= len(told) - len(_FOR_NO_STORE)
    ]
    without = [name for name in commands if not (ROOT / "jobs" / f"{name}.py").is_file()]
    missing = f" (except {', '.join(f'`{name}`' for name in without)})" if without else ""
    parts = [
        _HEAD.format(missing),
        "## Common arguments and options\n",
        _table(common),
        *(
            f"## {name}\n\n{_usage(name, command)}\n\n{_about(command)}"
            f" More: [{COMMANDS[name].guide}]({COMMANDS[name].guide}).\n\n"
            + _table([row for row in told[name] if row not in common])
            + _without([row for row in common if row not in told[name]], told[name])
            for name, command in commands.items()
        ),
    ]
    return "\n".join(parts).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


def _usage(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words = [
        (param.metavar if param.required else f"[{param.metavar}]") + "..." * (param.nargs == -1)
        for param in arguments
    ]
    return f"`claimlib {' '.join((name, *words))} [OPTIONS]`"


def _about(command: Any) -> str:
    return " ".join(command.help.split())


def _without(missing: list[_Row], told: list[_Row]) -> str:
    names = [f"`{_escaped(name)}`" for name, _ in missing if name not in dict(told)]
    return f"\nIt has no {', '.join(names)}.\n" if names else ""


def _row(param: Any) -> _Row:
    if param.param_type_name == "argument":
        return param.metavar, _cell(param.help)
    value = "" if param.is_flag else f" {param.metavar or '|'.join(map(str, type(param.default)))}"
    names = ", ".join(f"{name}{value}" for name in (*param.opts, *param.secondary_opts))
    default = param.default.value if isinstance(param.default, Enum) else param.default
    is_told = param.show_default is False or param.is_flag or default is None
    about = _cell(param.help) + (" Required." if param.required else "")
    return names, about + ("" if is_told else f" [default: {default}]")


def _cell(text: str) -> str:
    return " ".join(text.split())


def _table(rows: list[_Row]) -> str:
    if not rows:
        return ""
    lines = [f"| `{_escaped(name)}` | {_escaped(about)} |\n" for name, about in rows]
    return "| argument or option | what it does |\n|---|---|\n" + "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("|", r"\|").replace("*]", r"\*]").replace("][", r"]\[")


if __name__ == "__main__":
    FILE.write_text(reference(), encoding="utf-8")
