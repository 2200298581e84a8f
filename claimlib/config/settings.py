"""Resolve a TOML file, the environment and options into frozen values.

An option takes precedence over an environment variable.  The variable takes precedence over the
file, and the file over the default:

    --min-idle 1h  >  CLAIMLIB_XAUTOCLAIM__MIN_IDLE=1h  >  [xautoclaim] min_idle = "1h"

An unknown key is refused, and so is a variable CLAIMLIB_… that names no key.  Only the command line
reads files and variables.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claimlib.config.sections import (
    ExecutionSection,
    LockSection,
    MirrorSection,
    SnapshotSection,
    SparkSection,
    WritebackSection,
    XautoclaimSection,
    keys_of,
    option_of,
)
from claimlib.errors import ConfigError, MissingExtraError, RequestError
from claimlib.places import shown_path
from claimlib.semantics.model import Guards

try:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails
    from pydantic_settings import (
        BaseSettings,
        InitSettingsSource,
        PydanticBaseSettingsSource,
        SettingsConfigDict,
    )
except ImportError as error:
    raise MissingExtraError.for_package("spark", "pydantic-settings") from error

if TYPE_CHECKING:
    from claimlib.commands.xautoclaim import SweepRequest

_PREFIX = "CLAIMLIB_"
_DELIMITER = "__"


class Config(BaseSettings):
    """Hold the settings of a command, which `load` reads."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter=_DELIMITER,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    execution: ExecutionSection = ExecutionSection()
    lock: LockSection = LockSection()
    spark: SparkSection = SparkSection()
    snapshot: SnapshotSection = SnapshotSection()
    mirror: MirrorSection = MirrorSection()
    xautoclaim: XautoclaimSection = XautoclaimSection()
    writeback: WritebackSection = WritebackSection()


def load(file: Path | None = None, **options: Mapping[str, object]) -> Config:
    """Resolve options, environment and file.

    Args:
        file: a TOML file with a table per section, or None.
        options: the values of the command line, by section and key.  A value is None if its option
            is not given.

    Raises:
        ConfigError: the file does not exist or is not valid TOML, a key is unknown, or a value
            cannot be used.  The message names the key, and its file, variable or option.
    """
    values_by_section: dict[str, Any] = {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in options.items()
    }
    _check_variables()
    file = None if file is None else shown_path(file)
    tables = {} if file is None else read_toml(file, "config")[1]
    _check_sections(tables, file)
    try:
        return _config_class(tables)(**values_by_section)
    except ValidationError as error:
        faults = [_fault_text(detail, values_by_section, file) for detail in error.errors()]
        raise ConfigError("; ".join(faults), file=str(file) if file else None) from error


def requests_of(
    settings: Config, policy: Path | None, options: Mapping[str, object]
) -> list[SweepRequest]:
    """Return the request of the settings, or the requests of a policy file.

    Args:
        options: the values of the command line for a single request.  A value is None if its option
            is not given.

    Raises:
        ConfigError: see `load_policy`.
        RequestError: the request is not complete, or the policy would ignore options of the command
            line, or guards of the environment or the settings file.
    """
    if policy is None:
        return [settings.xautoclaim.request()]
    used = [option_of(key) for key, value in options.items() if value is not None]
    if used:
        raise RequestError(
            f"--policy replaces the options of a single request: remove {', '.join(used)}",
            options=used,
        )
    _refuse_guards_beside_a_policy(settings.xautoclaim)
    return load_policy(policy)


def _refuse_guards_beside_a_policy(section: XautoclaimSection) -> None:
    """Raise RequestError if the settings have a guard.

    A policy replaces the section [xautoclaim], so the guard would have no effect.
    """
    for name in (guard.name for guard in fields(Guards)):
        key = XautoclaimSection.model_fields[name].alias or name
        if getattr(section, name) is not None:
            where = _origin(["xautoclaim", key], {}) or f"xautoclaim.{key} in the configuration"
            raise RequestError(
                f"{where}: --policy would leave this guard out: put {key} into the [[request]]"
                " tables of the policy, and remove it here",
                key=key,
            )


def load_policy(file: Path) -> list[SweepRequest]:
    """Return the requests of a policy file, in order.

    Each request is a table `[[request]]` with the keys of [xautoclaim].

    Raises:
        ConfigError: the file does not exist or is not a policy.  The message names the line.
    """
    file = shown_path(file)
    text, tables = read_toml(file, "policy")
    requests = tables.get("request")
    if set(tables) != {"request"} or not isinstance(requests, list) or not requests:
        raise ConfigError(
            f"{file} must contain [[request]] tables and nothing else", file=str(file)
        )
    return [_policy_request(file, text, number, rule) for number, rule in enumerate(requests)]


def read_toml(file: Path, what: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file, and its tables.

    Args:
        what: the kind of the file, for messages.

    Raises:
        ConfigError: the file cannot be read, or is not valid TOML.
    """
    try:
        # Not `read_text`, which would make a lone carriage return a line end.  In TOML it is none.
        text = file.read_bytes().decode("utf-8")
        return text, tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(f"the {what} file {file} does not exist", file=str(file)) from error
    except OSError as error:
        why = "it is a folder" if isinstance(error, IsADirectoryError) else error.strerror
        raise ConfigError(
            f"the {what} file {file} cannot be read: {why}", file=str(file)
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}", file=str(file)) from error


def _policy_request(file: Path, text: str, number: int, table: object) -> SweepRequest:
    try:
        return XautoclaimSection.model_validate(table).request()
    except ValidationError as error:
        detail = error.errors()[0]
        path = ["xautoclaim", *map(str, detail["loc"])]
        key = path[1] if len(path) > 1 else ""
        message = explained(detail, _known_keys(path))
        where = f", {key}" if key else ""
    except RequestError as error:
        named = error.fields.get("field") or error.fields.get("option") or ""
        key, message = str(named), _OPTION.sub(_as_key, error.message)
        where = f", request {number + 1}"
    line = line_of(text, "request", key, number)
    raise ConfigError(f"{file}, line {line}{where}: {message}", file=str(file), line=line)


_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")  # as in: --min-idle is required


def _as_key(option: re.Match[str]) -> str:
    """Return the key that a file has for an option."""
    return option[1].replace("-", "_")


# Strings and comments of TOML: """…""", '''…''', "…", '…' and # ….  Lines within a long string
# could look like heads and keys of tables.
_QUOTED = re.compile(
    r""""{3}(?s:\\.|.)*?"{3,5}|'{3}(?s:.)*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*"""
)


def line_of(text: str, table: str, key: str, number: int = 0) -> int:
    """Return the number of the line that sets a key of a TOML table.

    If the table does not have the key, return the line of its head, `[table]` or `[[table]]`.
    Without a head, it is the first line `table = …` or `table.key = …`.  Lines count from 1.  If
    several tables have this name, `number` chooses one of them, from 0.  A table ends at the next
    table of the same name.
    """
    lines = _QUOTED.sub(_without_long_text, text).split("\n")
    heads = [n for n, line in enumerate(lines) if _begins(line, r"\[{1,2}\s*", table, r"\s*\]")]
    if number >= len(heads):
        written = (n for n, line in enumerate(lines) if _begins(line, "", table, r"\s*[.=]"))
        return next(written, 0) + 1
    last = heads[number + 1] if number + 1 < len(heads) else len(lines)
    of_key = (n for n in range(heads[number], last) if _begins(lines[n], "", key, r"\s*[.=]"))
    return next(of_key, heads[number]) + 1


def _without_long_text(quoted: re.Match[str]) -> str:
    """Return a string or a comment as it is, or only its line breaks if it has any."""
    return "\n" * quoted[0].count("\n") or quoted[0]


def _begins(line: str, before: str, name: str, behind: str) -> bool:
    """Return True if a line of TOML begins with this name, with or without quotes.

    Args:
        before, behind: patterns for the text before and behind the name.
    """
    return re.match(rf"\s*{before}([\"']?){re.escape(name)}\1{behind}", line) is not None


def _config_class(tables: dict[str, Any]) -> type[Config]:
    """Return a class of settings that reads options, then the environment, then a file's tables."""

    class _Config(Config):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            *_: Any,
            **__: Any,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, tables)

    return _Config


# Kubernetes gives each pod variables with the addresses of the services in its namespace.  For a
# service `claimlib-redis`, they are CLAIMLIB_REDIS_SERVICE_HOST, CLAIMLIB_REDIS_PORT_6379_TCP_ADDR
# and so on.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|(SERVICE_)?PORT(_\w+)?)$")


def _check_variables() -> None:
    """Raise ConfigError if a variable has an unknown section, or a section is no JSON object.

    If a misspelt variable were ignored, a guard that it should set would be missing.
    """
    for name in sorted(os.environ):
        words = name.upper()  # because the settings library ignores case
        section = words.removeprefix(_PREFIX).partition(_DELIMITER)[0].lower()
        is_ours = words.startswith(_PREFIX) and not _SERVICE_LINK.search(words)
        if is_ours and section not in Config.model_fields:
            raise ConfigError(
                f"environment variable {name} is no setting: {_variable_hint(words)}", key=section
            )
        path = tuple(words.removeprefix(_PREFIX).lower().split(_DELIMITER))
        if is_ours and path in _sections() and not isinstance(_json_value(os.environ[name]), dict):
            how = _CONF_AS_JSON if path == _CONF else f"; set one key by {words}{_DELIMITER}<KEY>"
            raise ConfigError(
                f"environment variable {name}: must be a JSON object{how}", key=".".join(path)
            )


_CONF = ("spark", "conf")
_CONF_AS_JSON = ', as in {"spark.sql.shuffle.partitions": "8"}'


def _sections() -> Iterator[tuple[str, ...]]:
    """Yield the paths of all tables that a file may have.

    The value of a variable for such a table is a JSON object.
    """
    yield from ((section,) for section in Config.model_fields)
    yield _CONF


def _json_value(text: str) -> object:
    """Return the value that a JSON text states, or None if the text is not valid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _check_sections(tables: Mapping[str, Any], file: Path | None) -> None:
    """Raise ConfigError if a section of the file is not a table.

    The settings library ignores such a section if an option or a variable sets a key of it.
    """
    for path in _sections():
        section: Any = tables
        for name in path:
            section = section.get(name, {})
        if not isinstance(section, dict):
            key = ".".join(path)
            raise ConfigError(
                f"{key} in {file}: must be a section: write [{key}] above its keys",
                file=str(file),
                key=key,
            )


def _variable_hint(words: str) -> str:
    """Return the hint that names the variable that the user probably meant.

    Names are compared without `_`.  A user may have left out the section.  For example,
    CLAIMLIB_MINIDLE is similar to CLAIMLIB_XAUTOCLAIM__MIN_IDLE.
    """
    variables: dict[str, list[str]] = {}
    for section in Config.model_fields:
        for key in _known_keys([section, ""]):
            for compared_name in (section + key, key):
                variable = f"{_PREFIX}{section}{_DELIMITER}{key}".upper()
                variables.setdefault(compared_name.replace("_", "").upper(), []).append(variable)
    name = words.removeprefix(_PREFIX).replace("_", "")
    for similar in get_close_matches(name, variables, n=1, cutoff=0.8):
        return f"did you mean {' or '.join(variables[similar])}?"
    sections = ", ".join(Config.model_fields)
    return (
        f"names that begin with {_PREFIX} must be {_PREFIX}<SECTION>{_DELIMITER}<KEY>, with a"
        f" section out of {sections}; unset it, or give it another name"
    )


def explained(detail: ErrorDetails, known_keys: Iterable[str]) -> str:
    """Return a text that states why a value is wrong, and which values are right."""
    if detail["type"] == "extra_forbidden":
        return f"unknown key; the keys are {', '.join(known_keys)}"
    if detail["type"].startswith("bool"):
        return "must be true or false"
    if detail["type"] == "string_type":
        return _text_remedy(detail)
    if detail["type"] in {"model_type", "dict_type"}:
        return "must be a table of keys and values"
    return re.sub("^Input should be", "must be", detail["msg"].removeprefix("Value error, "))


def _text_remedy(detail: ErrorDetails) -> str:
    """Return the remedy for a value that must be a text.

    Without quotes, TOML reads a name with dots, such as a Spark setting, as tables in tables.
    """
    value = detail["input"]
    if detail["loc"][:-1] == _CONF and isinstance(value, dict):
        name = ".".join(_first_names(str(detail["loc"][-1]), value))
        return f'put the whole name in quotes: "{name}" = "…"'
    return 'must be text in quotes, as in "4g"'


def _first_names(name: str, value: object) -> Iterator[str]:
    """Yield the names on the path to the first value in nested tables."""
    yield name
    if isinstance(value, dict) and value:
        yield from _first_names(*next(iter(value.items())))


def _fault_text(
    detail: ErrorDetails, options: Mapping[str, Mapping[str, object]], file: Path | None
) -> str:
    """Return a text that states a fault, and the option, variable or file that has it."""
    path = [str(part) for part in detail["loc"]]
    where = _origin(path, options) or f"{'.'.join(path)} in {file or 'the configuration'}"
    return f"{where}: {explained(detail, _known_keys(path))}"


def _origin(path: list[str], options: Mapping[str, Mapping[str, object]]) -> str | None:
    """Return the option or the variable that a value came from, or None if it came from a file."""
    if len(path) > 1 and path[1] in options.get(path[0], {}):
        return f"option {option_of(path[1])}"
    variable = (_PREFIX + _DELIMITER.join(path[:2])).upper()
    setting = next((name for name in os.environ if _sets(name, variable, path[1:2])), None)
    return f"environment variable {setting}" if setting else None


def _sets(name: str, variable: str, key: Sequence[str]) -> bool:
    """Return True if the variable `name` sets the value of `variable`.

    It does if it is this variable, or sets a part of its value (`…__PART`), or sets its section to
    a JSON object that has the key.

    Args:
        key: a sequence with the key of the variable.  Empty if the variable is a section.
    """
    words = name.upper()
    if words == variable or words.startswith(variable + _DELIMITER):
        return True
    section = variable.rpartition(_DELIMITER)[0]
    value = _json_value(os.environ[name]) if key and words == section else None
    return isinstance(value, dict) and key[0] in value


def _known_keys(path: list[str]) -> Iterator[str]:
    section = Config.model_fields.get(path[0])
    model = section.annotation if section is not None and len(path) > 1 else Config
    if isinstance(model, type) and issubclass(model, BaseModel):
        yield from keys_of(model)
