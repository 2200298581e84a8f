"""State all thresholds by which engines and stores choose how to work.

Results do not depend on the thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Hold the thresholds in rows, bytes, files and partitions.

    Attributes:
        embedded_rows: the most rows that the embedded engine keeps for several statements.
        session_rows: the most rows that this process computes and writes itself although it has a
            Spark session.  With a few hundred bytes per row, these are some megabytes.
        fetched_rows: the most rows that are fetched from Spark for several statements.  More rows
            would cost time, because each Spark statement sends them to Spark again.
        stream_rows: the number of rows in one part of an ordered stream.
        merged_rows: the fewest changed rows with which Spark may write whole buckets again.
        rows_per_change: Spark writes buckets again if at least one in this number of their rows
            changes, because a MERGE is then slower.
        file_rows: the most rows in a file that Spark writes, because a page reads whole files.
        partition_rows: the fewest rows per partition, on average, with which the embedded engine
            computes each partition by itself.
        partitions_at_once: the number of these partitions that it computes at the same time.
        table_bytes: the largest (compressed) size of a table that is read into memory.
        unpacked_bytes: the most uncompressed bytes of a table that are read into memory, because
            files compress similar payloads well.
        table_files: the most files of a table that delta-rs opens, because it lists all of them.
        compacted_bytes: the target size of a file that the embedded engine writes in a compaction.
    """

    embedded_rows: int = 100_000
    session_rows: int = 50_000
    fetched_rows: int = 10_000
    stream_rows: int = 50_000
    merged_rows: int = 100_000
    rows_per_change: int = 4
    file_rows: int = 250_000
    partition_rows: int = 250_000
    partitions_at_once: int = 2
    table_bytes: int = 8 * 2**20
    unpacked_bytes: int = 64 * 2**20
    table_files: int = 10_000
    compacted_bytes: int = 100 * 2**20


LIMITS = Limits()
"""The limits in use.  Write `limits.LIMITS`, so that a test can set other limits."""
