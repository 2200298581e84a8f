"""The arguments and options of the commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from claimlib.errors import GlobError, RequestError
from claimlib.report.model import DEFAULT_LIMIT, MOST_ROWS, choosable, resolved
from claimlib.semantics.model import parse_run_id
from claimlib.semantics.names import glob_pattern

_GLOB = r"a Redis glob: *, ?, [a-c]; \ escapes the next character"
_SPELLED = (
    r"spelled as in the tables: a backslash is written twice, a byte that is not UTF-8 as \xhh"
)


class Output(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    JSONL = "jsonl"


class PendingView(StrEnum):
    """Select which pending entries are shown if a store mirrors a server."""

    SERVER = "server"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class View:
    """How a result is printed, as the options say.

    Attributes:
        columns: names or headings, comma separated; null: all.
        quiet: whether remarks for people are left out, but for what a limit cut off.

    Raises:
        RequestError: the columns of JSON cannot be chosen.
    """

    output: Output
    columns: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuse what would be passed over in silence."""
        if self.columns is not None and self.output is Output.JSON:
            raise RequestError(
                "--columns goes with --output table, csv or jsonl: the JSON document has all",
                option="columns",
            )

    @property
    def wanted(self) -> tuple[str, ...] | None:
        """The chosen columns; null: all."""
        if self.columns is None:
            return None
        return tuple(name.strip() for name in self.columns.split(","))

    def rows(self, limit: int | None) -> int | None:
        """Return the number of rows to show, or None for all rows.

        Args:
            limit: the value of `--limit`, or None if it is not given.

        Raises:
            RequestError: a table cannot have so many.
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
        """Refuse what would be passed over in silence where an option prints lines, no report.

        Raises:
            RequestError: another output than the default is asked for, or columns are.
        """
        if self.output is not Output.TABLE or self.columns is not None:
            raise RequestError(
                f"{option} prints lines for another program: leave out --output and --columns",
                option="columns" if self.output is Output.TABLE else "output",
            )

    def check(self, columns: Mapping[str, str], names: Iterable[str] = ()) -> None:
        """Refuse columns that the result will not have: before anything is written, where it is
        known which it has.

        Args:
            columns: of its table.
            names: of its records; empty: those of `columns`.

        Raises:
            RequestError: there is no such column, or one is named twice.
        """
        if self.wanted is not None:
            is_table = self.output is Output.TABLE
            resolved(
                self.wanted, columns, choosable(columns, names) if is_table else names or columns
            )


StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="Location of the store: a folder, a URL (s3a://…), or catalog.schema.",
        show_default=False,
    ),
]
OptionalStoreArgument = Annotated[
    str | None,
    typer.Argument(metavar="STORE", help="Also check this store.", show_default=False),
]
FolderOption = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER",
        help="Folder for its two stores; those of an earlier demo are replaced.",
    ),
]
DemoEntriesOption = Annotated[
    int, typer.Option(min=120, metavar="N", help="Number of stream entries to create.")
]
OptionalUrlArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help="Also check this server: redis://[USER@]HOST[:PORT][/DB].",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML file with Spark settings, and with defaults for snapshot, import and xautoclaim;"
        " conf/local.toml is an example.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        help="Output format. `table` is for people; json, csv and jsonl have times in milliseconds"
        " and plain numbers; csv and jsonl have only the rows, without totals.",
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME,…",
        help="Show only these columns, in this order. Name them by their headings in the table, or"
        " by their names in the CSV header.",
        show_default=False,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        help="Do not print progress and notes on stderr; errors, refusals and what a limit cut off"
        " are still printed.",
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Print on stderr how long each phase took; in a log also all progress messages,"
        " instead of one in ten seconds.",
    ),
]
SparkConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="A Spark setting; can be repeated. Put secrets in [spark.conf] of the --config file.",
        show_default=False,
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="What executes the command: `embedded` (this process, for a store in a local folder),"
        " `spark`, or `auto` (embedded where it can). [default: auto]",
        show_default=False,
    ),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show Spark's messages, and the tracebacks of errors.")
]
RunIdOption = Annotated[
    str | None,
    typer.Option(
        "--run-id",
        metavar="ID",
        parser=parse_run_id,
        help="A name for the run. Repeating the same request under the same name changes nothing."
        " [default: a generated name]",
        show_default=False,
    ),
]
StreamOption = Annotated[
    str | None,
    typer.Option(
        "--stream",
        metavar="GLOB",
        help=f"Only these streams ({_GLOB}). [default: *]",
        show_default=False,
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="GLOB",
        help=f"Only these consumer groups ({_GLOB}). [default: *]",
        show_default=False,
    ),
]
_ALL_ROWS = f"[default: {DEFAULT_LIMIT} in a table, all in json, csv and jsonl]"
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="ROWS",
        min=1,
        help=f"Show at most this number of rows. {_ALL_ROWS}",
        show_default=False,
    ),
]
RunsLimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="ROWS",
        min=1,
        help="Show at most this number of rows, or of commands. [default:"
        f" {DEFAULT_LIMIT} rows in a table; all rows in json, csv and jsonl; all commands]",
        show_default=False,
    ),
]
GroupsLimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "--top",
        metavar="ROWS",
        min=1,
        help=f"Show at most this number of groups. {_ALL_ROWS}",
        show_default=False,
    ),
]

BucketsOption = Annotated[
    int | None,
    typer.Option(
        "--buckets",
        metavar="NUMBER",
        min=1,
        help="Number of partitions of the large tables; cannot be changed later. [default: 8, or"
        " what the store has]",
    ),
]
AcceptReplacedOption = Annotated[
    bool,
    typer.Option(
        "--accept-replaced",
        help="Accept tables that were dropped and created again, or replaced by older copies, as"
        " they are now. Commands refuse them otherwise, and so does init.",
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME",
        help="A name for the source of imports, shown in reports. Leave it out for a store that"
        " snapshots fill. [default: import]",
        show_default=False,
    ),
]
PrintSqlOption = Annotated[
    bool,
    typer.Option(
        "--print-sql",
        help="Print the SQL statements that create the tables (with 8 buckets, or what --buckets"
        " says), and stop.",
    ),
]
UrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="redis://[USER@]HOST[:PORT][/DB], or rediss:// for TLS; without a password.",
        show_default=False,
    ),
]
FieldsOption = Annotated[
    bool | None,
    typer.Option(
        "--fields/--no-fields",
        help="Also read the payloads (fields) of pending entries. [default: fields]",
        show_default=False,
    ),
]
MaxCommandsPerSecondOption = Annotated[
    str | None,
    typer.Option(
        "--max-commands-per-second",
        metavar="NUMBER",
        help="Send at most NUMBER commands per second; one page of rows is one command."
        " [default: 500]",
        show_default=False,
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File that contains only the password."
        " [default: the environment variable REDIS_PASSWORD]",
        show_default=False,
    ),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="PEM file of certificates to trust for TLS, in addition to the system's.",
        show_default=False,
    ),
]
ConsumerOption = Annotated[
    str | None,
    typer.Option(
        "--consumer",
        metavar="NAME",
        help=f"The consumer that gets the entries, {_SPELLED}.",
        show_default=False,
    ),
]
MinIdleOption = Annotated[
    str | None,
    typer.Option(
        "--min-idle",
        metavar="DURATION",
        help="Claim entries that have been idle for longer than this, with a unit"
        " (ms, s, m, h, d, w): 15m, 1h30m; 0ms: no minimum.",
        show_default=False,
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="ID",
        help="Where to begin: ms-seq at this id, `(ms-seq` after it, - at the first entry."
        " [default: -]",
        show_default=False,
    ),
]
CountOption = Annotated[
    str | None,
    typer.Option(
        "--count",
        metavar="NUMBER",
        help="Process only one page per group, as XAUTOCLAIM's COUNT does: claim or delete at most"
        " NUMBER entries, and examine at most ten times as many. [default: the whole group]",
        show_default=False,
    ),
]
CursorOption = Annotated[
    str | None,
    typer.Option(
        "--cursor",
        metavar="NAME",
        help="Store under NAME where each group's next page begins, and start there unless --start"
        " is given.",
        show_default=False,
    ),
]
JustidOption = Annotated[
    bool | None,
    typer.Option(
        "--justid/--no-justid",
        help="Do not change delivery counts. [default: no-justid]",
        show_default=False,
    ),
]
IdleRuleOption = Annotated[
    str | None,
    typer.Option(
        "--idle-rule",
        metavar="RULE",
        help="What happens to an entry that has been idle for exactly --min-idle: `documented`"
        " leaves it, `server` claims it. [default: documented]",
        show_default=False,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="PROFILE",
        help="Follow the behavior of these servers: `redis-7.2` (also later versions, and Valkey),"
        " or `redis-7.0`. [default: redis-7.2]",
        show_default=False,
    ),
]
MaxClaimsOption = Annotated[
    str | None,
    typer.Option(
        "--max-claims",
        metavar="NUMBER",
        help="Refuse a group if more than NUMBER of its entries would be claimed."
        " [default: no limit]",
        show_default=False,
    ),
]
MaxDeletedShareOption = Annotated[
    str | None,
    typer.Option(
        "--max-deleted-share",
        metavar="SHARE",
        help="Refuse a group if more than this share of its pending entries would be deleted; 0.05"
        " means 5 %. [default: no limit]",
        show_default=False,
    ),
]
OnlyFromOption = Annotated[
    str | None,
    typer.Option(
        "--only-from",
        metavar="GLOB",
        help=f"Claim only entries of consumers whose names match ({_GLOB})."
        " [default: of all consumers]",
        show_default=False,
    ),
]
OnlyConsumersIdleOption = Annotated[
    str | None,
    typer.Option(
        "--only-consumers-idle",
        metavar="DURATION",
        help="Claim only from consumers that have received nothing for longer than DURATION. If"
        " that is unknown, the time they last asked for entries counts; if both are unknown, they"
        " keep their entries. [default: from all consumers]",
        show_default=False,
    ),
]
MaxDeliveriesOption = Annotated[
    str | None,
    typer.Option(
        "--max-deliveries",
        metavar="NUMBER",
        help="Give entries that were delivered NUMBER times or more to --parking-consumer instead;"
        " they stay there.",
        show_default=False,
    ),
]
ParkingConsumerOption = Annotated[
    str | None,
    typer.Option(
        "--parking-consumer",
        metavar="NAME",
        help="The consumer that gets the entries that --max-deliveries sets aside; their delivery"
        " counts do not change.",
        show_default=False,
    ),
]
PolicyOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="TOML file with one [[request]] per kind of group; each group gets the first one that"
        " matches. Replaces the options of a single request, and [xautoclaim] of the configuration"
        " (guards there are refused).",
        show_default=False,
    ),
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Show which request each group gets, and stop.")
]
NowOption = Annotated[
    str | None,
    typer.Option(
        "--now",
        metavar="TIME",
        help="The time for which idle times are computed: ISO 8601 with a zone, as in"
        " 2026-01-01T00:00:00Z, or ms since 1970. [default: the time of each group's snapshot]",
        show_default=False,
    ),
]
AllowNoneOption = Annotated[
    bool,
    typer.Option(
        "--allow-none",
        help="Succeed even if --stream, --group or the policy match no consumer group.",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
]
StreamArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STREAM",
        help=f"Name of one stream, {_SPELLED}. [default: all]",
        show_default=False,
    ),
]
GroupArgument = Annotated[
    str | None,
    typer.Argument(metavar="GROUP", help="Name of one of its consumer groups.", show_default=False),
]
StreamGlobArgument = Annotated[
    str, typer.Argument(metavar="STREAM_GLOB", help=f"Only these streams ({_GLOB}).")
]
GroupGlobArgument = Annotated[
    str, typer.Argument(metavar="GROUP_GLOB", help=f"Only these consumer groups ({_GLOB}).")
]
CursorArgument = Annotated[
    str, typer.Argument(metavar="CURSOR", help="The cursor's name.", show_default=False)
]
CursorToOption = Annotated[
    str,
    typer.Option("--to", metavar="ID", help="The first id of the next page: ms-seq."),
]
EndOption = Annotated[
    str | None,
    typer.Option(
        "--end",
        metavar="ID",
        help="Where to end: ms-seq at this id, `(ms-seq` before it, + at the last entry."
        " [default: +]",
        show_default=False,
    ),
]
RowsOption = Annotated[
    int | None,
    typer.Option(
        "--count",
        metavar="NUMBER",
        min=1,
        help=f"Show at most NUMBER entries of the group (a table has at most {MOST_ROWS:,}),"
        " ordered by id; the report says how many more match. [default: only the summary]",
        show_default=False,
    ),
]
IdleOption = Annotated[
    str | None,
    typer.Option(
        "--idle",
        metavar="DURATION",
        help="Only entries that have been idle for DURATION or longer.",
        show_default=False,
    ),
]
OwnerOption = Annotated[
    str | None,
    typer.Option(
        "--consumer", metavar="NAME", help="Only entries of this consumer.", show_default=False
    ),
]
FailOnStalledOption = Annotated[
    str | None,
    typer.Option(
        "--fail-on-stalled",
        metavar="DURATION",
        help="Exit with code 3 if an entry has been idle for DURATION or longer, or if this is not"
        " known for a group. On a store that mirrors a server, this checks the entries that the"
        " server had at the snapshot, unless --view store is given. DURATION is also the limit for"
        " the columns that count idle entries and consumers (otherwise 15m).",
        show_default=False,
    ),
]
PendingViewOption = Annotated[
    PendingView | None,
    typer.Option(
        "--view",
        metavar="server|store",
        help="On a store that mirrors a server: server shows the entries that were pending on the"
        " server at the snapshot, store shows them after the runs since then. [default: server with"
        " --fail-on-stalled, else store]",
        show_default=False,
    ),
]
FailOnStaleOption = Annotated[
    str | None,
    typer.Option(
        "--fail-on-stale",
        metavar="DURATION",
        help="Exit with code 3 if the last snapshot of a group is older than DURATION (at --now, or"
        " else now), or its time is unknown, or there was none: snapshots may have stopped.",
        show_default=False,
    ),
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="RUN|TIME",
        help="Show the store as it was after this run (its number, or command:run_id), or after the"
        " last run that had finished by this time (ISO 8601 with a zone). [default: now]",
        show_default=False,
    ),
]
RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="One run: its number, or command:run_id. [default: list all]",
        show_default=False,
    ),
]
AbandonedRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The unfinished run: its number, or command:run_id (claimlib runs lists it).",
        show_default=False,
    ),
]
LostOption = Annotated[
    bool,
    typer.Option(
        "--lost",
        help="List the entries that RUN did not change, because another writer had changed them"
        " first.",
    ),
]
AsCommandsOption = Annotated[
    bool,
    typer.Option(
        "--as-commands",
        help="Print the XCLAIM and XACK commands that repeat on the server what RUN (an xautoclaim)"
        " did in the store, one per line for redis-cli. Nothing is sent: review them, then run"
        " them.",
    ),
]
ClaimedOption = Annotated[
    bool, typer.Option("--claimed", help="List the entries that RUN claimed.")
]
RefusedOption = Annotated[
    bool, typer.Option("--refused", help="List the groups or requests that RUN refused, and why.")
]
DeletedOption = Annotated[
    bool,
    typer.Option(
        "--deleted",
        help="List the pending entries that RUN deleted, because their stream entries no longer"
        " existed.",
    ),
]
IdsOption = Annotated[
    bool,
    typer.Option(
        "--ids",
        help="Show what happened to each id named in RUN's requests (xclaim, xack, retire).",
    ),
]

EntriesOption = Annotated[
    str,
    typer.Option(
        "--entries",
        metavar="TABLE",
        show_default=False,
        help="The table of stream entries: catalog.schema.table, or a folder or file of Delta or"
        " Parquet (in the current folder: ./NAME).",
    ),
]
PendingOption = Annotated[
    str,
    typer.Option(
        "--pending",
        metavar="TABLE",
        show_default=False,
        help="The table of pending entries; given as for --entries.",
    ),
]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="TABLE",
        show_default=False,
        help="The table of consumer groups. [default: the groups that have pending entries]",
    ),
]
ConsumersOption = Annotated[
    str | None,
    typer.Option(
        "--consumers",
        metavar="TABLE",
        show_default=False,
        help="The table of consumers. [default: the store keeps its consumers]",
    ),
]
StreamsOption = Annotated[
    str | None,
    typer.Option(
        "--streams",
        metavar="TABLE",
        show_default=False,
        help="The table of streams, with the id range over which --entries is complete.",
    ),
]
EntriesCompleteOption = Annotated[
    bool,
    typer.Option(
        "--entries-complete",
        help="You guarantee that --entries has exactly the ids of the streams, so that a missing id"
        " means a deleted entry.",
    ),
]
MapOption = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        help="TOML file that maps your columns to claimlib's; conf/import.example.toml is an"
        " example. [default: the columns have claimlib's names]",
        show_default=False,
    ),
]
AllowEmptyOption = Annotated[
    bool | None,
    typer.Option(
        "--allow-empty",
        help="Accept an empty source, which removes everything that the store has from it.",
        show_default=False,
    ),
]
MaxRemovedShareOption = Annotated[
    str | None,
    typer.Option(
        "--max-removed-share",
        metavar="SHARE",
        help="Stop if more than this share of a stream, or of all streams together, would vanish"
        " from the store without a trace of why (0.5 = half; 1 = never stop). [default: 0.5]",
        show_default=False,
    ),
]

OneStreamArgument = Annotated[
    str | None,
    typer.Argument(metavar="STREAM", help=f"Name of the stream, {_SPELLED}.", show_default=False),
]
OneGroupArgument = Annotated[
    str | None,
    typer.Argument(metavar="GROUP", help="Name of one of its consumer groups.", show_default=False),
]
NewOwnerArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CONSUMER",
        help="The consumer that gets the entries; it is created if it does not exist.",
        show_default=False,
    ),
]
IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID", help="An entry id: ms-seq, or ms alone for ms-0.", show_default=False
    ),
]
IdsFromOption = Annotated[
    str | None,
    typer.Option(
        "--ids-from",
        metavar="TABLE|FILE",
        help="Instead of ID: a text file with an id per line, or a table with a column id (or id_ms"
        " and id_seq): catalog.schema.table, or a folder or file of Delta or Parquet.",
        show_default=False,
    ),
]
RequestsOption = Annotated[
    str | None,
    typer.Option(
        "--requests",
        metavar="TABLE",
        help="A table with one request per row, instead of the arguments and options of"
        " one request.",
        show_default=False,
    ),
]
IdleAfterwardsOption = Annotated[
    str | None,
    typer.Option(
        "--idle",
        metavar="DURATION",
        help="Set the idle time of the claimed entries. [default: 0ms]",
        show_default=False,
    ),
]
TimeOption = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="TIME",
        help="Set the delivery time of the claimed entries instead: ISO 8601 with a zone, as in"
        " 2026-01-01T00:00:00Z, or ms since 1970.",
        show_default=False,
    ),
]
RetrycountOption = Annotated[
    int | None,
    typer.Option(
        "--retrycount",
        metavar="NUMBER",
        min=0,
        help="Set delivery counts to NUMBER. [default: one more; unchanged with --justid]",
        show_default=False,
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Also claim entries that are not pending, if they are still in the stream. Do not use"
        " it for a group whose consumers are running: entries that were acknowledged after the"
        " snapshot would become pending again.",
    ),
]
JustidFlag = Annotated[bool, typer.Option("--justid", help="Do not change delivery counts.")]
LastIdOption = Annotated[
    str | None,
    typer.Option(
        "--lastid",
        metavar="ID",
        help="Raise the group's last delivered id to this one.",
        show_default=False,
    ),
]
RetiredArgument = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="The consumer to remove.", show_default=False)
]
RecipientsOption = Annotated[
    list[str],
    typer.Option(
        "--to",
        metavar="NAME",
        help="A consumer that gets the entries. Can be repeated: the entries are then distributed"
        " in turn, in the order of their ids.",
        show_default=False,
    ),
]
StreamOfGroupArgument = Annotated[
    str,
    typer.Argument(metavar="STREAM", help=f"The stream, {_SPELLED}.", show_default=False),
]
GroupOfConsumerArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)
]


def glob_of(text: str | None, what: str) -> str:
    """The glob of an option, or of an argument; not given, it matches every name.

    Args:
        text: null: not given.  An empty text is given: that of a script's variable that is not
            set must not be taken for everything.
        what: the option's or the argument's name.

    Raises:
        GlobError: it cannot be matched; said before Spark starts.
    """
    if text is None:
        return "*"
    try:
        glob_pattern(text)
    except GlobError as error:
        raise GlobError(f"{what}: {error.message}", glob=text) from error
    return text
