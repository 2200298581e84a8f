"""Describe which rows a run reads, joins, orders and decides, from relations to relations.

A function here only describes.  It executes nothing, knows no path and writes nothing.  The sweep's
plan has these steps:

    requests      one row per (stream, consumer_group) to sweep
    targets       + the group's time and the proven id range of its stream
    survey        one pass over pending: the sums per group, and why a group must be refused
    sweep         accepted groups' entries + liveness -> touched rows -> sorted PEL ranges -> kernel
    journal_rows  decisions with names added; one row per group and per consumer

`keys` has the keys by which rows are compared.
"""
