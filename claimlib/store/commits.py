"""Create a Delta table in a local folder, or change its definition, by a commit of this process.

delta-rs gives a new table features that Spark does not give it.  So this module writes the commits
as the protocol of Delta describes them.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from claimlib import __version__
from claimlib.errors import StorageError
from claimlib.schema import BUCKETS_PROPERTY, Column, Table
from claimlib.store.delta_errors import conflict, errors_mapped
from claimlib.store.local import LocalTable

_Action = Mapping[str, Mapping[str, Any]]


def create_table(folder: Path, table: Table, properties: Mapping[str, str]) -> None:
    """Create a table unless it exists.

    The first commit is written to a new folder, which is then renamed.  So the table is never
    incomplete.

    Args:
        folder: the folder of the store.
        properties: the properties of the table.

    Raises:
        StorageError: the folder of the table has other files, or cannot be written.
    """
    target, new = folder / table.name, folder / f".{table.name}-{uuid.uuid4().hex}"
    with _os_errors_mapped(folder), errors_mapped(table.name, 0):
        log = new / "_delta_log"
        log.mkdir(parents=True)
        try:
            _write(log / _file_name(0), _first_commit(table, properties))
            # This fails if the target exists and has files.
            new.rename(target)
        except OSError:
            # If it exists, another process has created the table meanwhile.
            if not (target / "_delta_log" / _file_name(0)).exists():
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)


def change_table(
    folder: Path, table: LocalTable, columns: Sequence[Column], properties: Mapping[str, str]
) -> None:
    """Add columns to a table and set properties, in one commit.

    Args:
        folder: the folder of the table.
        table: the table at its newest version.  The commit is the next version.
        columns: new columns, which may hold null and are not generated.

    Raises:
        CommitConflictError: another writer has committed meanwhile.
        StorageError: the folder cannot be written.
    """
    metadata = table.metadata()
    struct = json.loads(metadata["schemaString"])
    struct["fields"] += _fields(columns, buckets=0)
    changed = {
        **metadata,
        "schemaString": _json(struct),
        "configuration": {**metadata["configuration"], **properties},
    }
    actions = [_commit_info("CHANGE DEFINITION", properties), {"metaData": changed}]
    log = folder / "_delta_log"
    # Delta and delta-rs ignore files whose names are not versions.
    temporary = log / f".{uuid.uuid4().hex}.tmp"
    with _os_errors_mapped(folder), errors_mapped(folder.name, table.version + 1):
        try:
            _write(temporary, actions)
            # Unlike a rename, a link fails if the version exists.
            os.link(temporary, log / _file_name(table.version + 1))
        except FileExistsError as error:
            raise conflict(folder.name) from error
        finally:
            temporary.unlink(missing_ok=True)


def _file_name(version: int) -> str:
    return f"{version:020d}.json"


def _write(file: Path, actions: Sequence[_Action]) -> None:
    file.write_text("".join(f"{_json(action)}\n" for action in actions), encoding="utf-8")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@contextmanager
def _os_errors_mapped(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{error.filename2 or error.filename or folder} cannot be written"
            f" ({error.strerror or error}): give another location, or make it writable"
        ) from error


def _first_commit(table: Table, properties: Mapping[str, str]) -> list[_Action]:
    struct = {
        "type": "struct",
        "fields": _fields(table.columns, int(properties[BUCKETS_PROPERTY])),
    }
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _json(struct),
        "partitionColumns": [] if table.partitioned_by is None else [table.partitioned_by],
        "configuration": dict(properties),
        "createdTime": _now_ms(),
    }
    return [
        _commit_info("CREATE TABLE", properties),
        {"metaData": metadata},
        {"protocol": _protocol(table)},
    ]


def _commit_info(operation: str, properties: Mapping[str, str]) -> _Action:
    return {
        "commitInfo": {
            "timestamp": _now_ms(),
            "operation": operation,
            "operationParameters": {"properties": _json(dict(properties))},
            "isBlindAppend": True,
            "engineInfo": f"claimlib/{__version__}",
        }
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _protocol(table: Table) -> dict[str, Any]:
    """Return the protocol that Spark gives a table with these columns and properties."""
    readers = [
        feature
        for name, feature in _READER_FEATURES.items()
        if table.properties.get(name) == "true"
    ]
    writers = [
        *readers,
        *(
            feature
            for name, feature in _WRITER_FEATURES.items()
            if table.properties.get(name) == "true"
        ),
        *(["generatedColumns"] if table.written != table.columns else []),
    ]
    if not writers:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    writer_features = {"writerFeatures": [*writers, "invariants", "appendOnly"]}
    if not readers:
        return {"minReaderVersion": 1, "minWriterVersion": 7, **writer_features}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": readers,
        **writer_features,
    }


_READER_FEATURES = {"delta.enableDeletionVectors": "deletionVectors"}
_WRITER_FEATURES = {"delta.enableChangeDataFeed": "changeDataFeed"}


def _fields(columns: Sequence[Column], buckets: int) -> list[dict[str, Any]]:
    """Return columns as the log stores the fields of a schema."""
    from deltalake import Field, Schema

    fields = [
        Field(
            column.name,
            Field.from_arrow(pa.field(column.name, column.arrow_type)).type,
            nullable=column.nullable,
            metadata=_generation(column, buckets),
        )
        for column in columns
    ]
    as_json: list[dict[str, Any]] = json.loads(Schema(fields).to_json())["fields"]
    return as_json


def _generation(column: Column, buckets: int) -> dict[str, str]:
    if column.generated_as is None:
        return {}
    return {"delta.generationExpression": column.generated_as.format(buckets=buckets)}
