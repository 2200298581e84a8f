"""Read and write the tables of a store.  No other package reads or writes them.

A store is a folder (`/data/store`, `s3a://bucket/store`) or a schema of a catalog (`main.streams`).
Everything here is plain SQL, DataFrame writers and delta-rs.  So it runs on classic Spark, on
Connect and on Databricks alike.  No Spark setting is needed for a correct result.

`tables` has the handle of a store.  `logs` reads the logs of its tables, and `lookups` reads a few
of their rows.  A `writer` writes them: `folder_writer` by commits of this process, `spark_writer`
by Spark.  `definitions` creates and changes the tables of a store, by Spark or by `commits` of this
process.  `creation` and `opening` use it, with the `checks` of tables and `sessions`.  `guards`
check an open store before a run changes it.  `lock` lets one process at a time write to a store in
a folder of this machine.  `local` reads and writes tables in such a folder.  `delta_errors` maps
the errors of Delta.
"""
