"""Claimed entries are dealt out evenly and repeatably, whatever the order of the rows."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pyarrow as pa
import pytest

from claimlib.engine.relation import Relation, Rows
from claimlib.plans import assignment
from claimlib.plans.keys import GROUP_KEY
from claimlib.semantics.ids import to_bigint
from claimlib.semantics.model import Outcome
from tests.seeds import new_seed

GROUPS = [("s", f"g{n}") for n in range(4)]
SHARING = {GROUPS[0]: ["a"], GROUPS[1]: ["b", "a", "é"], GROUPS[2]: [f"c{n}" for n in range(11)]}
"""The recipients of each group in their order.  The last group has none: one consumer gets all."""


def random_rows(rng):
    """Decided entries: (stream, group, unsigned ms, outcome), each id once."""
    return [
        (*group, ms, rng.choice([Outcome.CLAIMED, Outcome.PARKED, Outcome.DELETED]))
        for group in GROUPS
        for ms in rng.sample([*range(40), *range(2**63 - 20, 2**63 + 20)], rng.randrange(70))
    ]


def relation(engine, names, rows):
    columns = list(zip(*rows, strict=True)) or [[] for _ in names]
    return Relation(engine, Rows(pa.table(dict(zip(names, map(list, columns), strict=True)))))


def dealt(engine, rows, shared):
    """Return the recipient of each entry, by (group, ms, outcome)."""
    signed = [(stream, group, to_bigint(ms), 0, int(of)) for stream, group, ms, of in rows]
    names = ("stream", "consumer_group", "id_ms", "id_seq", "outcome")
    decided = relation(engine, names, signed).select("*", f"{GROUP_KEY} AS group_key")
    recipients = relation(engine, ("stream", "consumer_group", "turn", "consumer"), shared)
    return {
        (row["consumer_group"], row["id_ms"] % 2**64, row["outcome"]): row["recipient"]
        for row in assignment.with_recipient(decided, recipients).collect()
    }


@pytest.fixture
def rng(request):
    return random.Random(new_seed(request.config))


@pytest.mark.parametrize("_number", range(10))
def test_the_nth_by_id_goes_to_recipient_n_evenly_and_whatever_the_order_of_rows(
    engine, rng, _number
):
    rows = random_rows(rng)
    shared = [(*of, n, name) for of, names in SHARING.items() for n, name in enumerate(names)]
    got = dealt(engine, rows, shared)
    assert len(got) == len(rows)
    ids = defaultdict(list)
    for stream, group, ms, outcome in rows:
        ids[stream, group, outcome].append(ms)
    for (stream, group, outcome), of_group in ids.items():
        names = SHARING.get((stream, group), [None])
        received = [got[group, ms, outcome] for ms in sorted(of_group)]
        assert received == [names[n % len(names)] for n in range(len(received))]
        numbers = [Counter(received)[name] for name in names]
        assert max(numbers) - min(numbers) <= 1
        assert sum(numbers) == len(of_group)
    rng.shuffle(rows)
    rng.shuffle(shared)
    assert dealt(engine, rows, shared) == got
