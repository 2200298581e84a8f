"""The arguments and options of the commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from claimlib.errors import RequestError
from claimlib.report.model import DEFAULT_LIMIT, MOST_ROWS, choosable, resolved
from claimlib.semantics.model import parse_run_id

_GLOB = r"Redis' glob: *, ?, [a-c]; \ takes the next character literally"
_SPELLED = r", as tables show it (a backslash twice, a byte that is not UTF-8 as \xhh)"


class Output(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class View:
    """How a result is printed, as the options say.

    Attributes:
        columns: names or headings, comma separated; null: all.
        quiet: whether remarks for people are left out.

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
        return tuple(one.strip() for one in self.columns.split(","))

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
        help="Where the tables are: a folder, a URL (s3a://…), or catalog.schema.",
        show_default=False,
    ),
]
OptionalStoreArgument = Annotated[
    str | None,
    typer.Argument(metavar="STORE", help="A store to look at as well.", show_default=False),
]
FolderOption = Annotated[
    Path,
    typer.Option(
        metavar="FOLDER",
        help="Where it leaves its two stores; those of an earlier demo are replaced.",
    ),
]
DemoEntriesOption = Annotated[
    int, typer.Option(min=120, metavar="N", help="How many stream entries it makes.")
]
OptionalUrlArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help="A server to look at as well: redis://[USER@]HOST[:PORT][/DB].",
        show_default=False,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Defaults, in TOML.", show_default=False),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        help="How to print the result: for people, or in milliseconds and plain numbers; csv and"
        " jsonl are its rows, without totals.",
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME,…",
        help="These columns only, in this order: by their headings, or as csv names them.",
        show_default=False,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", help="No progress and no remarks on stderr; errors and refusals stay."),
]
SparkConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, as often as needed; secrets belong in [spark.conf] of --config.",
        show_default=False,
    ),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show Spark's messages, and tracebacks of errors.")
]
RunIdOption = Annotated[
    str | None,
    typer.Option(
        "--run-id",
        metavar="ID",
        parser=parse_run_id,
        help="The run's name: the same one again changes nothing. [default: a new one]",
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
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit", metavar="ROWS", min=1, max=MOST_ROWS, help="How many rows to show at most."
    ),
]
GroupsLimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "--top",
        metavar="ROWS",
        min=1,
        max=MOST_ROWS,
        help=f"How many groups to show at most. [default: {DEFAULT_LIMIT}]",
        show_default=False,
    ),
]

BucketsOption = Annotated[
    int,
    typer.Option(
        "--buckets",
        metavar="NUMBER",
        min=1,
        help="Partitions of the large tables; cannot be changed later.",
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        metavar="NAME",
        help="What the store mirrors, if that is no server. [default: the first snapshot's server]",
        show_default=False,
    ),
]
PrintSqlOption = Annotated[
    bool,
    typer.Option("--print-sql", help="Print the statements that create the tables, and stop."),
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
        help="Read the payload of pending entries too. [default: fields]",
        show_default=False,
    ),
]
MaxCommandsPerSecondOption = Annotated[
    str | None,
    typer.Option(
        "--max-commands-per-second",
        metavar="NUMBER",
        help="Commands sent per second at most; a page of rows is one. [default: 500]",
        show_default=False,
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Holds the password and nothing else. [default: the variable REDIS_PASSWORD]",
        show_default=False,
    ),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="Certificates to trust for TLS, besides the system's.",
        show_default=False,
    ),
]
ConsumerOption = Annotated[
    str | None,
    typer.Option(
        "--consumer",
        metavar="NAME",
        help=f"Who gets the entries{_SPELLED}.",
        show_default=False,
    ),
]
MinIdleOption = Annotated[
    str | None,
    typer.Option(
        "--min-idle",
        metavar="DURATION",
        help="How long an entry must have been idle, with a unit (ms, s, m, h, d, w): 15m,"
        " 1h30m, 0ms.",
        show_default=False,
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="ID",
        help="The first id to look at: ms-seq, or -. [default: -]",
        show_default=False,
    ),
]
CountOption = Annotated[
    str | None,
    typer.Option(
        "--count",
        metavar="NUMBER",
        help="One page per group: claim or delete so many entries at most, and look at ten times"
        " as many. [default: all]",
        show_default=False,
    ),
]
CursorOption = Annotated[
    str | None,
    typer.Option(
        "--cursor",
        metavar="NAME",
        help="Keep under NAME where the next page begins, and begin there unless --start is given.",
        show_default=False,
    ),
]
JustidOption = Annotated[
    bool | None,
    typer.Option(
        "--justid/--no-justid",
        help="Leave delivery counts as they are. [default: no-justid]",
        show_default=False,
    ),
]
IdleRuleOption = Annotated[
    str | None,
    typer.Option(
        "--idle-rule",
        metavar="RULE",
        help="At exactly --min-idle: `documented` leaves an entry, `server` claims it."
        " [default: documented]",
        show_default=False,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="PROFILE",
        help="Which servers' behaviour: `redis-7.2` (and later, and Valkey), or `redis-7.0`."
        " [default: redis-7.2]",
        show_default=False,
    ),
]
MaxClaimsOption = Annotated[
    str | None,
    typer.Option(
        "--max-claims",
        metavar="NUMBER",
        help="Refuse a group of which more entries would be claimed. [default: no limit]",
        show_default=False,
    ),
]
MaxDeletedShareOption = Annotated[
    str | None,
    typer.Option(
        "--max-deleted-share",
        metavar="SHARE",
        help="Refuse a group of whose pending entries a larger share would be deleted: 0.05 is one"
        " in twenty. [default: no limit]",
        show_default=False,
    ),
]
OnlyFromOption = Annotated[
    str | None,
    typer.Option(
        "--only-from",
        metavar="GLOB",
        help=f"Claim only what consumers of these names own ({_GLOB}). [default: from anybody]",
        show_default=False,
    ),
]
OnlyConsumersIdleOption = Annotated[
    str | None,
    typer.Option(
        "--only-consumers-idle",
        metavar="DURATION",
        help="Claim only from consumers that got no entry for so long (no attempt, where it is not"
        " known when they got one). [default: from anybody]",
        show_default=False,
    ),
]
MaxDeliveriesOption = Annotated[
    str | None,
    typer.Option(
        "--max-deliveries",
        metavar="NUMBER",
        help="What was delivered so often goes to --parking-consumer instead, and stays there.",
        show_default=False,
    ),
]
ParkingConsumerOption = Annotated[
    str | None,
    typer.Option(
        "--parking-consumer",
        metavar="NAME",
        help="Who gets what was delivered --max-deliveries times; its delivery count stays.",
        show_default=False,
    ),
]
PolicyOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="TOML with a [[request]] per kind of group, the first that matches applies; instead"
        " of the options for one request.",
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
        metavar="INSTANT",
        help="The time to judge by: ISO 8601 with a zone, or ms since the epoch."
        " [default: that of each group's snapshot]",
        show_default=False,
    ),
]
IncrementalOption = Annotated[
    bool,
    typer.Option(
        "--incremental",
        help="Look only at entries that are due, or changed since an earlier sweep; what is pending"
        " is not counted then.",
    ),
]
AllowNoneOption = Annotated[
    bool,
    typer.Option(
        "--allow-none",
        help="Succeed also where --stream, --group or the policy match no consumer group.",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
]
StreamArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STREAM",
        help=f"One stream, by its name{_SPELLED}. [default: all]",
        show_default=False,
    ),
]
GroupArgument = Annotated[
    str | None,
    typer.Argument(metavar="GROUP", help="One consumer group of it.", show_default=False),
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
    typer.Option("--to", metavar="ID", help="The first id that the next page looks at: ms-seq."),
]
EndOption = Annotated[
    str | None,
    typer.Option(
        "--end",
        metavar="ID",
        help="The last id to show: ms-seq, or +. [default: +]",
        show_default=False,
    ),
]
RowsOption = Annotated[
    int | None,
    typer.Option(
        "--count",
        metavar="NUMBER",
        help=f"Show so many entries of the group, by id, {MOST_ROWS:,} at most at once; how many"
        " more match is said. [default: only how many there are]",
        show_default=False,
    ),
]
IdleOption = Annotated[
    str | None,
    typer.Option(
        "--idle",
        metavar="DURATION",
        help="Only entries that have been idle for so long, or longer.",
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
        help="End with 3 where an entry has been idle for so long, or longer; count such entries"
        " and consumers. [default: count those of 15m]",
        show_default=False,
    ),
]
FailOnStaleOption = Annotated[
    str | None,
    typer.Option(
        "--fail-on-stale",
        metavar="DURATION",
        help="End with 3 where the last snapshot of a group is older, at --now or now: a snapshot"
        " that no longer comes.",
        show_default=False,
    ),
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="RUN|TIME",
        help="As a run left the store (its number, or command:run_id), or the last run before an"
        " instant (ISO 8601 with a zone). [default: now]",
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
    bool, typer.Option("--lost", help="Entries that somebody else changed before RUN did.")
]
AsCommandsOption = Annotated[
    bool,
    typer.Option(
        "--as-commands",
        help="The XCLAIM and XACK commands that do on the server what RUN (an xautoclaim) did in"
        " the store, one per line for redis-cli. Review them first; nothing is sent.",
    ),
]
ClaimedOption = Annotated[bool, typer.Option("--claimed", help="Entries that RUN claimed.")]
RefusedOption = Annotated[
    bool, typer.Option("--refused", help="Groups or requests that RUN refused, and why.")
]
DeletedOption = Annotated[bool, typer.Option("--deleted", help="Entries that RUN purged.")]
IdsOption = Annotated[
    bool,
    typer.Option(
        "--ids", help="What became of each id that RUN's requests name (xclaim, xack, retire)."
    ),
]

EntriesOption = Annotated[
    str,
    typer.Option(
        "--entries",
        metavar="TABLE",
        show_default=False,
        help="The stream entries: catalog.schema.table, or a folder or file of Delta or Parquet (of"
        " this very folder: ./NAME).",
    ),
]
PendingOption = Annotated[
    str,
    typer.Option(
        "--pending",
        metavar="TABLE",
        show_default=False,
        help="The pending entries; a table as for --entries.",
    ),
]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="TABLE",
        show_default=False,
        help="The consumer groups. [default: those that are pending]",
    ),
]
ConsumersOption = Annotated[
    str | None,
    typer.Option(
        "--consumers",
        metavar="TABLE",
        show_default=False,
        help="The consumers. [default: those of the store stay]",
    ),
]
StreamsOption = Annotated[
    str | None,
    typer.Option(
        "--streams",
        metavar="TABLE",
        show_default=False,
        help="The streams, with the id range over which --entries is complete.",
    ),
]
EntriesCompleteOption = Annotated[
    bool,
    typer.Option(
        "--entries-complete",
        help="You vouch for it: --entries has exactly the ids that the streams have, so an id that"
        " it lacks was deleted.",
    ),
]
MapOption = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        help="TOML: which column is which; conf/import.example.toml. [default: all have our names]",
        show_default=False,
    ),
]
AllowEmptyOption = Annotated[
    bool | None,
    typer.Option(
        "--allow-empty",
        help="The source may have nothing, which removes all that the store has of it.",
        show_default=False,
    ),
]
MaxRemovedShareOption = Annotated[
    str | None,
    typer.Option(
        "--max-removed-share",
        metavar="SHARE",
        help="Change nothing if a larger share of the store's rows, of all streams or of one, would"
        " be removed without having been acknowledged, deleted or trimmed; 1 allows any."
        " [default: 0.5]",
        show_default=False,
    ),
]

OneStreamArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STREAM", help=f"One stream, by its name{_SPELLED}.", show_default=False
    ),
]
OneGroupArgument = Annotated[
    str | None,
    typer.Argument(metavar="GROUP", help="One consumer group of it.", show_default=False),
]
NewOwnerArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CONSUMER", help="Who gets the entries; made if missing.", show_default=False
    ),
]
IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="ms-seq, or ms for ms-0.", show_default=False),
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
        metavar="INSTANT",
        help="Set the delivery time of the claimed entries instead: ISO 8601 with a zone, or ms"
        " since the epoch.",
        show_default=False,
    ),
]
RetrycountOption = Annotated[
    int | None,
    typer.Option(
        "--retrycount",
        metavar="NUMBER",
        min=0,
        help="Set delivery counts to this. [default: one more]",
        show_default=False,
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Claim also what is not pending, if the stream has it. Never for a live group: what"
        " was acknowledged since the snapshot would come back.",
    ),
]
JustidFlag = Annotated[bool, typer.Option("--justid", help="Leave delivery counts as they are.")]
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
    str, typer.Argument(metavar="CONSUMER", help="Who is retired.", show_default=False)
]
HeirsOption = Annotated[
    list[str],
    typer.Option(
        "--to",
        metavar="NAME",
        help="Who gets its entries; of several (give it again) each in turn, by id.",
        show_default=False,
    ),
]
StreamOfGroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="STREAM", help=f"Its stream, by its name{_SPELLED}.", show_default=False
    ),
]
GroupOfConsumerArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="Its consumer group.", show_default=False)
]
