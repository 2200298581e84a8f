"""Declare the options that every command has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from claimlib.cli.app import SectionOptions
from claimlib.cli.options import DebugOption, Output, View
from claimlib.config.sections import ExecutionSection, Option, OptionGroup
from claimlib.config.settings import Config, load
from claimlib.errors import RequestError


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Hold the options for settings: a settings file, and single settings of Spark."""

    config: Annotated[
        Path | None,
        Option(
            "TOML file with Spark settings ([spark]) and defaults of options ([lock], [snapshot],"
            " [mirror], [xautoclaim], [writeback]). Each key is an option's name, as in"
            ' min_idle = "15m".',
            "FILE",
            group=OptionGroup.RUN,
        ),
    ] = None
    spark_conf: Annotated[
        list[str] | None,
        Option(
            "A Spark setting; can be repeated. Put secrets in [spark.conf] of the --config file.",
            "KEY=VALUE",
            group=OptionGroup.RUN,
        ),
    ] = None

    def settings(self, **sections: SectionOptions) -> Config:
        """Load the settings of a command (see `load`).

        Args:
            sections: the options of each section of the command, by the name of the section.
        """
        spark = {"conf": dict(map(_setting, self.spark_conf))} if self.spark_conf else {}
        return load(self.config, spark=spark, **sections)


@dataclass(frozen=True, slots=True)
class Common:
    """Hold the values of the options that all commands have.

    Raises:
        RequestError: both quiet and verbose are given.
    """

    spark: SparkOptions
    execution: Annotated[SectionOptions, ExecutionSection]
    output: Annotated[
        Output,
        typer.Option(
            help="Output format. `table` is for people; json, csv and jsonl have times in"
            " milliseconds and plain numbers; csv and jsonl have only the rows, without totals.",
            rich_help_panel=OptionGroup.OUTPUT,
        ),
    ] = Output.TABLE
    columns: Annotated[
        str | None,
        Option(
            "Show only these columns, in this order. Name them by their headings in the table, or"
            " by their names in the CSV header.",
            "NAME,…",
            group=OptionGroup.OUTPUT,
        ),
    ] = None
    quiet: Annotated[
        bool,
        Option(
            "Do not print progress and notes on stderr; errors, refusals and what a limit cut off"
            " are still printed.",
            group=OptionGroup.OUTPUT,
        ),
    ] = False
    verbose: Annotated[
        bool,
        Option(
            "Print on stderr how long each phase took; in a log also all progress messages,"
            " instead of one in ten seconds.",
            group=OptionGroup.OUTPUT,
        ),
    ] = False
    debug: DebugOption = False

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        if self.quiet and self.verbose:
            raise RequestError(
                "--quiet and --verbose cannot be combined: give one of them", option="verbose"
            )

    def view(self, columns: Mapping[str, str] | None = None, names: Sequence[str] = ()) -> View:
        """Return the view that prints the result.

        Args:
            columns, names: see `View.check`.  If `columns` is None, the chosen columns are not
                checked here.

        Raises:
            RequestError: a chosen column does not exist.
        """
        view = View(self.output, self.columns, quiet=self.quiet)
        if columns is not None:
            view.check(columns, names)
        return view

    def settings(self, **sections: SectionOptions) -> Config:
        """Load the settings of a command (see `SparkOptions.settings`)."""
        return self.spark.settings(execution=self.execution, **sections)


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not (separator and key.strip()):
        # The text is not repeated, because it may be a secret without its key.
        raise RequestError("--spark-conf must be KEY=VALUE, as in spark.driver.memory=8g")
    return key.strip(), value
