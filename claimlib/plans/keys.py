"""Compare rows by unsigned ids, by globs on names, and by keys that represent names.

Joins, shuffles and the kernel use 64-bit hashes instead of names.  This is exact only if no two
names of the store share a hash.  `named_keys` finds names that share one.  A run is refused if
there are such names.

Ids are unsigned, and BIGINT is signed.  So ids are sorted and compared by `unsigned_sql(x)`, which
flips the sign bit.
"""

from __future__ import annotations

from collections.abc import Mapping

from claimlib.engine.relation import Relation
from claimlib.schema import BUCKET_SQL, TABLES, quote_text
from claimlib.semantics.ids import StreamId, from_bigint, to_bigint
from claimlib.semantics.names import glob_pattern

GROUP = ("stream", "consumer_group")
GROUP_SQL = ", ".join(GROUP)
ENTRY = (*GROUP, "id_ms", "id_seq")
"""The columns that identify an entry of a group."""
ENTRY_SQL = ", ".join(ENTRY)
# -2^63, in a form that Spark and delta-rs both read.
_SIGN_BIT = "(-9223372036854775807 - 1)"


def bigint_sql(number: int) -> str:
    """Return a BIGINT as SQL that Spark and DuckDB both read."""
    return _SIGN_BIT if number == -(2**63) else f"({number:d}L)"


def unsigned_sql(number: str) -> str:
    """Return SQL for a BIGINT that sorts as the unsigned number with the bits of `number`."""
    return f"({number} ^ {_SIGN_BIT})"


def sortable_as_id(sortable: Mapping[str, int]) -> StreamId:
    """Return the id of a struct (ms, seq) whose halves were made sortable by `unsigned_sql`."""
    return StreamId(*(from_bigint(sortable[half] ^ -(2**63)) for half in ("ms", "seq")))


ID_ORDER = tuple(unsigned_sql(half) for half in ("id_ms", "id_seq"))
"""The SQL expressions by which rows with an id are sorted."""


def id_text_sql(ms: str = "id_ms", seq: str = "id_seq") -> str:
    """Return SQL for an id as a text, `ms-seq`."""
    return f"concat_ws('-', conv(hex({ms}), 16, 10), conv(hex({seq}), 16, 10))"


def key_json_sql(table: str) -> str:
    """Return SQL for the key of a row of a store's table, in JSON.  An id is written `ms-seq`."""
    key = [name for name in TABLES[table].key if name not in {"id_ms", "id_seq"}]
    if "id_ms" in TABLES[table].key:
        key.append(f"{id_text_sql()} AS id")
    return f"to_json(struct({', '.join(key)}))"


def same_entry(left: str, right: str, *also: str) -> str:
    """Return the SQL condition for rows of two tables that have the same group and id.

    Args:
        left, right: the aliases of the tables.
        also: further columns that must be equal.
    """
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in (*ENTRY, *also))


def without(rows: Relation, others: Relation, *also: str) -> Relation:
    """Return the rows whose group and id have no row in `others`.

    Args:
        also: further columns that must be equal.
    """
    return rows.lacking(others, same_entry("s", "t", *also))


def id_at_least(ms: str, seq: str, low_ms: str, low_seq: str) -> str:
    """Return the SQL condition that the id (ms, seq) is at least the id (low_ms, low_seq).

    Each argument is a column, or a BIGINT as SQL.
    """
    return _compared(ms, seq, ">", low_ms, low_seq)


def id_at_most(ms: str, seq: str, high_ms: str, high_seq: str) -> str:
    """Return the SQL condition that the id (ms, seq) is at most the id (high_ms, high_seq)."""
    return _compared(ms, seq, "<", high_ms, high_seq)


def _compared(ms: str, seq: str, operator: str, end_ms: str, end_seq: str) -> str:
    beyond = f"{unsigned_sql(ms)} {operator} {unsigned_sql(end_ms)}"
    up_to = f"{unsigned_sql(seq)} {operator}= {unsigned_sql(end_seq)}"
    return f"({beyond} OR {ms} = {end_ms} AND {up_to})"


def glob_sql(name: str, glob: str) -> str:
    """Return the SQL condition that the bytes of a spelled name match a Redis glob."""
    if glob == "*":
        return "true"
    return f"{bytes_sql(name)} RLIKE {quote_text(glob_pattern(glob))}"


def bytes_sql(name: str) -> str:
    """Return SQL for the text in which a glob's pattern is searched.

    Each byte of the spelled name is one character.
    """
    return f"decode(encode({name}, 'UTF-8'), 'ISO-8859-1')"


# SQL for the keys of a row's stream, of its (stream, consumer_group), and of its owner.  The key of
# the owner is not null, even if an entry has no owner.
STREAM_KEY = "xxhash64(stream)"
GROUP_KEY = "xxhash64(stream, consumer_group)"
CONSUMER_KEY = "xxhash64(consumer)"


def each_sql(aggregate: str, *names: str) -> str:
    """Return SQL that applies an aggregate such as `min` to columns, and keeps their names."""
    return ", ".join(f"{aggregate}({name}) AS {name}" for name in names)


def bucket_of(stream: str, buckets: int) -> str:
    """Return SQL for the bucket of one stream, by its spelled name."""
    return BUCKET_SQL.format(buckets=buckets).replace("stream", quote_text(stream))


def is_group(stream: str, group: str) -> str:
    """Return the SQL condition that a row belongs to one group, by spelled names."""
    return f"stream = {quote_text(stream)} AND consumer_group = {quote_text(group)}"


def is_stream(stream: str, buckets: int) -> str:
    """Return the SQL condition that a row of a table with buckets belongs to one stream.

    `stream` is its spelled name.  No file of another bucket is read.
    """
    return f"stream = {quote_text(stream)} AND bucket = {bucket_of(stream, buckets)}"


def bigint_intervals(low_ms: int, high_ms: int) -> list[tuple[int, int]]:
    """Return the unsigned numbers from `low_ms` to `high_ms` as intervals of BIGINTs.

    There are two intervals if the numbers are on both sides of 2^63, because the BIGINT of a number
    from 2^63 on is negative.
    """
    low, high = to_bigint(low_ms), to_bigint(high_ms)
    return [(low, high)] if low <= high else [(-(2**63), high), (low, 2**63 - 1)]


IS_SHARED = "one != other"
"""The SQL condition that a row of `named_keys` is for a key that several names share."""


def named_keys(
    groups: Relation, consumers: Relation, known: Relation, entries: Relation
) -> Relation:
    """Return one row per key of a consumer, and one per key of groups or streams that share it.

    A key is a 64-bit hash.  Columns: `of` (group, stream or consumer), `key`, `one` and `other`:
    the first and the last name with this key, which are equal if there is only one name.  If
    `IS_SHARED` is false for all rows, no names share a key.

    Streams that exist only in entries count, too.  If such a stream shared a key with another
    stream, its ids would be mistaken for ids of that stream.

    Args:
        groups: rows with the stream and consumer_group of pending entries.
        consumers: rows with the owners of pending entries in `consumer`.  Other rows are allowed.
        known: rows with the stream and consumer_group of further groups, which may have no pending
            entries.
        entries: rows with the `stream` of entries.
    """
    return groups.sql(
        f"""
        WITH groups AS (
            SELECT {GROUP_SQL} FROM {{this}} AS this
            UNION SELECT {GROUP_SQL} FROM {{known}} AS known
        ), streams AS (
            SELECT stream FROM groups UNION SELECT stream FROM {{entries}} AS entries
        ), names AS (
            SELECT 'group' AS of, {GROUP_KEY} AS key, {_GROUP_TEXT} AS name FROM groups
            UNION ALL SELECT 'stream' AS of, {STREAM_KEY} AS key, stream AS name FROM streams
            UNION ALL SELECT 'consumer' AS of, {CONSUMER_KEY} AS key, {_CONSUMER_TEXT} AS name
                FROM (SELECT DISTINCT consumer FROM {{consumers}} AS consumers) AS consumers
        )
        SELECT of, key, min(name) AS one, max(name) AS other FROM names GROUP BY of, key
        HAVING of = 'consumer' OR min(name) <> max(name)
        """,
        consumers=consumers,
        known=known,
        entries=entries,
    )


# The length of the stream's name keeps the two names of a group apart.  A missing owner is a text,
# because min and max skip null.
_GROUP_TEXT = "concat(CAST(length(stream) AS STRING), ':', stream, consumer_group)"
_CONSUMER_TEXT = "coalesce(concat('=', consumer), '')"


def spelled_name(of: str, name: str) -> str:
    """Return the name in a row of `named_keys` as messages show it."""
    if of == "stream":
        return name
    if of == "consumer":
        return name[1:] or "(no owner)"
    length, _, names = name.partition(":")
    return f"{names[: int(length)]} / {names[int(length) :]}"


def owners_of_keys(named: Relation) -> Relation:
    """Return one row per owner of pending entries.

    Columns: from_consumer_key, from_consumer (None for entries without an owner) and `is_known`,
    which is always true.  After a LEFT JOIN it is null if the key was not found.

    Args:
        named: `named_keys`, in which no names share a key.
    """
    return named.where("of = 'consumer'").select(
        "key AS from_consumer_key",
        # As in `_CONSUMER_TEXT`.
        "CASE WHEN one <> '' THEN substring(one, 2) END AS from_consumer",
        "true AS is_known",
    )
