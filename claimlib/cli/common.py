"""The options that every command has, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

from claimlib.cli.options import (
    ColumnsOption,
    ConfigOption,
    DebugOption,
    EngineOption,
    Output,
    OutputOption,
    QuietOption,
    SparkConfOption,
    VerboseOption,
    View,
)
from claimlib.config.settings import Config, load
from claimlib.errors import RequestError


@dataclass(frozen=True, slots=True)
class Common:
    """What the common options say.

    Attributes:
        config: a TOML file; null: none.
        spark_conf: settings of Spark, each `KEY=VALUE`; null: none.
        output, columns, quiet: see `options.View`.
        verbose: whether all progress is shown, with durations.
        engine: see `settings.Engine`; None means what the settings say.
        debug: whether Spark's messages and tracebacks are shown.

    Raises:
        RequestError: both quiet and verbose.
    """

    config: Path | None
    spark_conf: Sequence[str] | None
    output: Output
    columns: str | None
    quiet: bool
    verbose: bool
    debug: bool
    engine: str | None = None

    def __post_init__(self) -> None:
        """Refuse what says two things."""
        if self.quiet and self.verbose:
            raise RequestError(
                "--quiet and --verbose cannot be combined: give one of them", option="verbose"
            )

    def view(self, columns: Mapping[str, str] | None = None, names: Sequence[str] = ()) -> View:
        """How the result is printed.

        Args:
            columns, names: see `View.check`; null: they are checked once the report is there.

        Raises:
            RequestError: a chosen column does not exist.
        """
        view = View(self.output, self.columns, quiet=self.quiet)
        if columns is not None:
            view.check(columns, names)
        return view

    def settings(self, **sections: Mapping[str, object]) -> Config:
        """The settings of the command: `load` with the options of its sections."""
        return settings_of(self.config, self.spark_conf, self.engine, **sections)


def settings_of(
    config: Path | None,
    spark_conf: Sequence[str] | None,
    engine: str | None = None,
    **sections: Mapping[str, object],
) -> Config:
    """The settings of a command with the options `--config`, `--spark-conf` and `--engine`."""
    spark = {"conf": dict(map(_setting, spark_conf))} if spark_conf else {}
    return load(config, spark=spark, execution={"engine": engine}, **sections)


_OPTIONS: Mapping[str, tuple[Any, object]] = {
    "config": (ConfigOption, None),
    "spark_conf": (SparkConfOption, None),
    "engine": (EngineOption, None),
    "output": (OutputOption, Output.TABLE),
    "columns": (ColumnsOption, None),
    "quiet": (QuietOption, False),
    "verbose": (VerboseOption, False),
    "debug": (DebugOption, False),
}


def with_common(work: Callable[..., None]) -> Callable[..., None]:
    """A command whose last parameter `common` stands for the common options: typer sees each."""
    signature = inspect.signature(work)
    hints = get_type_hints(work, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
        if name != "common"
    ]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _OPTIONS.items()
    ]

    @wraps(work)
    def command(**arguments: Any) -> None:
        values = {option.name: arguments.pop(option.name) for option in fields(Common)}
        work(**arguments, common=Common(**values))

    command.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {
        parameter.name: parameter.annotation for parameter in (*own, *shared)
    }
    del command.__wrapped__  # typer looks at the function that it is given, and not behind it
    return command


def _setting(text: str) -> tuple[str, str]:
    key, is_setting, value = text.partition("=")
    if not (is_setting and key.strip()):
        # What was given may be a secret without its key.
        raise RequestError("--spark-conf must be KEY=VALUE, as in spark.driver.memory=8g")
    return key.strip(), value
