"""Load the map of an import, a TOML file that names the columns of the given tables.

    [pending]
    stream = "stream_name"     # claimlib's key = the given table's column
    id = ["ms", "seq"]         # an id is one text column, or two number columns

A column that already has the name of its key, or of the store's column, needs no entry.  An unknown
section or key is refused.  The message names its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from claimlib.config.sections import Section
from claimlib.config.settings import explained, line_of, read_toml
from claimlib.errors import ConfigError, MissingExtraError
from claimlib.places import shown_path
from claimlib.plans.column_readers import Shape
from claimlib.plans.input_tables_plan import PARTS, TableMap

try:
    from pydantic import BeforeValidator, StrictBool, ValidationError, create_model
except ImportError as error:
    raise MissingExtraError.for_package("spark", "pydantic") from error


def load_import_map(file: Path) -> dict[str, TableMap]:
    """Return the maps of the given tables, by name of the store's table.

    Raises:
        ConfigError: the file does not exist or is not valid TOML, a section or key is unknown, or a
            value is not the name of a column.  The message names the file, the line and the key.

    Examples:
        >>> from pathlib import Path
        >>> load_import_map(Path("map.toml"))["pending"].columns
        {'consumer': ('owner',)}
    """
    file = shown_path(file)
    text, tables = read_toml(file, "map")
    return {table: _table_map(file, text, table, section) for table, section in tables.items()}


def _table_map(file: Path, text: str, table: str, section: object) -> TableMap:
    def where(key: str = "") -> str:  # for example: map.toml, line 3, pending.consumer
        return f"{file}, line {line_of(text, table, key)}, {table}{key and f'.{key}'}"

    if table not in PARTS:
        raise ConfigError(
            f"{where()}: unknown section [{table}]; the sections are {', '.join(PARTS)}",
            file=str(file),
            key=table,
        )
    model = _MODELS[table]
    try:
        columns = model.model_validate(section).model_dump(exclude_none=True)
    except ValidationError as error:
        detail = error.errors()[0]
        key = str(detail["loc"][0]) if detail["loc"] else ""
        raise ConfigError(
            f"{where(key)}: {explained(detail, model.model_fields)}",
            file=str(file),
            key=f"{table}.{key}" if key else table,
        ) from error
    id_bits = columns.pop("id_bits", False)
    return TableMap(
        columns=columns, id_bits=id_bits, assigned_at={key: where(key) for key in columns}
    )


def _column(value: object) -> tuple[str, ...]:
    if _is_name(value):
        return (str(value),)
    raise ValueError("must be the name of one column, as a string")


def _id_columns(value: object) -> tuple[str, ...]:
    if _is_name(value):
        return (str(value),)
    if isinstance(value, list) and len(value) == 2 and all(map(_is_name, value)):
        return tuple(value)
    raise ValueError(
        "must be the name of a string column, or a list of the names of two number columns"
    )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _model(table: str) -> type[Section]:
    keys: Mapping[str, Any] = {
        key: (_IdColumns if part.shape is Shape.ID else _Column, None)
        for key, part in PARTS[table].items()
    }
    return create_model(table, __base__=Section, **keys, id_bits=(StrictBool, False))


_Column = Annotated[tuple[str, ...] | None, BeforeValidator(_column)]
_IdColumns = Annotated[tuple[str, ...] | None, BeforeValidator(_id_columns)]
_MODELS = {table: _model(table) for table in PARTS}
