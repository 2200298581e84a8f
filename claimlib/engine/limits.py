"""All thresholds by which an engine or a store chooses how to work.  No result depends on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds in rows, bytes and files.

    Attributes:
        embedded_rows: the embedded engine keeps at most so many rows for several statements.
        session_rows: in a Spark session, at most so many rows are computed by this process.  A few
            hundred bytes a row are some megabytes.
        fetched_rows: at most so many rows of a table elsewhere are fetched for several statements.
            Each statement of Spark sends them to it again.
        stream_rows: the rows of one part of an ordered stream.
        merged_rows: from so many changed rows on, Spark may write whole buckets again.
        rows_per_change: Spark writes buckets again if at least one in so many of their rows
            changes.  Finding, copying and marking rows by a MERGE takes longer then.
        file_rows: Spark writes files of at most so many rows, because a page reads whole files.
        partition_rows: the embedded engine writes one partition at a time if partitions have so
            many rows on average.
        table_bytes: a table with larger (compressed) files is not read into memory.
        unpacked_bytes: at most so many bytes of a table are read into memory, because payloads that
            are alike take up little of a file.
        table_files: delta-rs does not open a table with more files, because it lists all of them.
    """

    embedded_rows: int = 100_000
    session_rows: int = 50_000
    fetched_rows: int = 10_000
    stream_rows: int = 50_000
    merged_rows: int = 100_000
    rows_per_change: int = 4
    file_rows: int = 250_000
    partition_rows: int = 250_000
    table_bytes: int = 8 * 2**20
    unpacked_bytes: int = 64 * 2**20
    table_files: int = 10_000


LIMITS = Limits()
"""The limits that are in force.  Use it as `limits.LIMITS`, so that a test can set others."""
