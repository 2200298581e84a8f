# Databricks notebook source
# MAGIC %md
# MAGIC # Stalled work, handed over
# MAGIC
# MAGIC Consumers of Redis streams die and leave entries *pending*: delivered, never acknowledged.
# MAGIC This notebook makes a small store, looks at what a claim would do, does it, and reads what was
# MAGIC done. It needs no server: the sample data are three streams whose consumer `bob` has died.
# MAGIC
# MAGIC `store` is a folder (`/Volumes/main/streams/store`) or a schema of a catalog (`main.streams`)
# MAGIC that does not exist yet.

# COMMAND ----------

dbutils.widgets.text("store", "/tmp/claimlib-quickstart", "folder, or catalog.schema")
dbutils.widgets.text("min_idle", "15m", "how long an entry must have been idle")
dbutils.widgets.text("consumer", "carol", "who gets the entries")

# COMMAND ----------

from pyspark.sql import functions as F

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.model import AutoclaimRequest
from claimlib.session import open_session
from claimlib.store import Store
from claimlib.testing.sample import sample_keyspace
from claimlib.testing.tables import write_keyspace
from claimlib.times import parse_duration_ms, parse_instant_ms

spark = open_session()  # on Databricks: the session that is there

# COMMAND ----------

# MAGIC %md
# MAGIC ## A store with sample data
# MAGIC
# MAGIC A real store is filled by `claimlib snapshot redis://… STORE`.

# COMMAND ----------

now_ms = parse_instant_ms("2026-01-01T12:00:00Z")
store = Store.init(spark, dbutils.widgets.get("store"))
write_keyspace(store, sample_keyspace(now_ms), snapshot_ms=now_ms)
store.read("pending").groupBy("stream", "consumer_group", "consumer").count().show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## What would happen?
# MAGIC
# MAGIC A dry run decides and shows, and writes nothing. An entry that is no longer in its stream is
# MAGIC deleted; one that has been idle for more than `min_idle` is claimed; the others are left alone.

# COMMAND ----------

request = SweepRequest(
    AutoclaimRequest(
        consumer=dbutils.widgets.get("consumer").encode(),
        min_idle_ms=parse_duration_ms(dbutils.widgets.get("min_idle")),
    )
)
xautoclaim(store, request, dry_run=True).groups.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Do it
# MAGIC
# MAGIC A run is atomic. Its id makes it repeatable: the same command with the same id changes nothing.

# COMMAND ----------

reply = xautoclaim(store, request, run_id="quickstart")
print(dict(reply.counts))

# COMMAND ----------

again = xautoclaim(store, request, run_id="quickstart")
print("the same run again:", again.run_seq == reply.run_seq)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who got what, when and why
# MAGIC
# MAGIC Claimed entries come with their payload, deleted ones with their last owner.

# COMMAND ----------

idle = ((F.col("at_ms") - F.col("from_delivery_time_ms")) / 60_000).alias("idle_minutes")
reply.claimed.select("stream", "id", "from_consumer", "consumer", idle, "delivery_count").show(5)
reply.deleted.select("stream", "id", "from_consumer", "from_delivery_count").show(5)

# COMMAND ----------

# MAGIC %md
# MAGIC The tables are plain Delta tables: any reader can open them.

# COMMAND ----------

store.read("pending").groupBy("stream", "consumer_group", "consumer").count().show()
store.read("tombstones").groupBy("stream").count().show()
store.read("runs").select("run_seq", "command", "run_id", "counts").show(truncate=False)
