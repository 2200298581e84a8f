"""Declare the arguments and options of several commands, and the view that prints a result.

An option of a single command is declared in the signature of the command's function.  An option
that a configuration file may have, too, is declared in `config.sections`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from claimlib.cli.app import SectionOptions
from claimlib.config.sections import (
    SPELLED,
    Option,
    OptionGroup,
    SnapshotSection,
    WritebackSection,
    XautoclaimSection,
    option_of,
    options_of,
)
from claimlib.errors import GlobError, RequestError
from claimlib.live.address import parse_address
from claimlib.report.report_model import DEFAULT_LIMIT, MOST_ROWS, choosable, resolved
from claimlib.semantics.model import parse_run_id
from claimlib.semantics.names import glob_pattern

if TYPE_CHECKING:
    from claimlib.config.settings import Config
    from claimlib.live.access import ServerAccess
    from claimlib.plans.differences import Scope


class Output(StrEnum):
    """Name the formats in which a result is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class View:
    """Hold the options that choose how a result is printed.

    Attributes:
        columns: names or headings, comma separated.  None means all.
        quiet: True to omit remarks for people.  Remarks on rows that a limit cut off stay.

    Raises:
        RequestError: columns are chosen for JSON output.
    """

    output: Output
    columns: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuse --columns if it would be ignored."""
        if self.columns is not None and self.output is Output.JSON:
            raise RequestError(
                "--columns goes with --output table, csv or jsonl: the JSON document has all",
                option="columns",
            )

    @property
    def wanted(self) -> tuple[str, ...] | None:
        """Return the chosen columns, or None for all columns."""
        if self.columns is None:
            return None
        return tuple(name.strip() for name in self.columns.split(","))

    def rows(self, limit: int | None) -> int | None:
        """Return the number of rows to show, or None for all rows.

        Args:
            limit: the value of `--limit`, or None if it is not given.

        Raises:
            RequestError: a table cannot have so many rows.
        """
        if self.output is not Output.TABLE:
            return limit
        if limit is not None and limit > MOST_ROWS:
            raise RequestError(
                f"--limit: a table has at most {MOST_ROWS:,} rows; --output json, csv or jsonl has"
                " all",
                option="limit",
            )
        return DEFAULT_LIMIT if limit is None else limit

    def check_lines(self, option: str) -> None:
        """Refuse options that have no effect on a command that prints lines instead of a report.

        Args:
            option: the option that prints lines.

        Raises:
            RequestError: --columns is given, or --output with another value than the default.
        """
        if self.output is not Output.TABLE or self.columns is not None:
            raise RequestError(
                f"{option} prints lines for another program: leave out --output and --columns",
                option="columns" if self.output is Output.TABLE else "output",
            )

    def check(self, columns: Mapping[str, str], names: Iterable[str] = ()) -> None:
        """Refuse columns that the result will not have.

        Commands that know the columns of their result call this first, before anything is written.

        Args:
            columns: the headings of the table, by column.
            names: the names of the values in the records.  If empty, they are the keys of
                `columns`.

        Raises:
            RequestError: a chosen column does not exist, or is named twice.
        """
        if self.wanted is not None:
            is_table = self.output is Output.TABLE
            resolved(
                self.wanted, columns, choosable(columns, names) if is_table else names or columns
            )


def argument(metavar: str, text: str) -> Any:
    """Return the declaration of an argument for typer."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


StoreArgument = Annotated[
    str, argument("STORE", "Location of the store: a folder, a URL (s3a://…), or catalog.schema.")
]
OneStreamArgument = Annotated[str | None, argument("STREAM", f"Name of the stream, {SPELLED}.")]
OneGroupArgument = Annotated[str | None, argument("GROUP", "Name of one of its consumer groups.")]
IdsArgument = Annotated[
    list[str] | None, argument("ID", "An entry id: ms-seq, or ms alone for ms-0.")
]
DebugOption = Annotated[
    bool, Option("Show Spark's messages, and the tracebacks of errors.", group=OptionGroup.OUTPUT)
]
RunIdOption = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        parser=parse_run_id,
        help="A name for the run. Repeating the same request under the same name changes nothing."
        " [default: a generated name]",
        show_default=False,
        rich_help_panel=OptionGroup.RUN,
    ),
]
ALL_ROWS = f"{DEFAULT_LIMIT} in a table, all in json, csv and jsonl"
LimitOption = Annotated[
    int | None,
    Option(
        "Show at most this number of rows.",
        "ROWS",
        unset=ALL_ROWS,
        least=1,
        group=OptionGroup.OUTPUT,
    ),
]
NowOption = Annotated[
    str | None,
    Option(
        "The time for which idle times are computed: ISO 8601 with a zone, as in"
        " 2026-01-01T00:00:00Z, or ms since 1970.",
        "TIME",
        unset="the time of each group's snapshot",
        group=OptionGroup.WHICH,
    ),
]
DryRunOption = Annotated[
    bool, Option("Show what would be done; change nothing.", group=OptionGroup.RUN)
]
StartOption = Annotated[str | None, options_of(XautoclaimSection)["start"]]
EndOption = Annotated[
    str | None,
    Option(
        "Where to end: ms-seq at this id, `(ms-seq` before it, + at the last entry.",
        "ID",
        unset="+",
        group=OptionGroup.WHICH,
    ),
]
IdsFromOption = Annotated[
    str | None,
    Option(
        "Instead of ID: a text file with an id per line (- for standard input; the first line may"
        " be the header id of a CSV), or a table with a column id (or id_ms and id_seq):"
        " catalog.schema.table, or a folder or file of Delta or Parquet.",
        "TABLE|FILE|-",
        group=OptionGroup.WHICH,
    ),
]
RequestsOption = Annotated[
    str | None,
    Option(
        "A table with one request per row, instead of the arguments and options of one request.",
        "TABLE",
        group=OptionGroup.WHICH,
    ),
]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Hold the options of a connection to a server.  An option that is not given is None."""

    password_file: Annotated[
        Path | None,
        Option(
            "File that contains only the password.",
            "FILE",
            unset="the environment variable REDIS_PASSWORD",
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        Option("PEM file of certificates to trust for TLS, in addition to the system's.", "FILE"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WritebackOptions:
    """Hold the options of a writeback after a run.

    `writeback` is the URL of the server, or None if the run is not written back.
    """

    writeback: Annotated[
        str | None,
        Option(
            "After the run, write it back to this server, which the store mirrors:"
            " redis://[USER@]HOST[:PORT][/DB], or rediss:// for TLS; without a password. The"
            " writeback has the same run id.",
            "URL",
            group=OptionGroup.RUN,
        ),
    ] = None
    server: ServerOptions
    extent: Annotated[SectionOptions, WritebackSection]

    def access(self, settings: Config, *, dry_run: bool) -> ServerAccess | None:
        """Return the access to the server, or None if nothing is to be written back.

        A dry run writes nothing back, but the options are checked.

        Raises:
            RequestError: an option of a writeback is given without --writeback, or the URL is not
                valid.
            SourceError: the server cannot be reached.
        """
        options = {**asdict(self.server), **self.extent}
        names = [option_of(key) for key, value in options.items() if value is not None]
        if self.writeback is None:
            if names:
                raise RequestError(
                    f"{names[0]} is for a writeback: add --writeback URL", option=names[0]
                )
            return None
        access = settings.writeback.access(
            self.writeback, self.server.password_file, self.server.ca_file
        )
        if dry_run:
            parse_address(self.writeback)  # raises an error if the URL is not valid
            return None
        access.check()
        return access


@dataclass(frozen=True, slots=True)
class ScopeOptions:
    """Choose streams and consumer groups by globs.  A glob that is not given matches all names."""

    streams: Annotated[str | None, options_of(SnapshotSection)["stream"]] = None
    groups: Annotated[str | None, options_of(SnapshotSection)["group"]] = None

    def scope(self) -> Scope:
        """Return the scope.

        Raises:
            GlobError: a glob is not valid.
        """
        from claimlib.plans.differences import Scope

        return Scope(glob_of(self.streams, "--stream"), glob_of(self.groups, "--group"))


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """Hold the options of xclaim as the user typed them.

    An option whose value is not given is None.
    """

    consumers: Annotated[list[str] | None, options_of(XautoclaimSection)["consumer"]] = None
    assign: Annotated[str | None, options_of(XautoclaimSection)["assign"]] = None
    idle: Annotated[
        str | None,
        Option(
            "Set the idle time of the claimed entries.",
            "DURATION",
            unset="0ms",
            group=OptionGroup.SET,
        ),
    ] = None
    time: Annotated[
        str | None,
        Option(
            "Set the delivery time of the claimed entries instead: ISO 8601 with a zone, as in"
            " 2026-01-01T00:00:00Z, or ms since 1970.",
            "TIME",
            group=OptionGroup.SET,
        ),
    ] = None
    retrycount: Annotated[
        int | None,
        Option(
            "Set delivery counts to NUMBER.",
            "NUMBER",
            unset="one more; unchanged with --justid",
            least=0,
            group=OptionGroup.SET,
        ),
    ] = None
    force: Annotated[
        bool,
        Option(
            "Also make entries pending that are not, if they are still in the stream. An entry"
            " acknowledged since the snapshot would be worked on twice: use it only while the"
            " group is stopped.",
            group=OptionGroup.WHICH,
        ),
    ] = False
    justid: Annotated[bool, Option("Do not change delivery counts.", group=OptionGroup.SET)] = False
    lastid: Annotated[
        str | None,
        Option("Raise the group's last delivered id to this one.", "ID", group=OptionGroup.SET),
    ] = None
    idle_rule: Annotated[str | None, options_of(XautoclaimSection)["idle_rule"]] = None
    profile: Annotated[str | None, options_of(XautoclaimSection)["profile"]] = None

    @property
    def has_chosen_consumers(self) -> bool:
        """Return True if an option chooses the consumers instead of the argument CONSUMER."""
        return self.consumers is not None or self.assign is not None


def glob_of(text: str | None, what: str) -> str:
    """Check and return the glob of an option or of an argument.

    If no glob is given, the result matches every name.

    Args:
        text: None if not given.  An empty text counts as given, because an unset variable of a
            script must not choose all names.
        what: the name of the option or of the argument, for the message.

    Raises:
        GlobError: the glob is not valid.
    """
    if text is None:
        return "*"
    try:
        glob_pattern(text)
    except GlobError as error:
        raise GlobError(f"{what}: {error.message}", glob=text) from error
    return text
