"""Names are said and checked in the same way by both engines."""

from __future__ import annotations

import json
import re
from itertools import product

import pyarrow as pa

from claimlib.engine.relation import Executor, Relation, Rows
from claimlib.errors import NameSpellingError
from claimlib.plans.column_readers import is_spelling_sql
from claimlib.plans.keys import key_json_sql
from claimlib.semantics.names import spell, unspell

BYTES = [*(bytes([byte]) for byte in range(256)), *map(str.encode, "é\u2028\U0001f600'/{")]
NAMES = [*map(spell, BYTES), "", "".join(map(chr, range(128)))]
PIECES = ("a", "é", "\n", "\\", "\\\\", "x", "\\xff", "\\xFF", "\\x7f", "\\xc3\\xa9", "\\xc3", "")


def test_a_key_in_json_is_the_same_text(engine: Executor) -> None:
    rows = pa.table(
        {
            "stream": NAMES,
            "consumer_group": NAMES[::-1],
            "consumer": [None, *NAMES[1:]],
            "id_ms": [-1 - n for n in range(len(NAMES))],
            "id_seq": range(len(NAMES)),
        }
    )
    keys = Relation(engine, Rows(rows)).select(
        *(f"{key_json_sql(table)} AS {table}" for table in ("streams", "consumers", "pending")),
        "id_seq",
    )
    assert keys.order_by("id_seq").collect() == [
        {
            "streams": as_json(stream=name),
            "consumers": as_json(
                stream=name, consumer_group=group, **({"consumer": name} if n else {})
            ),
            "pending": as_json(stream=name, consumer_group=group, id=f"{2**64 - 1 - n}-{n}"),
            "id_seq": n,
        }
        for n, (name, group) in enumerate(zip(NAMES, NAMES[::-1], strict=True))
    ]


def as_json(**values: str) -> str:
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda digits: digits[0].upper(), text)


def test_a_spelling_is_what_spells_a_name(engine: Executor) -> None:
    texts = sorted({"".join(pieces) for pieces in product(PIECES, repeat=3)})
    expected = [spells(text) for text in texts]
    assert min(expected.count(True), expected.count(False)) > 100
    rows = Relation(engine, Rows(pa.table({"text": texts, "n": range(len(texts))})))
    spelled = rows.select(f"{is_spelling_sql('text')} AS is_spelling", "n").order_by("n").collect()
    assert [row["is_spelling"] for row in spelled] == expected


def spells(text: str) -> bool:
    try:
        unspell(text)
    except NameSpellingError:
        return False
    return True
