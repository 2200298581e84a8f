"""What others write to a store, and commits that do not say who made them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from claimlib.store.creation import Creation, create
from claimlib.store.definitions import FolderDefinitions, SparkDefinitions
from claimlib.store.tables import Store
from tests.writing import append_rows, execute_sql

Opener = Callable[[Path | str], Store]
"""Opens the store of a folder."""


def append(store: Store, table: str, *rows: dict[str, object]) -> None:
    """Append rows.  In a local folder this needs no query."""
    columns = list(rows[0])
    values = [tuple(row[name] for name in columns) for row in rows]
    append_rows(store, table, store.rows(table, values, columns))


def delete(store: Store, table: str, condition: str = "true") -> None:
    """Delete rows, with the engine of the store."""
    if store.is_embedded:
        DeltaTable(f"{store.where}/{table}").delete(condition)
    else:
        execute_sql(store, table, f"DELETE FROM {{table}} WHERE {condition}")


def update(store: Store, table: str, condition: str, **values: str) -> None:
    """Update rows, with the writer of the store.  Each value is a SQL expression."""
    store.writer.update(table, values, condition)


def pending_row(stream: str, id_ms: int, run_seq: int = 0) -> dict[str, object]:
    state = {"consumer": "own", "delivery_time_ms": 5, "delivery_count": 1, "run_seq": run_seq}
    return {"stream": stream, "consumer_group": "g", "id_ms": id_ms, "id_seq": 0, **state}


def entry_row(
    stream: str, id_ms: int, fields: list[tuple[bytes, bytes]] | None = None
) -> dict[str, object]:
    return {"stream": stream, "id_ms": id_ms, "id_seq": 0, "fields": fields, "run_seq": 0}


def say_nothing_of_the_newest_commit(store: Store, table: str) -> None:
    """Leave out the newest commit's `commitInfo`, as writers may.

    Spark's file system would keep a checksum of the file as it was.
    """
    log = Path(store.where, table, "_delta_log")
    file = max(log.glob("*.json"))
    actions = file.read_text(encoding="utf-8").splitlines()
    silent = [action for action in actions if "commitInfo" not in json.loads(action)]
    file.write_text("\n".join(silent) + "\n", encoding="utf-8")
    (log / f".{file.name}.crc").unlink(missing_ok=True)


def init(
    start: Callable[[], SparkSession],
    where: str,
    engine: str,
    *,
    buckets: int | None = None,
    source: str | None = None,
) -> Store:
    """Run init with an engine (`embedded` or `spark`), and open the store."""
    return _created(start, where, engine, buckets=buckets, source=source).store


def init_again(store: Store, *, accept_replaced: bool = False) -> Store:
    """Run init on a store with its engine, and open it."""
    return create_again(store, accept_replaced=accept_replaced).store


def create_again(store: Store, *, accept_replaced: bool = False) -> Creation:
    """Run init on a store with its engine, and return what it did."""
    start = partial(getattr, store, "spark")
    return _created(start, store.where, store.engine.name, accept_replaced=accept_replaced)


def _created(
    start: Callable[[], SparkSession],
    where: str,
    engine: str,
    *,
    buckets: int | None = None,
    source: str | None = None,
    accept_replaced: bool = False,
) -> Creation:
    embedded = FolderDefinitions.find(start, where) if engine == "embedded" else None
    definitions = embedded or SparkDefinitions(start(), where)
    created = create(definitions, buckets=buckets, source=source, accept_replaced=accept_replaced)
    assert created.store.engine.name == engine
    return created
