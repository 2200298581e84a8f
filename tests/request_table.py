"""Requests as the table that `commands.xautoclaim` takes: one row per (stream, consumer_group)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from claimlib.ids import to_bigint
from claimlib.model import AutoclaimRequest
from claimlib.names import spell
from claimlib.plans.requests import REQUEST_COLUMNS


def request_table(
    spark: SparkSession, requests: Mapping[tuple[bytes, bytes], AutoclaimRequest]
) -> DataFrame:
    """One row per stream and group of `requests`, each with its own request."""
    rows = [
        (
            spell(stream),
            spell(group),
            spell(request.consumer),
            request.min_idle_ms,
            to_bigint(request.start.ms),
            to_bigint(request.start.seq),
            request.justid,
            str(request.idle_rule),
            str(request.profile),
        )
        for (stream, group), request in requests.items()
    ]
    schema = ", ".join(f"{name} {type_}" for name, type_ in REQUEST_COLUMNS.items())
    return spark.createDataFrame(rows, schema)
