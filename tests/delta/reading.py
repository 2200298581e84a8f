"""A store's tables read by delta-rs: a reader that shares no code with Spark or with claimlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable, QueryBuilder


def query(
    where: Path | str, table: str, sql: str, storage: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Rows of a query over one table, which is called `t` in it; `storage`: how to reach it."""
    opened = DeltaTable(f"{where}/{table}", storage_options=storage)
    rows = QueryBuilder().register("t", opened).execute(sql).read_all()
    names = rows.column_names
    columns = [rows.column(name).to_pylist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def count(where: Path | str, table: str, condition: str = "true") -> int:
    """The number of rows for which a condition holds."""
    (row,) = query(where, table, f"SELECT count(*) AS n FROM t WHERE {condition}")
    return int(row["n"])
