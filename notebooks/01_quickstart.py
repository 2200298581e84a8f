# Databricks notebook source
# MAGIC %md
# MAGIC # 1. Stalled work, handed over
# MAGIC
# MAGIC Consumers of Redis streams die and leave entries *pending*: delivered, never acknowledged.
# MAGIC This notebook makes a small store, looks at what a claim would do, does it, and reads what was
# MAGIC done. It needs no server: the sample data are three streams whose consumer `bob` has died.
# MAGIC
# MAGIC It runs as it is on Databricks, and as a script anywhere:
# MAGIC `NOTEBOOK_MIN_IDLE=1h python notebooks/01_quickstart.py`.

# COMMAND ----------

# MAGIC %pip install --quiet --editable "..[notebook]"

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

from pyspark.sql import functions as F

from claimlib import AutoclaimRequest, SweepRequest, frame_of, open_session
from claimlib import parse_duration_ms, parse_instant_ms, xautoclaim
from claimlib.notebook import new_sample_store, sample_keyspace, widget_values
from claimlib.testing import write_keyspace

spark = open_session()  # the session that is there; where there is none, a local one

# COMMAND ----------

# MAGIC %md
# MAGIC `store` is where the sample store is made: `catalog.schema`, or a folder where there is no
# MAGIC catalog. It must not exist yet. Left empty it is a new schema of the current catalog on
# MAGIC Databricks, and a temporary folder anywhere else.

# COMMAND ----------

widgets = widget_values(
    globals().get("dbutils"),
    store=("", "a new store: catalog.schema or a folder that does not exist; empty: one is made"),
    min_idle=("15m", "how long an entry must have been idle"),
    consumer=("carol", "who gets the entries"),
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A store with sample data
# MAGIC
# MAGIC A real store is filled by `claimlib snapshot redis://… STORE`. Of `bob`'s entries below some
# MAGIC have waited for over an hour.

# COMMAND ----------

now_ms = parse_instant_ms("2026-01-01T12:00:00Z")
store = new_sample_store(spark, widgets["store"], "quickstart")
write_keyspace(store, sample_keyspace(now_ms), snapshot_ms=now_ms)
print("the store:", store.where)
owned = store.read("pending").groupBy("stream", "consumer_group", "consumer").count()
owned.orderBy("stream", "consumer").show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## What would happen?
# MAGIC
# MAGIC A dry run decides and shows, and writes nothing. An entry that is no longer in its stream is
# MAGIC deleted; one that has been idle for more than `min_idle` is claimed; the others are left alone.
# MAGIC `alice`, who lives, keeps what she was given five seconds ago.

# COMMAND ----------

request = SweepRequest(
    AutoclaimRequest(
        consumer=widgets["consumer"].encode(), min_idle_ms=parse_duration_ms(widgets["min_idle"])
    )
)
would = frame_of(xautoclaim(store, request, dry_run=True).groups)
would.select("stream", "status", "pending_before", "claimed", "deleted", "pending_after").show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Do it
# MAGIC
# MAGIC A run is atomic: one commit decides all of it. Its id makes it repeatable: the same command with
# MAGIC the same id changes nothing, and returns what was done.

# COMMAND ----------

reply = xautoclaim(store, request, run_id="quickstart")
print(dict(reply.counts))

# COMMAND ----------

again = xautoclaim(store, request, run_id="quickstart")
print("the same run again:", again.run_seq == reply.run_seq)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who got what, and from whom
# MAGIC
# MAGIC Claimed entries come with their payload, deleted ones with their last owner.

# COMMAND ----------

idle = F.round((F.col("at_ms") - F.col("from_delivery_time_ms")) / 60_000, 1).alias("idle_minutes")
claimed, deleted = frame_of(reply.claimed), frame_of(reply.deleted)
claimed.select("stream", "id", "from_consumer", "consumer", idle, "delivery_count").show(5)
deleted.select("stream", "id", "from_consumer", "from_delivery_count").show(5)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Afterwards
# MAGIC
# MAGIC The tables are plain Delta tables: any reader can open them. A claim in a store is not one on
# MAGIC the server: `claimlib runs STORE RUN --as-commands` writes the XCLAIM and XACK commands that
# MAGIC are (notebook 4).

# COMMAND ----------

owned = store.read("pending").groupBy("stream", "consumer_group", "consumer").count()
owned.orderBy("stream", "consumer").show()
store.read("tombstones").groupBy("stream").count().orderBy("stream").show()
store.read("runs").select("run_seq", "command", "run_id", "counts").show(truncate=False)
