"""Find the rows that one XAUTOCLAIM with a COUNT examines in each group, and their end.

A page examines at most the first `10 * COUNT` pending entries from its start.  It stops earlier if
COUNT of them were claimed or deleted (see `semantics.scan`).  The next page begins at the following
entry.  So only the first `10 * COUNT + 1` entries matter, which are called the page's rows.  Their
end is not known beforehand.  `counted` counts the ids of a window in bins.  With these counts the
caller widens or narrows the window, until it has the page's rows and few others.  No row outside
the window is read.
"""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP_SQL, ID_ORDER, id_at_least, unsigned_sql
from claimlib.semantics.model import SCAN_BUDGET_FACTOR

BINS = 64


def counted(pending: Relation, windows: Relation) -> Relation:
    """Return the bin in which each page's rows end, one row per group with entries in its window.

    Columns:

    - stream, consumer_group.
    - `bin`: the first bin with `page_rows` rows or more up to its end.
    - `up_to_bin`: the number of rows up to the end of that bin.
    - `low_ms`: the smallest id_ms in the window.

    `bin` and `up_to_bin` are None if the window has fewer rows.  Rows are counted in their
    partitions.  At most `BINS` + 1 numbers per group and partition are shuffled.

    Args:
        pending: rows of pending, limited to the files that the windows overlap.
        windows: one row per page: stream, consumer_group, start_ms, start_seq, `page_rows` (the
            number of the page's rows), and the window.  The window is `base_ms`, `last_ms`,
            `far_ms` and `bin_ms`.  It ends at `last_ms`.  Ids from the start up to `base_ms` are in
            bin 0.  Ids after `far_ms` are in bin `BINS`.  Each bin has a width of `bin_ms` between
            `base_ms` and `far_ms`.
    """
    id_ms, base_ms, far_ms = map(unsigned_sql, ("id_ms", "base_ms", "far_ms"))
    # Only ids between `base_ms` and `far_ms` are subtracted, because other differences could exceed
    # 64 bits.
    above = f"CASE WHEN {id_ms} > {base_ms} AND {id_ms} <= {far_ms} THEN {id_ms} - {base_ms} END"
    return pending.sql(
        f"""
        WITH in_window AS ({_IN_WINDOW}), placed AS (
            SELECT {GROUP_SQL}, page_rows, {id_ms} AS sortable, CASE
                WHEN {id_ms} <= {base_ms} THEN 0
                WHEN {id_ms} > {far_ms} THEN {BINS:d} ELSE {above} div bin_ms END AS bin
            FROM in_window
        ), binned AS (
            SELECT {GROUP_SQL}, page_rows, bin, count(*) AS n, min(sortable) AS low FROM placed
            GROUP BY {GROUP_SQL}, page_rows, bin
        ), summed AS (
            SELECT *, sum(n) OVER (PARTITION BY {GROUP_SQL} ORDER BY bin) AS up_to FROM binned
        )
        SELECT {GROUP_SQL}, min(CASE WHEN up_to >= page_rows THEN bin END) AS bin,
            min(CASE WHEN up_to >= page_rows THEN up_to END) AS up_to_bin,
            {unsigned_sql("min(low)")} AS low_ms
        FROM summed GROUP BY {GROUP_SQL}
        """,
        windows=windows,
    )


def ends(pending: Relation, windows: Relation) -> Relation:
    """Return the id of the last of each page's rows, for pages that have all `page_rows` rows.

    Columns: stream, consumer_group, `page_end_ms` and `page_end_seq`.  A page with fewer rows has
    no row here.  The arguments are those of `counted`.
    """
    return pending.sql(
        f"""
        WITH in_window AS ({_IN_WINDOW}), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY {GROUP_SQL} ORDER BY {_ID_ORDER}) AS rank
            FROM in_window
        )
        SELECT {GROUP_SQL}, id_ms AS page_end_ms, id_seq AS page_end_seq FROM ranked
        WHERE rank = page_rows
        """,
        windows=windows,
    )


_ID_ORDER = ", ".join(ID_ORDER)
# The pending ids in each page's window, with the columns of the window that `counted` needs.
_IN_WINDOW = f"""
    SELECT /*+ BROADCAST(windows) */ {GROUP_SQL}, id_ms, id_seq, page_rows, base_ms, far_ms, bin_ms
    FROM (SELECT {GROUP_SQL}, id_ms, id_seq FROM {{this}} AS this) AS ids
        JOIN {{windows}} AS windows USING ({GROUP_SQL})
    WHERE {id_at_least("id_ms", "id_seq", "start_ms", "start_seq")}
        AND {unsigned_sql("id_ms")} <= {unsigned_sql("last_ms")}
"""


def examined(candidates: Relation) -> Relation:
    """Return `sweep.candidates` with `is_examined` and `rank`.

    COUNT and the scan budget decide which rows of a page are examined.  `rank` is the position of a
    row in its page.  It is None for the rows of a sweep, which are all examined.  If two rows have
    the same id, both or neither are examined, so that the kernel finds the duplicate.

    Args:
        candidates: all rows of the sweeps, and each page's rows.
    """
    others = ", ".join(name for name in candidates.columns if name != "is_examined")
    return candidates.sql(
        f"""
        WITH ranked AS (
            SELECT *, row_number() OVER (PARTITION BY group_key ORDER BY {_ID_ORDER}) AS rank,
                count_if(is_hit) OVER (PARTITION BY group_key ORDER BY {_ID_ORDER}
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS hits_before
            FROM {{this}} AS this WHERE count IS NOT NULL
        ), reached AS (
            SELECT *, rank <= count * {SCAN_BUDGET_FACTOR:d}
                AND coalesce(hits_before, 0L) < count AS is_reached
            FROM ranked
        )
        SELECT {others}, true AS is_examined, CAST(NULL AS INT) AS rank
        FROM {{this}} AS this WHERE count IS NULL
        UNION ALL
        SELECT {others},
            bool_or(is_reached) OVER (PARTITION BY group_key, id_ms, id_seq) AS is_examined, rank
        FROM reached
        """
    )


def next_ids(examined_rows: Relation) -> Relation:
    """Return the first id that was not examined, one row per page before the end of its PEL.

    A page that examined all rows up to the end has no row.  Columns: group_key, next_ms, next_seq.

    Args:
        examined_rows: `examined`.
    """
    return examined_rows.sql(
        "SELECT group_key, min_by(id_ms, rank) AS next_ms, min_by(id_seq, rank) AS next_seq"
        " FROM {this} AS this WHERE NOT is_examined GROUP BY group_key"
    )
