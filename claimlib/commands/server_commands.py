"""What a sweep did, as commands for the server: claims in a store are not written back by
themselves, so a person reviews these and runs them (`claimlib runs STORE RUN --as-commands`).

Each XCLAIM bears the minimum idle time of the sweep's request: the server claims only what is idle
for as long when the command runs, so an entry that was claimed again since the snapshot stays with
its consumer.  An id whose entry is gone from the stream is acknowledged by XACK, which removes it
from the pending entries list as XAUTOCLAIM does; ids do not come back, so that needs no condition.
Source: Redis' command documents of XCLAIM and XACK, version 7.2; redis-cli's quoting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from claimlib.commands.runs import EntryFilter
from claimlib.commands.xautoclaim import COMMAND
from claimlib.engine.relation import Record
from claimlib.engine.spark import relation_of
from claimlib.errors import RequestError
from claimlib.plans.keys import GROUP, id_text, in_id_order, unsigned
from claimlib.runs import Finished
from claimlib.runs.journal import rows_of
from claimlib.schema import Kind
from claimlib.semantics.names import unspell
from claimlib.semantics.words import redis_cli_word
from claimlib.store.tables import Store

_IDS_PER_COMMAND = 100


@dataclass(frozen=True, slots=True)
class ServerCommands:
    """The commands of a run, by stream and group.

    Attributes:
        lines: as redis-cli reads them, once; they need not have room in memory.
        hidden: how many more commands there are.
    """

    lines: Iterator[str]
    hidden: int


def server_commands(
    store: Store,
    finished: Finished,
    most: int | None = None,
    chosen: EntryFilter = EntryFilter(),  # noqa: B008 - it is frozen
) -> ServerCommands:
    """The first `most` commands (null: all) that do on the server what a sweep did in the store.

    Args:
        chosen: the entries that the commands are about.

    Raises:
        RequestError: the run is not a sweep or a page.
    """
    if finished.command != COMMAND:
        raise RequestError(
            f"run {finished.key} is not an xautoclaim: only what a sweep or a page did can be shown"
            " as commands",
            run=finished.key,
        )
    store.check_reads_all()
    commands = _batches(store, finished, chosen)
    order = (*GROUP, "kind", "consumer", "justid", "number")
    total = commands.count()
    number = total if most is None else min(most, total)
    ordered = relation_of(commands).order_by(*order)
    first = ordered if number == total else ordered.limit(number)
    return ServerCommands(_lines(first.stream(number)), total - number)


def _batches(store: Store, finished: Finished, chosen: EntryFilter) -> DataFrame:
    """One row per command: kind, stream, consumer_group, consumer, justid, min_idle_ms, ids."""
    requests = rows_of(store, finished.run_seq, Kind.SWEPT).select(
        *GROUP, F.get_json_object("request", "$.min_idle_ms").cast("BIGINT").alias("min_idle_ms")
    )
    entries = chosen.of(rows_of(store, finished.run_seq, Kind.CLAIMED, Kind.DELETED))
    lost = rows_of(store, finished.run_seq, Kind.LOST).select(*GROUP, "id_ms", "id_seq")
    done = entries.join(lost, on=[*GROUP, "id_ms", "id_seq"], how="left_anti")
    same = (*GROUP, "kind", "consumer", "justid")
    by_id = Window.partitionBy(*same).orderBy(*in_id_order())
    number = F.floor((F.row_number().over(by_id) - 1) / _IDS_PER_COMMAND)
    parts = (unsigned("id_ms").alias("ms"), unsigned("id_seq").alias("seq"))
    id_ = F.struct(*parts, id_text().alias("text"))
    batches = (
        done.withColumn("number", number)
        .groupBy(*same, "number")
        .agg(
            F.transform(F.sort_array(F.collect_list(id_)), lambda entry: entry["text"]).alias("ids")
        )
    )
    return batches.join(requests, on=list(GROUP), how="left")


def _lines(rows: Iterable[Record]) -> Iterator[str]:
    for row in rows:
        names = [redis_cli_word(unspell(row[name])) for name in GROUP]
        if row["kind"] == Kind.DELETED:
            yield " ".join(["XACK", *names, *row["ids"]])
            continue
        consumer = redis_cli_word(unspell(row["consumer"]))
        options = ["JUSTID"] if row["justid"] else []
        yield " ".join(["XCLAIM", *names, consumer, str(row["min_idle_ms"]), *row["ids"], *options])
