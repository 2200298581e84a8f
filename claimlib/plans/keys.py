"""What rows are compared by: unsigned ids, names by glob, and the keys that stand for names.

Names do not travel: joins, shuffles and the kernel carry 64-bit hashes, which is exact only if no
two names of the store share a hash.  `named_keys` and `shared_keys` find such names; a run that
meets them is refused.

Ids are unsigned and BIGINT is signed: orders and ranges use `unsigned(x)`, which flips the sign
bit.

Conditions are written as SQL.  Each operator and each name of a Column takes three to five calls
from Python to the JVM, a text of any length three: of the 1.4 s that a dry run of a small store
took, the calls were 0.7 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from claimlib.schema import BUCKET_SQL, TABLES, quote_text
from claimlib.semantics.ids import StreamId, from_bigint, to_bigint
from claimlib.semantics.names import glob_pattern

GROUP = ("stream", "consumer_group")
GROUP_SQL = ", ".join(GROUP)
# -2^63, as Spark and delta-rs both read it.
_SIGN_BIT = "(-9223372036854775807 - 1)"


def bigint_sql(number: int) -> str:
    """A BIGINT as SQL that Spark and DuckDB read alike."""
    return _SIGN_BIT if number == -(2**63) else f"({number:d}L)"


def unsigned(column: Column | str) -> Column:
    """A BIGINT that sorts as the unsigned number whose bits `column` holds."""
    if isinstance(column, str):
        return F.expr(_unsigned_sql(column))
    return column.bitwiseXOR(F.expr(_SIGN_BIT))


def _unsigned_sql(number: str) -> str:
    return f"({number} ^ {_SIGN_BIT})"


def sortable_as_id(sortable: Row) -> StreamId:
    """Return the id of a struct (ms, seq) whose halves were made sortable by `unsigned`."""
    return StreamId(*(from_bigint(half ^ -(2**63)) for half in sortable))


ID_ORDER = tuple(_unsigned_sql(half) for half in ("id_ms", "id_seq"))
"""As SQL: what rows with an id are sorted by."""


def in_id_order() -> tuple[Column, Column]:
    """What rows with an id are sorted by."""
    id_ms, id_seq = map(F.expr, ID_ORDER)
    return id_ms, id_seq


def id_text_sql(ms: str = "id_ms", seq: str = "id_seq") -> str:
    """As SQL: an id as people write it."""
    return f"concat_ws('-', conv(hex({ms}), 16, 10), conv(hex({seq}), 16, 10))"


def unsigned_text(column: Column | str) -> Column:
    """The decimal text of the unsigned number whose bits a BIGINT holds."""
    return F.conv(F.hex(column), 16, 10)


def id_text(ms: str = "id_ms", seq: str = "id_seq") -> Column:
    """An id as people write it."""
    return F.expr(id_text_sql(ms, seq))


def key_json(table: str) -> Column:
    """The key of a row of one of the store's tables in JSON, an id as `ms-seq`."""
    key = [name for name in TABLES[table].key if name not in {"id_ms", "id_seq"}]
    values = [F.col(name) for name in key]
    if "id_ms" in TABLES[table].key:
        halves = [unsigned_text("id_ms"), unsigned_text("id_seq")]
        values.append(F.concat_ws("-", *halves).alias("id"))
    return F.to_json(F.struct(*values))


def repeated_keys(tables: Mapping[str, DataFrame]) -> DataFrame:
    """One row per table of the store in which rows share a key: `table`, `keys` (how many keys have
    more than one row), `example`, one of them in JSON.  One shuffle per table."""
    parts = []
    for name, rows in tables.items():
        copies = rows.groupBy(*TABLES[name].key).agg(F.count("*").alias("copies"))
        repeated = copies.where("copies > 1").select(key_json(name).alias("example"))
        parts.append(
            repeated.agg(F.count("*").alias("keys"), F.min("example").alias("example")).select(
                F.lit(name).alias("table"), "keys", "example"
            )
        )
    return reduce(DataFrame.union, parts).where("keys > 0")


def each(aggregate: str, *names: str) -> list[Column]:
    """An aggregate, as `min`, of each of some columns, under the column's own name."""
    return [F.expr(f"{aggregate}({name}) AS {name}") for name in names]


def id_at_least(ms: str, seq: str, low_ms: str, low_seq: str) -> str:
    """A SQL condition: whether the id in (ms, seq) is not smaller than that in (low_ms, low_seq);
    each of them is a column, or a BIGINT as SQL."""
    return _compared(ms, seq, ">", low_ms, low_seq)


def id_at_most(ms: str, seq: str, high_ms: str, high_seq: str) -> str:
    """The same: whether it is not larger than the id in (high_ms, high_seq)."""
    return _compared(ms, seq, "<", high_ms, high_seq)


def _compared(ms: str, seq: str, operator: str, end_ms: str, end_seq: str) -> str:
    beyond = f"{_unsigned_sql(ms)} {operator} {_unsigned_sql(end_ms)}"
    up_to = f"{_unsigned_sql(seq)} {operator}= {_unsigned_sql(end_seq)}"
    return f"({beyond} OR {ms} = {end_ms} AND {up_to})"


def glob_sql(name: str, glob: str) -> str:
    """A SQL condition: whether the bytes behind the spelled name match a Redis glob."""
    if glob == "*":
        return "true"
    return f"{bytes_sql(name)} RLIKE {quote_text(glob_pattern(glob))}"


def bytes_sql(name: str) -> str:
    """What a glob's pattern is searched in: each byte of the spelled name as one character."""
    return f"decode(encode({name}, 'UTF-8'), 'ISO-8859-1')"


def glob_matches(name: str, glob: str) -> Column:
    """`glob_sql` as a Column."""
    return F.expr(glob_sql(name, glob))


def bucket(buckets: int) -> Column:
    """The bucket of a row's stream, as the tables generate it."""
    return F.expr(BUCKET_SQL.format(buckets=buckets)).alias("bucket")


# As SQL: the keys of a row's stream, of its (stream, consumer_group), and of its owner.  An entry
# without an owner has a key too.
STREAM_KEY = "xxhash64(stream)"
GROUP_KEY = "xxhash64(stream, consumer_group)"
CONSUMER_KEY = "xxhash64(consumer)"


def divided(rows: DataFrame, *key: str, in_one_task: bool) -> DataFrame:
    """The rows, so divided that those of one key are in one partition; few rows all are in one, for
    which nothing is shuffled."""
    return rows.coalesce(1) if in_one_task else rows.repartition(*key)


def bucket_of(stream: str, buckets: int) -> str:
    """As SQL: the bucket of one stream, by its spelled name."""
    return BUCKET_SQL.format(buckets=buckets).replace("stream", quote_text(stream))


def is_group(stream: str, group: str) -> str:
    """A SQL condition: whether a row is of one group, by spelled names."""
    return f"stream = {quote_text(stream)} AND consumer_group = {quote_text(group)}"


def is_stream(stream: str, buckets: int) -> str:
    """A SQL condition: whether a row of a table with buckets is of one stream, by its spelled name:
    no file of another bucket is read."""
    return f"stream = {quote_text(stream)} AND bucket = {bucket_of(stream, buckets)}"


def bigint_intervals(low_ms: int, high_ms: int) -> list[tuple[int, int]]:
    """Unsigned numbers from `low_ms` to `high_ms` as intervals of BIGINTs: two of them where they
    lie on both sides of 2^63, from where on a BIGINT is negative."""
    low, high = to_bigint(low_ms), to_bigint(high_ms)
    return [(low, high)] if low <= high else [(-(2**63), high), (low, 2**63 - 1)]


@dataclass(frozen=True, slots=True)
class IdBounds:
    """Which part of a table a run's ids lie in: intervals, each with its bucket and the smallest
    and the largest BIGINT id_ms."""

    by_bucket: tuple[tuple[int, int, int], ...]

    def condition(self) -> Column:
        """A condition on literals alone, by which Delta's statistics skip files."""
        return F.expr(self.sql())

    def sql(self, table: str = "") -> str:
        """`condition`, on the columns of a table with an alias, such as `t.`."""
        parts = (
            f"({table}bucket = {bucket:d} AND {table}id_ms BETWEEN {low:d} AND {high:d})"
            for bucket, low, high in self.by_bucket
        )
        return f"({' OR '.join(parts) or 'false'})"


IS_SHARED = "one != other"
"""Whether a row of `named_keys` is of a key that two names share."""


def named_keys(
    groups: DataFrame,
    consumers: DataFrame,
    known: DataFrame,
    entries: DataFrame,
    totals: Sequence[Column] = (),
    *,
    in_one_task: bool,
) -> DataFrame:
    """One row per 64-bit key of a consumer, and one per key that two names of the store share, as
    `shared_keys` states it; where there are none of the latter, hashes are exact.

    Streams that exist only in entries count: their ids would be taken for another stream's.  One
    pass over the names of entries.

    Args:
        groups: one row per group with pending entries: stream, consumer_group, and what the totals
            add up.
        consumers: rows whose `consumer` is the owner of a pending entry; further names do no harm.
        known: further groups, by name: known or requested, whatever is pending in them.
        totals: aggregates by group, of numbers, each of which adds up under its own name what it
            has added up of parts: then there is a row per key of a group, too, with the group's
            names and with them.
        in_one_task: whether groups, consumers and entries are few.

    Rows are divided by key once, for both aggregations.  Names are made distinct first: Spark can
    do that by hashes, while it sorts the rows for the least of several texts.
    """
    added_up = groups.columns if totals else []
    of_groups = groups.selectExpr(*added_up, _each_of(_OF_STREAM, _OF_GROUP))
    group_of = [name for name in GROUP if name in added_up]
    rest = [name for name in of_groups.columns if name not in group_of]
    parts = [
        of_groups.selectExpr(
            *(f"CASE WHEN of = 'group' THEN {name} END AS {name}" for name in group_of), *rest
        ),
        consumers.select("consumer").distinct().selectExpr(_each_of(_OF_CONSUMER)),
        keyed_names(known, entries.select("stream").distinct()),
    ]
    everything = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
    keyed = divided(everything, "of", "key", in_one_task=in_one_task)
    by_name = keyed.groupBy("of", "key", "name", *group_of)
    distinct = by_name.agg(*totals) if totals else keyed.distinct()
    wanted = "of IN ('consumer', 'group')" if totals else "of = 'consumer'"
    return _ends(distinct, *each("min", *group_of), *totals).where(f"{wanted} OR {IS_SHARED}")


def keyed_names(groups: DataFrame, streams: DataFrame) -> DataFrame:
    """The names of groups, of their streams and of other streams, with their keys: of, key, name
    (see `shared_keys`)."""
    of_groups = groups.selectExpr(_each_of(_OF_STREAM, _OF_GROUP))
    return of_groups.union(streams.selectExpr(_each_of(_OF_STREAM)))


# The length keeps the two names of a group apart.  A missing owner has a text, because min and max
# skip null.
_GROUP_TEXT = "concat(CAST(length(stream) AS STRING), ':', stream, consumer_group)"
_CONSUMER_TEXT = "coalesce(concat('=', consumer), '')"
_OF_STREAM = f"struct('stream' AS of, {STREAM_KEY} AS key, stream AS name)"
_OF_GROUP = f"struct('group' AS of, {GROUP_KEY} AS key, {_GROUP_TEXT} AS name)"
_OF_CONSUMER = f"struct('consumer' AS of, {CONSUMER_KEY} AS key, {_CONSUMER_TEXT} AS name)"


def spelled_name(of: str, name: str) -> str:
    """Return the name in a row of `keyed_names` or `named_keys` as people spell it."""
    if of == "stream":
        return name
    if of == "consumer":
        return name[1:] or "(no owner)"
    length, _, names = name.partition(":")
    return f"{names[: int(length)]} / {names[int(length) :]}"


def _each_of(*keyed: str) -> str:
    """A row for each, with the columns of, key and name."""
    return f"inline(array({', '.join(keyed)}))"


def owners_of_keys(named: DataFrame) -> DataFrame:
    """One row per owner of pending entries: from_consumer_key, from_consumer (null: an entry
    without an owner), `is_known` (true).  `named` is `named_keys`, if no names share a hash."""
    return named.where("of = 'consumer'").selectExpr(
        "key AS from_consumer_key",
        # As in `_CONSUMER_TEXT`.
        "CASE WHEN one != '' THEN substring(one, 2) END AS from_consumer",
        "true AS is_known",
    )


def shared_keys(keyed: DataFrame) -> DataFrame:
    """One row per (of, key) under which `keyed` (of, key, name) has more than one name: the first
    and the last of them are `one` and `other`."""
    return _ends(keyed).where(IS_SHARED)


def _ends(keyed: DataFrame, *totals: Column) -> DataFrame:
    ends = (F.expr("min(name) AS one"), F.expr("max(name) AS other"))
    return keyed.groupBy("of", "key").agg(*ends, *totals)
