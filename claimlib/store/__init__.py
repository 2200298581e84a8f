"""A store: the tables of one namespace, and the only place that reads and writes them.

A store is a folder (`/data/store`, `s3a://bucket/store`) or a schema of a catalog (`main.streams`).
Everything here is plain SQL, DataFrame writers and delta-rs, so that it runs on classic Spark, on
Connect and on Databricks alike, and no Spark setting is needed for a correct result.

`tables` is the store; `opening` what is looked at before one is made or opened; `local` small
tables in a folder of this machine; `delta_errors` what Delta says, in errors of our own.
"""
