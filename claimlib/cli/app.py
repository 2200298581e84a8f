"""The application: what all commands have in common.  `claimlib.cli.commands` has all of them."""

from __future__ import annotations

from importlib import metadata
from itertools import starmap
from typing import Annotated

import typer

from claimlib import __version__, process, terminal
from claimlib.errors import ConfigError

app = typer.Typer(
    name="claimlib",
    help="Finds and claims stalled Redis stream entries in all consumer groups at once, with Spark"
    " on Delta tables.",
    epilog=f"Exit codes: {', '.join(starmap('{} {}'.format, process.MEANINGS.items()))}.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # brackets stand for themselves in the help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_WORKED_WITH = {"Spark": "pyspark", "Delta": "delta-spark"}


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _java() -> str:
    from claimlib.session import check_java

    try:
        return check_java()
    except ConfigError:
        return "too old or not installed"


def _version(wanted: bool) -> None:
    if wanted:
        versions = {name: _installed(package) for name, package in _WORKED_WITH.items()}
        versions["Java"] = _java()
        terminal.out(
            ", ".join([f"claimlib {__version__}", *starmap("{} {}".format, versions.items())])
        )
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
