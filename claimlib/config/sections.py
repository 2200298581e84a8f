"""Define the sections of the settings, which declare each key once, as a field.

    count: Annotated[_Count | None, Option("Process …", "NUMBER", unset="the whole group")] = None

The field defines the key `count` of the section in a file, the variable CLAIMLIB_<SECTION>__COUNT,
and the option --count of the section's commands.  Its type states the unit and the range.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from claimlib.errors import MissingExtraError, RequestError
from claimlib.places import check_no_secret
from claimlib.semantics.ids import MIN_ID, parse_range_start
from claimlib.semantics.model import (
    DEFAULT_MAX_REMOVED_SHARE,
    MAX_I64,
    AutoclaimRequest,
    Guards,
    IdleRule,
    Profile,
    RemovalLimits,
)
from claimlib.semantics.names import glob_pattern, unspell
from claimlib.times import parse_duration_ms

try:
    from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
    from pydantic.fields import FieldInfo
    from pydantic_settings import NoDecode
except ImportError as error:
    raise MissingExtraError.for_package("spark", "pydantic") from error

if TYPE_CHECKING:
    from claimlib.commands.snapshot import SnapshotRequest
    from claimlib.commands.xautoclaim import SweepRequest
    from claimlib.live.access import ServerAccess
    from claimlib.live.reading import ServerReading

GLOB = r"a Redis glob: *, ?, [a-c]; \ escapes the next character"
SPELLED = (
    r"spelled as in the tables: a backslash is written twice, a byte that is not UTF-8 as \xhh"
)


class OptionGroup(StrEnum):
    """Name a heading above options in the help.  The headings are in this order."""

    WHICH = "Which entries"
    WHO = "Who gets them"
    SET = "What is set"
    GUARDS = "Guards"
    OTHER = "Options"
    RUN = "How to run"
    OUTPUT = "Output"


@dataclass(frozen=True, slots=True)
class Option:
    """Describe an option of the command line.

    Attributes:
        help: the effect of the option, with units.
        metavar: the placeholder of its value in the help.  None for a switch, which has no value.
        unset: the default in words.  None if the help does not state the default.
        names: the names as they are typed.  If empty, the name follows from the key.
        least: the smallest number that is accepted, or None if there is no minimum.
        repeats: True if the option can be repeated.
        group: the heading above the option in the help.
    """

    help: str
    metavar: str | None = None
    unset: str | None = None
    names: tuple[str, ...] = ()
    least: int | None = None
    repeats: bool = False
    group: OptionGroup = OptionGroup.OTHER


def option_of(key: str) -> str:
    """Return the name of a key's option."""
    return f"--{key.replace('_', '-')}"


def options_of(section: type[Section]) -> dict[str, Option]:
    """Return the options of a section by key, complete with their names and defaults."""
    return {
        key: _completed(option, key, field.default)
        for key, field in keys_of(section).items()
        for option in field.metadata
        if isinstance(option, Option)
    }


def _completed(option: Option, key: str, default: object) -> Option:
    """Return the option with its names, and with the default of its key in words."""
    if option.names:
        return option
    if option.metavar is None:
        names = (f"{option_of(key)}/--no-{key}",)
        return replace(option, names=names, unset=key if default else f"no-{key}")
    unset = option.unset if default is None else str(default)
    return replace(option, names=(option_of(key),), unset=unset)


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section, in order, by their keys in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _duration_ms(value: object) -> int:
    try:
        return parse_duration_ms(str(value))
    except RequestError as error:
        raise ValueError(error.message) from error


def _wait_ms(value: object) -> int:
    """Return a duration in ms.  0 needs no unit."""
    return 0 if str(value) == "0" else _duration_ms(value)


def _name(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004 - pydantic reports ValueErrors
    try:
        return unspell(value)
    except RequestError as error:
        raise ValueError(error.message) from error


def _names(value: object) -> tuple[bytes, ...]:
    names = value if isinstance(value, (list, tuple)) else [value]
    if not names:
        raise ValueError("must have at least one name")
    return tuple(map(_name, names))


def live_ms(value: object) -> int:
    """Return the duration of `live:DURATION`, or 0 for `live` without a duration.

    Raises:
        ValueError: the text has another form, or the duration is not longer than 0ms.
    """
    word, has_duration, duration = str(value).partition(":")
    if word != "live":
        raise ValueError("must be live or live:DURATION, as in live:5m")
    within_ms = _duration_ms(duration) if has_duration else 0
    if has_duration and not within_ms:
        raise ValueError("the duration of live must be longer than 0ms")
    return within_ms


def _whole_number(value: object) -> int:
    """Return a whole number from a file, or from a text of digits.

    A boolean and 5.0 are refused.
    """
    if isinstance(value, str) and re.fullmatch("-?[0-9]{1,19}", value):
        return int(value)
    if type(value) is not int:
        raise ValueError("must be a whole number")
    return value


def _number(value: object) -> float:
    """Return a number from a file, or from a text of digits with or without a decimal point."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}(?:\.[0-9]{1,19})?", value):
        return float(value)
    if type(value) is not int and type(value) is not float:
        raise ValueError("must be a number, as in 500 or 0.5")
    return value


def _usable_by(use: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that accepts each value with which `use` raises no RequestError.

    The value stays as it is.
    """

    def check(value: Any) -> Any:
        try:
            use(value)
        except RequestError as error:
            raise ValueError(error.message) from error
        return value

    return AfterValidator(check)


_Duration = Annotated[int | None, BeforeValidator(_duration_ms)]
_Wait = Annotated[int | None, BeforeValidator(_wait_ms)]
_Name = Annotated[bytes | None, BeforeValidator(_name)]
# The value of a variable is one name.  It is not parsed, because a name may look like JSON.
_Names = Annotated[tuple[bytes, ...] | None, BeforeValidator(_names), NoDecode]
_Live = Annotated[int | None, BeforeValidator(live_ms)]
_Number = Annotated[float, BeforeValidator(_number)]
_Whole = Annotated[int, BeforeValidator(_whole_number)]
_Limit = Annotated[_Whole, Field(ge=0, le=MAX_I64)]
_Count = Annotated[_Whole, _usable_by(lambda count: AutoclaimRequest(b"", 0, count=count))]
_Share = Annotated[_Number, _usable_by(lambda share: Guards(max_deleted_share=share))]
_Glob = Annotated[str, _usable_by(glob_pattern)]
_Streams = Annotated[
    _Glob, Option(f"Only these streams ({GLOB}).", "GLOB", group=OptionGroup.WHICH)
]
_Groups = Annotated[
    _Glob, Option(f"Only these consumer groups ({GLOB}).", "GLOB", group=OptionGroup.WHICH)
]


class Section(BaseModel):
    """Hold keys that belong together, and refuse an unknown key."""

    # The value of an unknown key may be a password, which a traceback would show.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Engine(StrEnum):
    """Name an engine that executes commands."""

    AUTO = "auto"
    EMBEDDED = "embedded"
    SPARK = "spark"


class ExecutionSection(Section):
    """Choose the engine: this process (`embedded`), Spark, or the first that can (`auto`)."""

    engine: Annotated[
        Engine,
        Option(
            "What executes the command: `embedded` (this process, for a store in a local folder),"
            " `spark`, or `auto` (embedded where it can).",
            "NAME",
            group=OptionGroup.RUN,
        ),
    ] = Engine.AUTO


class LockSection(Section):
    """State how long a command waits for another process that writes to the store."""

    wait_ms: Annotated[
        _Wait,
        Field(alias="wait"),
        Option(
            "Wait at most DURATION (as in 10m) while another process writes to the store, then exit"
            " with code 5. With 0, do not wait.",
            "DURATION",
            unset="no limit",
            group=OptionGroup.RUN,
        ),
    ] = None


class SparkSection(Section):
    """Describe the Spark session that claimlib starts if there is none (`session.open_session`)."""

    master: Annotated[str, _usable_by(partial(check_no_secret, what="Spark's address"))] = (
        "local[*]"
    )
    driver_memory: str = "4g"
    shuffle_partitions: Annotated[_Whole, Field(ge=1, le=2**31 - 1)] = 4
    conf: dict[str, str] = {}


class SnapshotSection(Section):
    """State what a snapshot reads, and how fast."""

    stream: _Streams = "*"
    group: _Groups = "*"
    fields: Annotated[
        bool, Option("Also read the payloads (fields) of pending entries.", group=OptionGroup.WHICH)
    ] = True
    max_commands_per_second: Annotated[
        _Number,
        Field(gt=0),
        Option(
            "Send at most NUMBER commands per second; one page of rows is one command.",
            "NUMBER",
            group=OptionGroup.RUN,
        ),
    ] = 500

    def reading(self, url: str, password_file: Path | None, ca_file: Path | None) -> ServerReading:
        """Return the reading of a server.  This needs the extra `redis`."""
        from claimlib.live.reading import ServerReading

        return ServerReading(
            url,
            stream_glob=self.stream,
            group_glob=self.group,
            fields=self.fields,
            max_commands_per_second=self.max_commands_per_second,
            password_file=password_file,
            ca_file=ca_file,
        )

    def request(self, source: str, limits: RemovalLimits) -> SnapshotRequest:
        """Return the request of a snapshot.

        Args:
            source: the server as host:port/db.
        """
        from claimlib.commands.snapshot import SnapshotRequest

        return SnapshotRequest(
            source=source,
            stream_glob=self.stream,
            group_glob=self.group,
            fields=self.fields,
            limits=limits,
        )


class MirrorSection(Section):
    """Limit what a snapshot or an import may remove from a store (`model.RemovalLimits`)."""

    allow_empty: Annotated[
        bool,
        Option(
            "Accept an empty source, which removes everything that the store has from it.",
            names=("--allow-empty",),
            group=OptionGroup.GUARDS,
        ),
    ] = False
    max_removed_share: Annotated[
        _Number,
        Field(ge=0, le=1),
        Option(
            "Stop if more than this share of a stream, or of all streams together, would vanish"
            " from the store without an explanation (0.5 = half; 1 = never stop).",
            "SHARE",
            group=OptionGroup.GUARDS,
        ),
    ] = DEFAULT_MAX_REMOVED_SHARE

    def limits(self) -> RemovalLimits:
        """Return these limits in the form that the commands use."""
        return RemovalLimits(self.allow_empty, self.max_removed_share)


class WritebackSection(Section):
    """Limit the age of the snapshot for a writeback, and the speed of the writeback."""

    max_age_ms: Annotated[
        _Duration,
        Field(alias="max_age"),
        Option(
            "Send nothing if the snapshot of a group is older than DURATION (server's clock).",
            "DURATION",
            unset="1h",
            group=OptionGroup.GUARDS,
        ),
    ] = None
    max_commands_per_second: Annotated[
        _Number,
        Field(gt=0),
        Option(
            "Send at most NUMBER commands per second; one command is for up to 200 entries.",
            "NUMBER",
            group=OptionGroup.RUN,
        ),
    ] = 500
    max_latency_ms: Annotated[
        Annotated[_Duration, Field(gt=0)],
        Field(alias="max_latency"),
        Option(
            "Pause a writeback while the server takes longer than DURATION (as in 20ms) to answer;"
            " stop after five minutes.",
            "DURATION",
            unset="no limit",
            group=OptionGroup.RUN,
        ),
    ] = None

    def access(self, url: str, password_file: Path | None, ca_file: Path | None) -> ServerAccess:
        """Return the access to a server.  This needs the extra `redis`."""
        from claimlib.live.access import ServerAccess

        return ServerAccess(
            url,
            max_commands_per_second=self.max_commands_per_second,
            max_latency_ms=self.max_latency_ms,
            password_file=password_file,
            ca_file=ca_file,
        )


class XautoclaimSection(Section):
    """State the defaults of xautoclaim.

    If `start` is None, a page begins at the cursor, or at the first entry if there is no cursor.
    The fields from `max_claims` on are `model.Guards`.
    """

    consumer: Annotated[
        _Names,
        Option(
            f"The consumer that gets the entries, {SPELLED}. Can be repeated: the entries of each"
            " group are then distributed in turn, in the order of their ids.",
            "NAME",
            repeats=True,
            group=OptionGroup.WHO,
        ),
    ] = None
    assign_ms: Annotated[
        _Live,
        Field(alias="assign"),
        Option(
            "Instead of --consumer: distribute the entries of each group over its consumers that"
            " received an entry within DURATION (default: --min-idle) before the snapshot. The one"
            " with the fewest pending entries gets the first.",
            "live[:DURATION]",
            group=OptionGroup.WHO,
        ),
    ] = None
    min_idle_ms: Annotated[
        _Duration,
        Field(alias="min_idle"),
        Option(
            "Claim entries that have been idle for longer than this, with a unit"
            " (ms, s, m, h, d, w): 15m, 1h30m; 0ms: no minimum.",
            "DURATION",
            group=OptionGroup.WHICH,
        ),
    ] = None
    stream: _Streams = "*"
    group: _Groups = "*"
    start: Annotated[
        Annotated[str, _usable_by(parse_range_start)] | None,
        Option(
            "Where to begin: ms-seq at this id, `(ms-seq` after it, - at the first entry.",
            "ID",
            unset="-",
            group=OptionGroup.WHICH,
        ),
    ] = None
    count: Annotated[
        _Count | None,
        Option(
            "Process only one page per group, as XAUTOCLAIM's COUNT does: claim or delete at most"
            " NUMBER entries, and examine at most ten times as many.",
            "NUMBER",
            unset="the whole group",
            group=OptionGroup.WHICH,
        ),
    ] = None
    cursor: Annotated[
        str | None,
        Option(
            "Store under NAME where each group's next page begins, and start there unless --start"
            " is given.",
            "NAME",
            group=OptionGroup.WHICH,
        ),
    ] = None
    justid: Annotated[bool, Option("Do not change delivery counts.", group=OptionGroup.WHO)] = False
    idle_rule: Annotated[
        IdleRule,
        Option(
            "What happens to an entry that has been idle for exactly --min-idle: `documented`"
            " leaves it, `server` claims it.",
            "RULE",
            group=OptionGroup.WHICH,
        ),
    ] = IdleRule.DOCUMENTED
    profile: Annotated[
        Profile,
        Option(
            "Follow the behavior of these servers: `redis-7.2` (also later versions, and Valkey),"
            " or `redis-7.0`.",
            "PROFILE",
            group=OptionGroup.RUN,
        ),
    ] = Profile.REDIS_7_2
    max_claims: Annotated[
        _Limit | None,
        Option(
            "Refuse a group if more than NUMBER of its entries would be claimed.",
            "NUMBER",
            unset="no limit",
            group=OptionGroup.GUARDS,
        ),
    ] = None
    max_deleted_share: Annotated[
        _Share | None,
        Option(
            "Refuse a group if more than this share of its pending entries would be deleted; 0.05"
            " means 5 %.",
            "SHARE",
            unset="no limit",
            group=OptionGroup.GUARDS,
        ),
    ] = None
    only_from: Annotated[
        _Glob | None,
        Option(
            f"Claim only entries of consumers whose names match ({GLOB}).",
            "GLOB",
            unset="of all consumers",
            group=OptionGroup.GUARDS,
        ),
    ] = None
    only_consumers_idle_ms: Annotated[
        _Duration,
        Field(alias="only_consumers_idle"),
        Option(
            "Claim only from consumers that have received nothing for longer than DURATION. If"
            " that is unknown, the time they last asked for entries counts; if both are unknown,"
            " they keep their entries.",
            "DURATION",
            unset="from all consumers",
            group=OptionGroup.GUARDS,
        ),
    ] = None
    max_deliveries: Annotated[
        Annotated[_Limit, Field(ge=1)] | None,
        Option(
            "Give entries that were delivered NUMBER times or more to --parking-consumer instead;"
            " they stay there.",
            "NUMBER",
            group=OptionGroup.WHO,
        ),
    ] = None
    parking_consumer: Annotated[
        _Name,
        Option(
            "The consumer that gets the entries that --max-deliveries sets aside; their delivery"
            " counts do not change.",
            "NAME",
            group=OptionGroup.WHO,
        ),
    ] = None

    def request(self) -> SweepRequest:
        """Return the request of a sweep.

        Raises:
            RequestError: consumer or min_idle is missing, or two values exclude each other.
        """
        from claimlib.commands.xautoclaim import SweepRequest

        consumers = self.consumer or ()
        if not consumers and self.assign_ms is None:
            raise RequestError(
                "--consumer is required: the name of the consumer that gets the entries (or"
                " --assign live)",
                option="consumer",
            )
        if b"" in consumers:
            raise RequestError(
                "the consumer is empty: name who gets the entries (in a script: is its variable"
                " set?)",
                option="consumer",
            )
        if self.min_idle_ms is None:
            raise RequestError(
                "--min-idle is required: how long an entry must have been idle, as in 15m",
                option="min_idle",
            )
        autoclaim = AutoclaimRequest(
            consumer=consumers[0] if consumers else b"",
            min_idle_ms=self.min_idle_ms,
            start=MIN_ID if self.start is None else parse_range_start(self.start),
            count=self.count,
            justid=self.justid,
            idle_rule=self.idle_rule,
            profile=self.profile,
            guards=Guards(**{guard.name: getattr(self, guard.name) for guard in fields(Guards)}),
        )
        return SweepRequest(
            autoclaim,
            stream_glob=self.stream,
            group_glob=self.group,
            cursor=self.cursor,
            resume=self.cursor is not None and self.start is None,
            others=consumers[1:],
            active_within_ms=self.min_idle_ms if self.assign_ms == 0 else self.assign_ms,
        )
