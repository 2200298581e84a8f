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
from functools import partial
from itertools import groupby, islice

from claimlib.commands.runs import EntryFilter
from claimlib.commands.xautoclaim import COMMAND
from claimlib.engine.relation import Record, Relation
from claimlib.errors import RequestError
from claimlib.plans.keys import GROUP, GROUP_SQL, ID_ORDER, id_text_sql, without
from claimlib.runs import Finished
from claimlib.runs.journal import rows_of
from claimlib.schema import Kind
from claimlib.semantics.names import unspell
from claimlib.semantics.words import redis_cli_word
from claimlib.store.guards import check_session
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
    check_session(store)
    entries = _entries(store, finished, chosen)
    by_batch = entries.sql(
        f"SELECT (count(*) + {_IDS_PER_COMMAND - 1}) DIV {_IDS_PER_COMMAND} AS commands,"
        f" count(*) AS ids FROM {{this}} AS this GROUP BY {', '.join(_SAME)}"
    )
    (totals,) = by_batch.select("sum(commands) AS commands", "sum(ids) AS ids").collect()
    total, ids = totals["commands"] or 0, totals["ids"] or 0
    number = total if most is None else min(most, total)
    ordered = entries.order_by(*_SAME, *ID_ORDER)
    if number < total:
        ids = number * _IDS_PER_COMMAND
        ordered = ordered.limit(ids)  # so many commands have no more
    return ServerCommands(islice(_lines(ordered.stream(ids)), number), total - number)


_SAME = (*GROUP, "kind", "consumer", "justid")
"""The columns in which the entries of one command are equal."""


def _entries(store: Store, finished: Finished, chosen: EntryFilter) -> Relation:
    """Return one row per entry that the run changed: `_SAME`, min_idle_ms, id, id_ms, id_seq."""
    of_kinds = partial(rows_of, store, finished.run_seq)
    entries = chosen.of(of_kinds(Kind.CLAIMED, Kind.DELETED))
    return without(entries, of_kinds(Kind.LOST)).sql(
        f"""
        WITH requests AS (
            SELECT {GROUP_SQL},
                CAST(get_json_object(request, '$.min_idle_ms') AS BIGINT) AS min_idle_ms
            FROM {{swept}} AS swept
        )
        SELECT {", ".join(_SAME)}, min_idle_ms, {id_text_sql()} AS id, id_ms, id_seq
        FROM {{this}} AS this LEFT JOIN requests USING ({GROUP_SQL})
        """,
        swept=of_kinds(Kind.SWEPT).select(*GROUP, "request"),
    )


def _lines(rows: Iterable[Record]) -> Iterator[str]:
    for _, of_group in groupby(rows, key=lambda row: [row[name] for name in _SAME]):
        while batch := list(islice(of_group, _IDS_PER_COMMAND)):
            row = batch[0]
            names = [redis_cli_word(unspell(row[name])) for name in GROUP]
            ids = [entry["id"] for entry in batch]
            if row["kind"] == Kind.DELETED:
                yield " ".join(["XACK", *names, *ids])
                continue
            consumer = redis_cli_word(unspell(row["consumer"]))
            options = ["JUSTID"] if row["justid"] else []
            yield " ".join(["XCLAIM", *names, consumer, str(row["min_idle_ms"]), *ids, *options])
