# Databricks notebook source
# MAGIC %md
# MAGIC # 4. Recovery and history
# MAGIC
# MAGIC Drivers die: a cluster is taken away, a job is cancelled. This notebook kills one in the middle of a
# MAGIC run, lets the next one finish it, and then reads what happened: to the store, and to one entry.
# MAGIC
# MAGIC It makes a sample store of its own: three streams whose consumer `bob` has died.

# COMMAND ----------

# MAGIC %pip install --quiet --editable "..[notebook]"

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

from contextlib import suppress

from matplotlib.figure import Figure
from pyspark.sql import functions as F

from claimlib import AutoclaimRequest, Guards, NamedAck, Phase, SweepRequest
from claimlib import find_run, frame_of, list_runs, open_session, parse_duration_ms, parse_id
from claimlib import parse_instant_ms, read_store, server_commands, xack, xautoclaim
from claimlib.notebook import Killed, die_at, new_sample_store, sample_keyspace, show, widget_values
from claimlib.testing import write_keyspace

spark = open_session()  # the session that is there; where there is none, a local one

# COMMAND ----------

widgets = widget_values(
    globals().get("dbutils"),
    store=("", "a new store: catalog.schema or a folder that does not exist; empty: one is made"),
)
now_ms = parse_instant_ms("2026-01-01T12:00:00Z")
store = new_sample_store(spark, widgets["store"], "recovery")
write_keyspace(store, sample_keyspace(now_ms), snapshot_ms=now_ms)
print("the store:", store.where)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A driver dies
# MAGIC
# MAGIC A run decides everything in **one** commit to the journal, and applies it afterwards. The driver
# MAGIC below dies between the two, which is the worst moment: something is decided, nothing is done.

# COMMAND ----------

min_idle_ms = parse_duration_ms("15m")  # all that is told below holds for this value
request = SweepRequest(AutoclaimRequest(consumer=b"carol", min_idle_ms=min_idle_ms))
with suppress(Killed):
    xautoclaim(store, request, run_id="noon", progress=die_at(Phase.APPLY))
print("finished runs:", list_runs(store).runs)
print("unfinished runs:", list_runs(store).unfinished)

# COMMAND ----------

# MAGIC %md
# MAGIC A command that only reads shows the store before the unfinished run, and names the run:

# COMMAND ----------

print("not shown yet:", [run.key for run in read_store(store).unfinished])

# COMMAND ----------

# MAGIC %md
# MAGIC ## The next run finishes it
# MAGIC
# MAGIC Any run does, before it begins its own work. The same command with the same id **is** that run: it
# MAGIC applies what was decided, decides nothing again, and returns the result. So a scheduler simply
# MAGIC tries again.

# COMMAND ----------

reply = xautoclaim(store, request, run_id="noon")
print("run", reply.run_seq, "claimed", reply.counts["claimed"], "deleted", reply.counts["deleted"])
again = xautoclaim(store, request, run_id="noon")
print("and once more changes nothing:", again.counts == reply.counts, again.run_seq == reply.run_seq)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Life goes on
# MAGIC
# MAGIC `carol` finishes the first entry that she was given, and then she dies, too. Half an hour later `dan`
# MAGIC is given what is hers. The guard `only_from` spares all others: the store has seen no snapshot since,
# MAGIC so in it `alice` has been idle for as long.

# COMMAND ----------

entry = reply.claimed.where("stream = 'orders'").order_by("id_ms").first()
xack(store, [NamedAck(b"orders", b"workers", (parse_id(entry["id"]),))], run_id="carol-1")
later = SweepRequest(
    AutoclaimRequest(consumer=b"dan", min_idle_ms=min_idle_ms, guards=Guards(only_from="carol"))
)
handed_on = xautoclaim(store, later, run_id="half-past", now_ms=now_ms + 30 * 60_000)
print("handed on:", handed_on.counts["claimed"], "spared:", handed_on.counts["spared"])
for run in reversed(list_runs(store).runs):
    print(run.run_seq, run.key, dict(sorted(run.counts.items())))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The store as each run left it
# MAGIC
# MAGIC Each run notes the versions of all tables before and after it, and Delta can still read them (for
# MAGIC seven days): `read_store(store, "1")`, or `claimlib xpending STORE --as-of 1`.
# MAGIC
# MAGIC By 15 minutes, run 1 deleted the 14 entries that their streams no longer have (140 become 126) and
# MAGIC gave 61 of `bob`'s to `carol`. Run 2 took off the one that she finished, run 3 gave the other 60 to
# MAGIC `dan`. What `bob` still has had not been idle for long enough at noon.

# COMMAND ----------

first = find_run(store, "1")
states = {"at first": store.read("pending", first.input_versions["pending"])}
for run in reversed(list_runs(store).runs):
    states[f"after run {run.run_seq}\n{run.key}"] = frame_of(
        read_store(store, str(run.run_seq)).read("pending")
    )
owned = {
    name: {row["consumer"]: row["count"] for row in rows.groupBy("consumer").count().collect()}
    for name, rows in states.items()
}
owners = sorted({name for counts in owned.values() for name in counts})

figure = Figure(figsize=(9, 3.6), layout="constrained")
axes = figure.subplots()
left = dict.fromkeys(owned, 0)
for owner in owners:
    widths = [counts.get(owner, 0) for counts in owned.values()]
    bars = axes.barh(list(owned), widths, 0.65, left=list(left.values()), label=owner)
    axes.bar_label(bars, [str(n) if n else "" for n in widths], label_type="center", color="white")
    left = {name: left[name] + n for name, n in zip(owned, widths, strict=True)}
axes.invert_yaxis()
axes.set_xlim(0, 1.03 * max(left.values()))
axes.set_xlabel("pending entries")
axes.set_title("Who owned what, as each run left the store")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, title="consumer")
show(figure, "04_states")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The history of one entry
# MAGIC
# MAGIC The journal has a row for each decision: who had the entry, who got it, when, by which run. This one
# MAGIC was claimed from `bob`, and then acknowledged.

# COMMAND ----------

history = store.read("journal").where(
    (F.col("stream") == "orders")
    & (F.col("id_ms") == entry["id_ms"])
    & (F.col("id_seq") == entry["id_seq"])
)
history.orderBy("run_seq").select(
    *("run_seq", "kind", "from_consumer", "from_delivery_count", "consumer", "delivery_count"),
    F.timestamp_millis("at_ms").alias("at"),
).show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Back to the server
# MAGIC
# MAGIC What was claimed in the store is not yet claimed on the server. These commands do it there; each
# MAGIC claims only what is still idle for as long when it runs. A person reviews them first.

# COMMAND ----------

commands = server_commands(store, find_run(store, "1"), 3)
for line in commands.lines:
    print(line[:110], "…" if len(line) > 110 else "")
print("and", commands.hidden, "more")
