"""What a snapshot and an import have in common: each makes a store the mirror of one source."""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.errors import SourceMismatchError
from claimlib.plans.keys import KeyMode, group_key, shared_keys, stream_key
from claimlib.runs import Begun
from claimlib.runs.journal import Kind

SNAPSHOT = "snapshot"
"""The command that reads a server."""


def check_source(begun: Begun, source: str, foreign: Column | None = None) -> None:
    """Refuse a source that is not the one that the store mirrors.

    Args:
        foreign: a condition on `command` under which a run of the same source's name was of another
            one, too; null: there is none.

    Raises:
        SourceMismatchError: naming both.
    """
    # The journal knows it still where no stream is left.
    decided = begun.read("journal").where(F.col("kind") == Kind.RUN).select("source", "command")
    streams = begun.read("streams").select("source", F.lit(None).alias("command"))
    other = F.col("source") != source
    if foreign is not None:
        other |= foreign
    row = streams.union(decided).where(other).first()
    declared = begun.store.declared_source
    if row is None and declared in {None, source}:
        return
    kept = declared if row is None else row["source"]
    how = f", read by claimlib {row['command']}" if row is not None and row["command"] else ""
    raise SourceMismatchError(
        f"the store {begun.store.where} mirrors {kept}{how}, not {source}: one store mirrors one"
        " source; make another store for this one",
        kept=kept,
        given=source,
    )


def key_mode(begun: Begun, groups: DataFrame, streams: DataFrame) -> KeyMode:
    """Hashes, unless two names of the source and the store share one.

    Args:
        groups: rows with stream and consumer_group, one per group of the source.
        streams: rows with stream, one per stream of it.
    """
    names = groups.select("stream", "consumer_group").union(
        begun.read("groups").select("stream", "consumer_group")
    )
    hashes = KeyMode.HASHES
    all_streams = (
        streams.select("stream")
        .union(begun.read("streams").select("stream"))
        .union(names.select("stream"))
    )
    keyed = all_streams.select(F.lit("stream"), stream_key(hashes), "stream").union(
        names.select(F.lit("group"), group_key(hashes), group_key(KeyMode.NAMES))
    )
    exact = shared_keys(keyed.toDF("of", "key", "name")).isEmpty()
    return hashes if exact else KeyMode.NAMES


def server_of(begun: Begun) -> str | None:
    """The server that the store mirrors: one that a snapshot has read; null: none."""
    # Whoever has begun has finished all runs before: the small table of them knows.
    run = begun.read("runs").where(F.col("command") == SNAPSHOT).select("request").first()
    return None if run is None else str(json.loads(run["request"])["source"])
