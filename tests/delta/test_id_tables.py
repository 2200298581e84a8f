"""Lists of ids that are tables: in the order of ids, and divided as in earlier releases."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claimlib.cli.bulk_options import Named, requests_of
from claimlib.commands import id_lists
from claimlib.commands.id_lists import read_ids
from claimlib.commands.xack import NamedAck, ack_table
from claimlib.errors import InputError
from claimlib.plans.bulk_plan import ACKS
from claimlib.semantics.ids import parse_id, to_bigint
from claimlib.store.tables import Store

IDS = (
    *("18446744073709551615-9223372036854775808", "5-1", "9223372036854775808-0", "5-0"),
    *("0-18446744073709551615", "9223372036854775807-7", "5-1"),
)
# Else a run id that was used before an upgrade would be refused.
REQUESTS = [
    {"request": 1, "ids": ["9223372036854775808-0", "18446744073709551615-9223372036854775808"]},
    {"request": 2, "ids": ["0-18446744073709551615", "5-1", "5-1", "9223372036854775807-7"]},
    {"request": 3, "ids": ["5-0"]},
]
HALVES = "id_ms BIGINT, id_seq BIGINT"


def table_of(spark: SparkSession, folder: Path, rows: list[tuple[object, ...]], ddl: str) -> str:
    """The place of a table of some rows."""
    place = str(folder / "ids.parquet")
    spark.createDataFrame(rows, ddl).write.parquet(place)
    return place


def halves(text: str) -> tuple[int, int]:
    stream_id = parse_id(text.encode())
    return to_bigint(stream_id.ms), to_bigint(stream_id.seq)


@pytest.mark.parametrize("form", ["id STRING", HALVES])
def test_a_table_of_ids_is_as_many_requests_as_in_earlier_releases(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(id_lists, "_IDS_PER_REQUEST", 3)
    rows = [(text,) if form == "id STRING" else halves(text) for text in IDS]
    place = table_of(store.spark, tmp_path, rows, form)
    assert read_ids(place).requests(store).order_by("request").collect() == REQUESTS

    ack = NamedAck(b"s", b"g", ())
    named = Named(("s", "g"), (), place, None)
    acks = requests_of(store, named, read_ids(place), ack, ack_table)
    assert ACKS.checked(acks).order_by("request").collect() == [
        {**row, "stream": "s", "consumer_group": "g"} for row in REQUESTS
    ]


def test_a_table_without_rows_is_a_request_that_names_no_id(store: Store, tmp_path: Path) -> None:
    place = table_of(store.spark, tmp_path, [], HALVES)
    assert read_ids(place).requests(store).collect() == [{"request": 1, "ids": []}]


@pytest.mark.parametrize(
    ("rows", "ddl", "said"),
    [
        ([("1-0",), ("x",), (None,)], "id STRING", "2 rows have no valid id, for example null"),
        ([(1, 0), (None, 7)], HALVES, "1 row has no valid id, for example null; nothing"),
        ([(1,)], "id BIGINT", r"has no column id \(STRING, ms-seq\).*: it has id bigint"),
    ],
)
def test_a_table_with_something_else_than_ids_is_refused(
    store: Store, tmp_path: Path, rows: list[tuple[object, ...]], ddl: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        read_ids(table_of(store.spark, tmp_path, rows, ddl)).requests(store)
