"""One run over all that can be swept together: a run costs seconds, a stream more costs nothing.

In it are the edges (`edge_cases`) and a random batch of hundreds of groups (`tests.batches`), each
group with a request of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from claimlib.commands.xautoclaim import xautoclaim
from claimlib.engine.relation import Record, Relation
from claimlib.semantics.ids import StreamId, parse_id
from claimlib.semantics.model import AutoclaimRequest, Group
from claimlib.semantics.names import unspell
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, request_table, write_keyspace
from tests.batches import Batch, Names, random_batch
from tests.delta import edge_cases

GROUPS = 200  # of the random batch

Groups = Mapping[bytes, Mapping[bytes, Group]]
Ids = Mapping[Names, Mapping[StreamId, tuple[object, ...]]]


@dataclass(frozen=True)
class OneRun:
    """What stood in the tables before and after the run, and what it replied.

    `claimed` and `deleted` hold each group's ids in order: of a claimed one the fields as they
    stand in the reply, of a deleted one nothing.
    """

    batch: Batch
    requests: Mapping[Names, AutoclaimRequest]
    instants: Mapping[bytes, int]
    before: Groups
    after: Groups
    claimed: Ids
    deleted: Ids
    counts: Mapping[str, int]


def sweep_everything(store: Store) -> OneRun:
    """Write all streams, run once, and read everything back."""
    batch = random_batch(GROUPS, seed=1)
    keyspace = {
        **edge_cases.KEYSPACE,
        **batch.keyspace,
    }
    requests = {
        **edge_cases.REQUESTS,
        **batch.requests,
    }
    instants = {
        **dict.fromkeys(edge_cases.KEYSPACE, edge_cases.NOW_MS),
        **batch.instants,
    }
    assert len(keyspace) == len(edge_cases.KEYSPACE) + len(batch.keyspace)
    write_keyspace(store, keyspace, instants)
    before = read_groups(store)
    reply = xautoclaim(store, request_table(store.engine, requests))
    return OneRun(
        batch=batch,
        requests=requests,
        instants=instants,
        before=before,
        after=read_groups(store),
        claimed=_by_group(reply.claimed, "fields"),
        deleted=_by_group(reply.deleted),
        counts=reply.counts,
    )


def _by_group(rows: Relation, *columns: str) -> Ids:
    by_names: dict[Names, dict[StreamId, tuple[object, ...]]] = defaultdict(dict)
    for row in rows.select("stream", "consumer_group", "id", *columns).collect():
        stream_id = parse_id(row["id"])
        assert row["id"] == str(stream_id)
        names = unspell(row["stream"]), unspell(row["consumer_group"])
        by_names[names][stream_id] = tuple(_pairs(row[column]) for column in columns)
    return {names: dict(sorted(ids.items())) for names, ids in by_names.items()}


def _pairs(fields: list[Record] | None) -> list[tuple[object, ...]] | None:
    return fields and [tuple(pair.values()) for pair in fields]
