"""Writes of tests into the tables of a store, past the run protocol."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Row

from claimlib.engine.relation import Relation
from claimlib.store.local import Token
from claimlib.store.spark_writer import SparkWriter
from claimlib.store.tables import Store


def append_rows(
    store: Store, table: str, rows: DataFrame | Relation, *, token: Token | None = None
) -> None:
    """Append rows to a table in one commit, as the writer of the store does it."""
    relation = rows if isinstance(rows, Relation) else store.relation_of(rows)
    store.writer.append(table, relation, token=token)


def execute_sql(store: Store, table: str, statement: str, **frames: Any) -> Row:
    """Run one MERGE, UPDATE or DELETE of Spark on a table, which `{table}` stands for.

    Returns: what Delta reports.
    """
    return SparkWriter(store).execute(table, statement, **frames)
