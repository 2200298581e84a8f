"""Define the application, and the decorator that makes a function a command.

`claimlib.cli.commands` registers all commands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from importlib import metadata
from itertools import starmap
from typing import Annotated, Any, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from claimlib import __version__, process, terminal
from claimlib.config.sections import Option, OptionGroup, Section, option_of, options_of
from claimlib.errors import ConfigError

SectionOptions = Mapping[str, object]
"""The values of a section's options, by key.  The value of an option that is not given is None."""


class _Command(TyperCommand):
    """Show the options in groups in the help of a command."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options under the heading of their group."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        sections |= {group: [] for group in OptionGroup}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                sections[_heading(param)].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _heading(param: Any) -> str:
    if param.param_type_name == "argument":
        return "Arguments"
    if param.name == "help":
        return OptionGroup.OUTPUT
    return param.rich_help_panel or OptionGroup.OTHER


app = typer.Typer(
    name="claimlib",
    help="Finds and claims stalled Redis stream entries in all consumer groups at once, on Delta"
    " tables, with Spark or without.",
    epilog=f"Exit codes: {', '.join(starmap('{} {}'.format, process.MEANINGS.items()))}.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # brackets in the help are not markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_PACKAGES = {"Spark": "pyspark", "Delta": "delta-spark"}


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


def _show_versions(is_requested: bool) -> None:
    """Print the versions and end the command if --version is given."""
    if is_requested:
        versions = {name: _installed(package) for name, package in _PACKAGES.items()}
        versions["Java"] = _java()
        terminal.out(
            ", ".join([f"claimlib {__version__}", *starmap("{} {}".format, versions.items())])
        )
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_versions, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del version  # `_show_versions` has handled it


def command(example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a function a command.

    Each parameter is an argument or an option, declared in its annotation.  If a parameter is a
    dataclass, its fields are options.  If a parameter is `Annotated[SectionOptions, SECTION]`, it
    has all options of a section of the settings.

    Args:
        example: an example of the command line.  The first word is the name of the command.
    """

    def register(work: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            _call(work, values)

        parameters = list(_parameters(work))
        run.__doc__ = work.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        name = example.partition(" ")[0]
        return app.command(name, cls=_Command, epilog=f"Example: claimlib {example}")(run)

    return register


def _call(target: Callable[..., Any], values: Mapping[str, object]) -> Any:
    """Call a function or a dataclass with the values of its parameters."""

    def value_of(name: str, annotation: Any) -> object:
        if is_dataclass(annotation):
            return _call(cast("type", annotation), values)
        if (section := _section_of(annotation)) is None:
            return values[name]
        return {key: values[key] for key in options_of(section)}

    hints = get_type_hints(target, include_extras=True)
    names = inspect.signature(target).parameters
    return target(**{name: value_of(name, hints[name]) for name in names})


def _parameters(target: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a function or a dataclass in the form that typer reads."""
    hints = get_type_hints(target, include_extras=True)
    for name, parameter in inspect.signature(target).parameters.items():
        if is_dataclass(hints[name]):
            yield from _parameters(cast("type", hints[name]))
        elif (section := _section_of(hints[name])) is None:
            type_, declared = get_args(hints[name])
            yield _parameter(name, type_, declared, parameter.default)
        else:
            for key, option in options_of(section).items():
                yield _parameter(key, _type_of(option) | None, option, None)


def _type_of(option: Option) -> Any:
    if option.repeats:
        return list[str]
    return bool if option.metavar is None else str


def _section_of(annotation: Any) -> type[Section] | None:
    """Return the section whose options a parameter holds, or None if it holds no section."""
    declared = get_args(annotation)[-1]
    is_section = isinstance(declared, type) and issubclass(declared, Section)
    return declared if is_section else None


def _parameter(name: str, type_: Any, declared: Any, default: object) -> inspect.Parameter:
    if isinstance(declared, Option):
        unset = "" if declared.unset is None else f" [default: {declared.unset}]"
        declared = typer.Option(
            *(declared.names or [option_of(name)]),
            metavar=declared.metavar,
            help=declared.help + unset,
            min=declared.least,
            rich_help_panel=declared.group,
            show_default=default is not None,
        )
    annotation = Annotated[type_, declared]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
