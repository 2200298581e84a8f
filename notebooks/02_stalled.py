# Databricks notebook source
# MAGIC %md
# MAGIC # 2. Who is stalled, and why
# MAGIC
# MAGIC An entry that is pending is one of three things: work in progress, work whose consumer died, or
# MAGIC work that fails again and again. Redis keeps three facts about it, and together they tell which:
# MAGIC its **owner**, its **idle time** (since its last delivery) and its **delivery count**.
# MAGIC
# MAGIC Give a store of your own (its tables are only read), or leave `store` empty for a sample: twelve
# MAGIC made-up hours of two consumer groups, with a snapshot every quarter of an hour.

# COMMAND ----------

# MAGIC %pip install --quiet --editable "..[notebook]"

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

from datetime import UTC, datetime

import numpy as np
from matplotlib import rcParams
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from pyspark.sql import functions as F

from claimlib import Store, frame_of, open_session, parse_duration_ms, parse_instant_ms
from claimlib import pending_entries, pending_over_time, pending_overview, read_store
from claimlib.notebook import one_line, sample_place, show, show_rows, widget_values, write_series

spark = open_session()  # the session that is there; where there is none, a local one
rcParams["text.parse_math"] = False  # a $ in a name begins no formula

# COMMAND ----------

widgets = widget_values(
    globals().get("dbutils"),
    store=("", "store: catalog.schema or a folder; empty: a sample"),
    stalled=("1h", "idle for how long counts as stalled"),
)
stalled_ms = parse_duration_ms(widgets["stalled"])

# COMMAND ----------

if widgets["store"]:
    store = Store.open(spark, widgets["store"])
else:
    store = Store.init(spark, sample_place(spark, "series"))
    write_series(store, parse_instant_ms("2026-01-01T12:00:00Z"))
now = read_store(store)  # all tables at one moment
print("the store:", store.where)

# COMMAND ----------

# MAGIC %md
# MAGIC ## One line per group
# MAGIC
# MAGIC `stalled` entries have been idle for as long as asked for, or longer; `idle_owners` own entries and
# MAGIC have received none for as long; `delivered_5_plus` entries were delivered five times or more. (On the
# MAGIC command line: `claimlib xpending STORE`.)

# COMMAND ----------

groups = pending_overview(now, stalled_ms=stalled_ms)
shown = frame_of(groups).select(
    *("stream", "consumer_group", "pending", "stalled", "owners", "idle_owners"),
    *("delivered_5_plus", "highest_delivery_count"),
)
show_rows(shown.orderBy("stream", "consumer_group"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Idle times
# MAGIC
# MAGIC Work in progress is idle for minutes, forgotten work for hours or days: the axis has to be
# MAGIC logarithmic to show both. A hill on the left is a consumer at work. **A hill on the right is a dead
# MAGIC one.** The gap between the two is where min-idle belongs; notebook 3 puts numbers to that.

# COMMAND ----------

owner = F.concat_ws(" / ", "stream", F.coalesce("consumer", F.lit("nobody"))).alias("owner")
# What was just claimed is idle for nothing; without a snapshot time it is not known for how long.
minutes = F.when(F.col("idle_ms").isNotNull(), F.greatest(F.col("idle_ms") / 60_000, F.lit(1 / 60)))
entries = frame_of(pending_entries(now).rows)
entries = entries.select(owner, minutes.alias("minutes"), "delivery_count")
by_owner = entries.groupBy("owner").agg(F.count("*").alias("pending"), F.max("minutes").alias("longest"))
largest = by_owner.orderBy(F.desc("pending"), "owner").limit(6).toPandas()  # more panels say less
longest = np.nanmax([60.0, *largest["longest"]])
edges = np.logspace(-2, np.ceil(np.log10(longest)), 41)  # as wide as each other on that axis
width = (np.ceil(np.log10(longest)) + 2) / 40
number = F.least(F.floor((F.log10("minutes") + 2) / width), F.lit(39)).cast("INT").alias("number")
shown = entries.where(F.col("owner").isin(list(largest["owner"])) & F.col("minutes").isNotNull())
bars = shown.groupBy("owner", number).count().toPandas()

figure = Figure(figsize=(9, 1.6 + 0.9 * len(largest)), layout="constrained")
panels = figure.subplots(max(1, len(largest)), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
for panel, name in zip(panels, largest["owner"], strict=False):
    its = bars[bars["owner"] == name]
    left, right = edges[its["number"]], edges[its["number"] + 1]
    panel.bar(left, its["count"], right - left, align="edge", color="tab:blue", edgecolor="white")
    panel.axvline(stalled_ms / 60_000, color="tab:red", linestyle="--", linewidth=1)
    panel.set_ylabel(one_line(name), rotation=0, ha="right", va="center")
    panel.grid(axis="y", alpha=0.3)
    panel.set_axisbelow(True)
ticks = {1 / 60: "≤ 1 s", 1 / 6: "10 s", 1: "1 min", 10: "10 min", 60: "1 h", 360: "6 h", 1440: "1 d"}
panels[-1].set_xscale("log")
panels[-1].set_xticks(list(ticks), list(ticks.values()))
panels[-1].minorticks_off()
panels[-1].set_xlim(1 / 90, longest * 2)
panels[-1].set_xlabel("idle time (logarithmic)")
figure.suptitle(f"How many entries have been idle for how long, by owner (red line: {widgets['stalled']})")
show(figure, "02_idle_times")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Delivery counts
# MAGIC
# MAGIC Who reads an entry and dies leaves it at one delivery. An entry that was delivered ten times was
# MAGIC **tried** ten times: its consumer is alive, and the entry is what fails. Claiming it again hands
# MAGIC the failure to somebody else; `--max-deliveries` and `--parking-consumer` set it aside instead.

# COMMAND ----------

tried = F.least("delivery_count", F.lit(20)).alias("tried")
counts = entries.groupBy(tried).count().toPandas().set_index("tried")["count"]
counts = counts.reindex(range(1, 21), fill_value=0)

figure = Figure(figsize=(9, 3.6), layout="constrained")
axes = figure.subplots()
bars = axes.bar(counts.index, counts, color=["tab:blue"] * 4 + ["tab:orange"] * 16)
axes.bar_label(bars, labels=[str(n) if n else "" for n in counts], padding=2, fontsize=9)
axes.set_xticks(range(1, 21), [*map(str, range(1, 20)), "20+"])
axes.set_xlabel("deliveries so far (orange: five or more)")
axes.set_ylabel("pending entries")
axes.set_title("Pending entries by delivery count")
axes.margins(y=0.12)
show(figure, "02_delivery_counts")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Over time
# MAGIC
# MAGIC Each snapshot keeps what it read in `pel_snapshots`. A consumer that works has a jagged line: it
# MAGIC takes and it finishes. **One that has died has a line that rises while it still reads, and then
# MAGIC lies flat**, until somebody takes its entries over.

# COMMAND ----------

series = frame_of(pending_over_time(store, stalled_ms))
series = series.groupBy("landing_ms", owner).agg(
    F.sum("pending").alias("pending"), F.sum("stalled").alias("stalled")
)
series = series.toPandas()

if series.empty:
    print("The store has no finished snapshot with a time, so there is nothing to show over time.")
else:
    lines = series.pivot_table(
        index="landing_ms", columns="owner", values=["pending", "stalled"], fill_value=0
    )
    times = [datetime.fromtimestamp(ms / 1000, UTC) for ms in lines.index]
    peaks = lines["pending"].max().sort_values(ascending=False)
    names = list(peaks[peaks > 0].index[:6])

    figure = Figure(figsize=(9, 5.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    handles = []
    for name in names:
        handles += above.plot(times, lines["pending"][name], linewidth=1.8, marker="o", markersize=3)
        below.plot(times, lines["stalled"][name], linewidth=1.8, marker="o", markersize=3)
    above.set_ylabel("pending entries")
    below.set_ylabel(f"idle for {widgets['stalled']} or longer")
    below.set_xlabel("snapshot (UTC)")
    below.xaxis.set_major_formatter(DateFormatter("%d %b\n%H:%M", tz=UTC))
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
    above.set_title("Pending entries by consumer, as each snapshot read them")
    # By handle: of its own accord a legend leaves out a name that begins with an underscore.
    legend = {"loc": "upper left", "bbox_to_anchor": (1, 1), "frameon": False}
    above.legend(handles, [one_line(name) for name in names], title="stream / consumer", **legend)
    show(figure, "02_over_time")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What the sample shows
# MAGIC
# MAGIC (Where `store` is empty; a store of yours shows its own.)
# MAGIC
# MAGIC - `erin` (`emails`) has a hill of her own, at three to four and a half hours, and a line that rises
# MAGIC   from eight to nine o'clock and lies flat since: dead. Hand her entries over.
# MAGIC - `bob` (`orders`) looked like that from two to six o'clock, until `alice` was given his entries: her
# MAGIC   line jumps as his falls. Nothing of his is pending now.
# MAGIC - `alice`, `carol` and `dave` have hills left of the red line, and entries with up to fifteen
# MAGIC   deliveries: they are alive, and those entries fail. No min-idle helps against that.
