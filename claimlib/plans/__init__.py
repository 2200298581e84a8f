"""Relation in, relation out: which rows a run reads, joins, orders and decides.

No action, no path, no write: a function here only describes.  The sweep's plan, one line per step:

    requests      one row per (stream, consumer_group) to sweep
    targets       + the group's instant and the proven id range of its stream
    survey        one pass over pending: per group what is there, and why it must be refused (if so)
    sweep         accepted groups' entries + liveness -> touched rows -> sorted PEL ranges -> kernel
    journal_rows  names put back on the decisions; one row per group and per consumer

`keys` says what rows are compared by.
"""
