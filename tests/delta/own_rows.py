"""Rows that somebody else appends to a store."""

from __future__ import annotations

from claimlib.store.tables import Store


def append(store: Store, table: str, *rows: dict[str, object], are_few: bool = True) -> None:
    """Append rows; without a query, unless they are said not to be few."""
    columns = list(rows[0])
    values = [tuple(row[name] for name in columns) for row in rows]
    store.append(table, store.rows(table, values, columns), are_few=are_few)


def pending_row(stream: str, id_ms: int, run_seq: int = 0) -> dict[str, object]:
    state = {"consumer": "own", "delivery_time_ms": 5, "delivery_count": 1, "run_seq": run_seq}
    return {"stream": stream, "consumer_group": "g", "id_ms": id_ms, "id_seq": 0, **state}


def entry_row(
    stream: str, id_ms: int, fields: list[tuple[bytes, bytes]] | None = None
) -> dict[str, object]:
    return {"stream": stream, "id_ms": id_ms, "id_seq": 0, "fields": fields, "run_seq": 0}
