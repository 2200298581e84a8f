"""Print what a run did as commands for the server (`claimlib runs STORE RUN --as-commands`).

A run changes only the store.  A user reviews the commands and runs them.

Each XCLAIM has the minimum idle time of its request.  The server claims only entries that have been
idle for at least this time when the command runs.  So an entry that was claimed or delivered within
that time stays with its consumer.  The minimum idle time of a retirement is 0.  XACK has no
condition.  From the pending entries list it removes the ids that an `xack` acknowledged, and the
ids whose entry no longer exists in the stream.  `claimlib writeback` checks more.
Source: Redis' reference pages of XCLAIM, XACK, XPENDING, XGROUP DELCONSUMER and EVAL, version 7.2,
and the quoting rules of redis-cli.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice

from claimlib.commands.run_commands import WITH_SERVER_COMMANDS
from claimlib.commands.runs import EntryFilter
from claimlib.engine.relation import Record, Relation
from claimlib.errors import RequestError
from claimlib.live.writing import REMOVE_IF_NOTHING_PENDING
from claimlib.plans.keys import GROUP, ID_ORDER, id_text_sql, without
from claimlib.runs import FinishedRun
from claimlib.runs.journal import rows_of
from claimlib.schema import Kind
from claimlib.semantics.names import unspell
from claimlib.semantics.words import redis_cli_word
from claimlib.store.guards import check_session
from claimlib.store.tables import Store

_IDS_PER_COMMAND = 100


@dataclass(frozen=True, slots=True)
class ServerCommands:
    """Hold the commands of a run, in the order in which the server is to run them.

    Attributes:
        lines: the commands in the syntax of redis-cli.  The iterator can be read only once.  The
            commands need not fit into memory.
        hidden: the number of commands that `lines` leaves out, because `most` is smaller.
    """

    lines: Iterator[str]
    hidden: int


def server_commands(
    store: Store,
    finished: FinishedRun,
    most: int | None = None,
    chosen: EntryFilter = EntryFilter(),  # noqa: B008 - it is frozen
) -> ServerCommands:
    """Return the commands that repeat on the server what a run did, at most `most` of them.

    Args:
        most: the largest number of commands.  None means all.
        chosen: the entries that the commands are about.

    Raises:
        RequestError: the run does not claim, acknowledge or retire.
    """
    if finished.command not in WITH_SERVER_COMMANDS:
        raise RequestError(
            f"run {finished.key} has no commands for the server: only"
            f" {', '.join(WITH_SERVER_COMMANDS[:-1])} and {WITH_SERVER_COMMANDS[-1]} have",
            run=finished.key,
        )
    check_session(store)
    entries = _entries(store, finished, chosen)
    removals = _consumer_removals(store, finished, chosen)
    by_key = entries.sql(
        f"SELECT (count(*) + {_IDS_PER_COMMAND - 1}) DIV {_IDS_PER_COMMAND} AS commands,"
        f" count(*) AS ids FROM {{this}} AS this GROUP BY {', '.join(_COMMAND_KEY)}"
    )
    (totals,) = by_key.select("sum(commands) AS commands", "sum(ids) AS ids").collect()
    entry_commands, expected_rows = totals["commands"] or 0, totals["ids"] or 0
    total = entry_commands + len(removals)
    number = total if most is None else min(most, total)
    ordered = entries.order_by(*_COMMAND_KEY, "position", *ID_ORDER)
    if number < entry_commands:
        expected_rows = number * _IDS_PER_COMMAND  # `number` commands have at most this many ids
        ordered = ordered.limit(expected_rows)
    lines = chain(_lines(ordered.stream(expected_rows)), removals)
    return ServerCommands(islice(lines, number), total - number)


# ------------------------------------------------------------------- entries

_CLAIMED = (Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED)
_REMOVED = (Kind.DELETED, Kind.ACKED)
_COMMAND_KEY = ("request_number", *GROUP, "kind", "consumer", "justid", "is_forced")
"""List the columns in which the entries of one command are equal."""
_VALUES = {"IDLE": "idle_ms", "TIME": "time_ms", "RETRYCOUNT": "retrycount", "LASTID": "last_id"}
"""Map the options of XCLAIM that have a value to their columns."""
_REQUEST_FIELDS = {
    "force": "BOOLEAN",
    **dict.fromkeys(("min_idle_ms", "idle_ms", "time_ms", "retrycount"), "BIGINT"),
    "last_id": "STRING",
}
"""Map the fields of a request's JSON to their SQL types."""


def _entries(store: Store, finished: FinishedRun, chosen: EntryFilter) -> Relation:
    """Return one row per entry that the run changed, and one per request with a last id.

    Columns: `_COMMAND_KEY`, position, min_idle_ms, those of `_VALUES`, id, id_ms and id_seq.
    `kind` is `claimed`, `deleted` (also for acknowledged entries) or `lastid`.  A row of the kind
    `lastid` has the id 0-0.  No entry has this id, so its XCLAIM raises the last id and claims
    nothing.
    """
    of_kinds = partial(rows_of, store, finished.run_seq)
    entries = chosen.of(of_kinds(*_CLAIMED, *_REMOVED))
    request = ("request_number", *GROUP)
    options = (
        f"CAST(get_json_object(request, '$.{name}') AS {type_}) AS {name}"
        for name, type_ in _REQUEST_FIELDS.items()
    )
    requests = of_kinds(Kind.SWEPT, Kind.REQUESTED).select(
        *request,
        "consumer AS request_consumer",
        *("id_ms", "id_seq"),  # the filter below reads them
        *options,
    )
    removed = ", ".join(f"'{kind}'" for kind in _REMOVED)
    return without(entries, of_kinds(Kind.LOST)).sql(
        f"""
        SELECT {", ".join(f"e.{name}" for name in request)}, e.consumer, justid, position,
            CASE WHEN kind IN ({removed}) THEN '{Kind.DELETED}' ELSE '{Kind.CLAIMED}' END AS kind,
            coalesce(force, false) AND from_delivery_time_ms IS NULL AS is_forced,
            min_idle_ms, idle_ms, time_ms, retrycount, CAST(NULL AS STRING) AS last_id,
            {id_text_sql("e.id_ms", "e.id_seq")} AS id, e.id_ms, e.id_seq
        FROM {{this}} AS e LEFT JOIN {{requests}} AS r
            ON {" AND ".join(f"e.{name} <=> r.{name}" for name in request)}
        UNION ALL
        SELECT {", ".join(request)}, request_consumer, true, 0L, '{Kind.LASTID}', false,
            min_idle_ms, NULL, NULL, NULL, last_id, '0-0', 0L, 0L
        FROM {{with_last_id}} AS with_last_id
        """,
        requests=requests,
        with_last_id=chosen.of(requests.where("last_id IS NOT NULL")),
    )


def _lines(rows: Iterable[Record]) -> Iterator[str]:
    for _, of_command in groupby(rows, key=lambda row: [row[name] for name in _COMMAND_KEY]):
        while batch := list(islice(of_command, _IDS_PER_COMMAND)):
            yield _line(batch[0], [entry["id"] for entry in batch])


def _line(row: Record, ids: Sequence[str]) -> str:
    names = _names(row, *GROUP)
    if row["kind"] == Kind.DELETED:
        return " ".join(["XACK", *names, *ids])
    values = [(word, row[name]) for word, name in _VALUES.items() if row[name] is not None]
    options = [
        *(f"{word} {value}" for word, value in values),
        *(["FORCE"] if row["is_forced"] else []),
        *(["JUSTID"] if row["justid"] else []),
    ]
    min_idle = str(row["min_idle_ms"])
    return " ".join(["XCLAIM", *names, *_names(row, "consumer"), min_idle, *ids, *options])


def _names(row: Record, *columns: str) -> list[str]:
    return [redis_cli_word(unspell(row[name])) for name in columns]


# ------------------------------------------------------------------- retired consumers


def _consumer_removals(store: Store, finished: FinishedRun, chosen: EntryFilter) -> list[str]:
    """Return the commands that remove the consumers that the run removed.

    XGROUP DELCONSUMER drops the pending entries of the consumer, so a script calls it only if there
    are none.
    """
    if not finished.counts.get("retired"):
        return []
    retired = chosen.of(rows_of(store, finished.run_seq, Kind.RETIRED))
    script = redis_cli_word(REMOVE_IF_NOTHING_PENDING)
    return [
        " ".join(["EVAL", script, "1", *_names(row, *GROUP, "consumer")])
        for row in retired.collect()
    ]
