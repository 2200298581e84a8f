"""Configuration: a TOML file, the environment and options, resolved once into frozen values.

An option goes before an environment variable, that before the file, that before the default:

    --min-idle 1h  >  CLAIMLIB_XAUTOCLAIM__MIN_IDLE=1h  >  [xautoclaim] min_idle = "1h"

A key that is not known is refused, wherever it stands.  Nothing below the edge reads any of this.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from claimlib.errors import ConfigError, MissingExtraError, RequestError
from claimlib.ids import MIN_ID, parse_range_start
from claimlib.model import AutoclaimRequest, Guards, IdleRule, Profile
from claimlib.names import unspell
from claimlib.times import parse_duration_ms

try:
    from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
    from pydantic_core import ErrorDetails
    from pydantic_settings import (
        BaseSettings,
        PydanticBaseSettingsSource,
        SettingsConfigDict,
        SettingsError,
        TomlConfigSettingsSource,
    )
except ImportError as error:
    raise MissingExtraError.for_package("spark", "pydantic-settings") from error

if TYPE_CHECKING:
    from claimlib.commands.snapshot import SnapshotRequest
    from claimlib.commands.xautoclaim import SweepRequest

_PREFIX = "CLAIMLIB_"
_DELIMITER = "__"


def _duration_ms(value: object) -> int:
    try:
        return parse_duration_ms(str(value))
    except RequestError as error:
        raise ValueError(error.message) from error


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("it is a number")  # noqa: TRY004 - pydantic reports ValueErrors
    return value


def _name(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("a name is a text")  # noqa: TRY004 - pydantic reports ValueErrors
    try:
        return unspell(value)
    except RequestError as error:
        raise ValueError(error.message) from error


class Section(BaseModel):
    """Keys that belong together; one that is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SparkSection(Section):
    """The local session that claimlib starts where no other is there (`session.open_session`)."""

    master: str = "local[*]"
    driver_memory: str = "4g"
    shuffle_partitions: Annotated[int, Field(ge=1)] = 4


class SnapshotSection(Section):
    """What a snapshot reads, and how fast."""

    stream: str = "*"
    group: str = "*"
    fields: bool = True
    max_commands_per_second: Annotated[float, Field(gt=0)] = 500

    def request(self, source: str) -> SnapshotRequest:
        """The request of a snapshot of one server, `host:port/db`."""
        from claimlib.commands.snapshot import SnapshotRequest

        return SnapshotRequest(
            source=source, stream_glob=self.stream, group_glob=self.group, fields=self.fields
        )


class XautoclaimSection(Section):
    """What XAUTOCLAIM does unless told otherwise.

    `consumer` is a name as the tables spell it; `min_idle` is a duration with a unit; `start` is
    the first id that is examined, or `-` (null: where the cursor stands, if there is one); `count`
    makes it one page per group (null: all of it), and `cursor` names where the store keeps where
    the next page begins.  The last six are `model.Guards`.
    """

    consumer: Annotated[bytes | None, BeforeValidator(_name)] = None
    min_idle_ms: Annotated[int | None, BeforeValidator(_duration_ms), Field(alias="min_idle")] = (
        None
    )
    stream: str = "*"
    group: str = "*"
    start: str | None = None
    count: Annotated[int | None, BeforeValidator(_number)] = None
    cursor: str | None = None
    justid: bool = False
    idle_rule: IdleRule = IdleRule.DOCUMENTED
    profile: Profile = Profile.REDIS_7_2
    max_claims: Annotated[int | None, BeforeValidator(_number)] = None
    max_deleted_share: Annotated[float | None, BeforeValidator(_number)] = None
    only_from: str | None = None
    only_consumers_idle_ms: Annotated[
        int | None, BeforeValidator(_duration_ms), Field(alias="only_consumers_idle")
    ] = None
    max_deliveries: Annotated[int | None, BeforeValidator(_number)] = None
    parking_consumer: Annotated[bytes | None, BeforeValidator(_name)] = None

    def request(self) -> SweepRequest:
        """The request of a sweep.

        Raises:
            RequestError: there is no consumer, or no min-idle; the start is no id; or a value is
                out of range.
        """
        from claimlib.commands.xautoclaim import SweepRequest

        if self.consumer is None:
            raise RequestError("who gets the entries? Give --consumer NAME", option="consumer")
        if self.min_idle_ms is None:
            raise RequestError("idle for how long? Give --min-idle, as in 15m", option="min_idle")
        autoclaim = AutoclaimRequest(
            consumer=self.consumer,
            min_idle_ms=self.min_idle_ms,
            start=MIN_ID if self.start is None else parse_range_start(self.start),
            count=self.count,
            justid=self.justid,
            idle_rule=self.idle_rule,
            profile=self.profile,
            guards=Guards(
                max_claims=self.max_claims,
                max_deleted_share=self.max_deleted_share,
                only_from=self.only_from,
                only_consumers_idle_ms=self.only_consumers_idle_ms,
                max_deliveries=self.max_deliveries,
                parking_consumer=self.parking_consumer,
            ),
        )
        return SweepRequest(
            autoclaim,
            stream_glob=self.stream,
            group_glob=self.group,
            cursor=self.cursor,
            resume=self.cursor is not None and self.start is None,
        )


class Config(BaseSettings):
    """All of it; `load` makes one."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_nested_delimiter=_DELIMITER, extra="forbid", frozen=True
    )

    spark: SparkSection = SparkSection()
    snapshot: SnapshotSection = SnapshotSection()
    xautoclaim: XautoclaimSection = XautoclaimSection()


def load(file: Path | None = None, **options: Mapping[str, object]) -> Config:
    """Resolve options, environment and file.

    Args:
        file: a TOML file with a table per section; null: none.
        options: what the command line gave, by section and key; null values are not given.

    Raises:
        ConfigError: the file is not there or is no TOML; a key is unknown, or a value cannot be
            used: the message names the key, and the file, variable or option that it came from.
    """
    given: dict[str, Any] = {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in options.items()
    }
    _check_variables()
    if file is not None and not file.is_file():
        raise ConfigError(f"there is no config file {file}", file=str(file))
    try:
        return _reading(file)(**given)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is no TOML: {error}", file=str(file)) from error
    except SettingsError as error:
        raise ConfigError(f"an environment variable {_PREFIX}…: {error}") from error
    except ValidationError as error:
        said = [_located(detail, given, file) for detail in error.errors()]
        raise ConfigError("; ".join(said), file=str(file) if file else None) from error


def requests_of(
    settings: Config, policy: Path | None, options: Mapping[str, object]
) -> list[SweepRequest]:
    """What is to be claimed: the one request of the settings, or those of a policy file.

    Args:
        options: what the command line gave of the one request; null values are not given.

    Raises:
        ConfigError: see `load_policy`.
        RequestError: the request is not complete, or there are options beside the policy.
    """
    if policy is None:
        return [settings.xautoclaim.request()]
    given = [option_of(key) for key, one in options.items() if one is not None]
    if given:
        raise RequestError(
            f"--policy says all of the request: take {', '.join(given)} away", options=given
        )
    return load_policy(policy)


def load_policy(file: Path) -> list[SweepRequest]:
    """The requests of a policy file, in order: a `[[request]]` each, with the keys of [xautoclaim].

    Raises:
        ConfigError: the file is not there or is no policy; the message names the line.
    """
    text, tables = read_toml(file, "policy")
    requests = tables.get("request")
    if set(tables) != {"request"} or not isinstance(requests, list) or not requests:
        raise ConfigError(f"{file} must have tables [[request]], and nothing else", file=str(file))
    return [_policy_request(file, text, number, one) for number, one in enumerate(requests)]


def read_toml(file: Path, what: str) -> tuple[str, dict[str, Any]]:
    """A TOML file, as its text and what that says.

    Raises:
        ConfigError: the file is not there (`what` it would be), or is no TOML.
    """
    try:
        text = file.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"there is no {what} file {file}", file=str(file)) from error
    except ValueError as error:
        raise ConfigError(f"{file} is no TOML: {error}", file=str(file)) from error


def _policy_request(file: Path, text: str, number: int, table: object) -> SweepRequest:
    try:
        return XautoclaimSection.model_validate(table).request()
    except ValidationError as error:
        detail = error.errors()[0]
        path = ["xautoclaim", *map(str, detail["loc"])]
        key = path[1] if len(path) > 1 else ""
        line = line_of(text, _REQUEST, key, number)
        message = explained(detail, _known_keys(path))
        where = f"{file}, line {line}" + (f", {key}" if key else "")
    except RequestError as error:
        line, message = line_of(text, _REQUEST, "", number), error.message
        where = f"{file}, line {line}, request {number + 1}"
    raise ConfigError(f"{where}: {message}", file=str(file), line=line)


_REQUEST = r"\s*\[\[\s*request\s*\]\]"


def line_of(text: str, head: str, key: str, number: int = 0) -> int:
    """The line (from 1) of a key of the n-th (from 0) table whose head fits a pattern, or of that
    head; 1 where the table is written in another way.  The table ends where such a head is next."""
    lines = text.splitlines()
    heads = [n for n, line in enumerate(lines) if re.match(head, line)]
    if number >= len(heads):
        return 1
    last = heads[number + 1] if number + 1 < len(heads) else len(lines)
    of_key = (
        n for n in range(heads[number], last) if re.match(rf"\s*{re.escape(key)}\s*=", lines[n])
    )
    return next(of_key, heads[number]) + 1


def _reading(file: Path | None) -> type[Config]:
    """The settings class whose sources are options, environment and this file, in that order."""

    class _Config(Config):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            if file is None:
                return init_settings, env_settings
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)

    return _Config


def _check_variables() -> None:
    """A misspelt section in a variable's name would be passed over in silence."""
    for name in sorted(os.environ):
        section, is_nested, _ = name.removeprefix(_PREFIX).partition(_DELIMITER)
        if name.startswith(_PREFIX) and is_nested and section.lower() not in Config.model_fields:
            raise ConfigError(
                f"environment variable {name}: there is no section {section.lower()};"
                f" there are {', '.join(Config.model_fields)}",
                key=section.lower(),
            )


def explained(detail: ErrorDetails, known_keys: Iterable[str]) -> str:
    """One fault: what it is, and what would be right."""
    if detail["type"] == "extra_forbidden":
        return f"there is no such key; there are {', '.join(known_keys)}"
    return detail["msg"].removeprefix("Value error, ")


def _located(
    detail: ErrorDetails, options: Mapping[str, Mapping[str, object]], file: Path | None
) -> str:
    """One fault of option, environment or file: where it is, and what."""
    path = [str(part) for part in detail["loc"]]
    where = _origin(path, options) or f"{'.'.join(path)} in {file or 'the configuration'}"
    return f"{where}: {explained(detail, _known_keys(path))}"


def option_of(key: str) -> str:
    """The option of the command line for a key."""
    return f"--{key.replace('_', '-')}"


def _origin(path: list[str], options: Mapping[str, Mapping[str, object]]) -> str | None:
    """The option or the variable that a value came from; null: neither."""
    if len(path) > 1 and path[1] in options.get(path[0], {}):
        return f"option {option_of(path[1])}"
    variable = _PREFIX + _DELIMITER.join(path[:2])
    present = {name.upper(): name for name in os.environ}
    found = present.get(variable.upper())
    return f"environment variable {found}" if found else None


def _known_keys(path: list[str]) -> Iterator[str]:
    section = Config.model_fields.get(path[0])
    model = section.annotation if section is not None and len(path) > 1 else Config
    if isinstance(model, type) and issubclass(model, BaseModel):
        yield from keys_of(model)


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """The keys that a section may have, in order."""
    for name, field in model.model_fields.items():
        yield field.alias or name
