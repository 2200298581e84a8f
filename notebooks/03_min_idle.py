# Databricks notebook source
# MAGIC %md
# MAGIC # 3. Choosing min-idle
# MAGIC
# MAGIC A claim takes what has been idle for longer than min-idle, and cannot know whether its owner is dead
# MAGIC or merely slow. Too short a value takes work from the living, and it is **done twice**; too long a
# MAGIC value lets the work of the dead **wait**. The right one depends on how long your work takes, and the
# MAGIC series of snapshots knows that.
# MAGIC
# MAGIC For each value this notebook asks: which entries would a sweep after each snapshot have claimed, and
# MAGIC what became of them really? If the old owner acknowledged an entry after all, the claim would have
# MAGIC been wrong.
# MAGIC
# MAGIC Give a store of your own with some hundred snapshots or more (its tables are only read), or leave
# MAGIC `store` empty for a sample: twelve made-up hours of two consumer groups.

# COMMAND ----------

# MAGIC %pip install --quiet --editable "..[notebook]"

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

from matplotlib.figure import Figure
from pyspark.sql import functions as F

from claimlib import Store, advise, claims_by_min_idle, compare_min_idles, frame_of, open_session
from claimlib import format_duration_ms, parse_duration_ms, parse_instant_ms, pending_over_time
from claimlib.notebook import one_line, sample_place, show, show_rows, widget_values, write_series

spark = open_session()  # the session that is there; where there is none, a local one

# COMMAND ----------

widgets = widget_values(
    globals().get("dbutils"),
    store=("", "store: catalog.schema or a folder; empty: a sample"),
    values=("1m 5m 10m 15m 30m 45m 1h 90m 2h 3h 4h", "values of min-idle to compare"),
)
min_idles_ms = sorted(map(parse_duration_ms, widgets["values"].split()))

# COMMAND ----------

if widgets["store"]:
    store = Store.open(spark, widgets["store"])
else:
    store = Store.init(spark, sample_place(spark, "series"))
    write_series(store, parse_instant_ms("2026-01-01T12:00:00Z"))
print("the store:", store.where)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What each value would have claimed
# MAGIC
# MAGIC An entry counts once, at the first snapshot at which it had been idle for longer.
# MAGIC
# MAGIC | outcome | what really became of the entry |
# MAGIC |---|---|
# MAGIC | `acknowledged` | it left the PEL, last seen with the same owner: its work would be done twice |
# MAGIC | `deleted` | a run removed it, because its stream entry had been deleted or trimmed |
# MAGIC | `taken_over` | somebody else owned it when it was seen last: the claim would have come sooner |
# MAGIC | `still_pending` | it was there whenever the group was read since: stalled |
# MAGIC | `unknown` | it is gone, and the reason is not known |
# MAGIC
# MAGIC The reason is not known if the group's last delivered id is smaller, or if its stream was replaced.
# MAGIC
# MAGIC What happens between two snapshots is not seen: idle times and outcomes are as coarse as the series.

# COMMAND ----------

claimed = claims_by_min_idle(store, min_idles_ms)
table = frame_of(compare_min_idles(claimed, min_idles_ms)).toPandas()
table["min_idle"] = table["min_idle_ms"].map(format_duration_ms)
done_twice = (table["acknowledged"] / table["claimed"]).map("{:.0%}".format)
table["done_twice"] = done_twice.replace("nan%", "-")  # of nothing
table["median_wait"] = (table["wait_ms"] / 60_000).map("{:.0f} min".format).replace("nan min", "-")
outcomes = ["acknowledged", "deleted", "taken_over", "still_pending", "unknown"]
shown = ["claimed", *outcomes, "done_twice", "median_wait"]
if pending_over_time(store).is_empty():
    print("The store has no finished snapshot with a time, so there is nothing to show over time.")
else:
    print(table.set_index("min_idle")[shown].to_string())

# COMMAND ----------

# MAGIC %md
# MAGIC ## The trade
# MAGIC
# MAGIC Above: the entries that each value claims. Red is work done twice. Orange entries needed no new owner,
# MAGIC because they were deleted. The rest needed one. **Go right until the red is small.** Below: what that
# MAGIC costs, as the time that rightly claimed entries have waited by then.

# COMMAND ----------

colors = {
    "acknowledged": "tab:red",
    "deleted": "tab:orange",
    "taken_over": "tab:green",
    "still_pending": "tab:blue",
    "unknown": "tab:gray",
}
labels = {
    "acknowledged": "acknowledged by its old owner: done twice",
    "deleted": "deleted from its stream",
    "taken_over": "taken over by somebody else anyway",
    "still_pending": "still pending at the end",
    "unknown": "unknown",
}
places = range(len(table))

if table["claimed"].any():
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    bottom = table["claimed"] * 0
    for outcome in reversed(colors):
        if table[outcome].any():
            above.bar(places, table[outcome], 0.7, bottom, color=colors[outcome], label=labels[outcome])
            bottom = bottom + table[outcome]
    for place, (share, top) in enumerate(zip(table["done_twice"], bottom, strict=True)):
        above.annotate(share, (place, top), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    above.set_ylabel("claimed entries\n(per cent: done twice)")
    above.set_title("What each min-idle would have claimed")
    above.legend(frameon=False, loc="upper right", reverse=True)
    above.margins(y=0.1)
    below.plot(places, table["wait_ms"] / 3_600_000, "o-", color="tab:blue")
    below.set_ylabel("median wait of\nthe others (hours)")
    below.set_ylim(bottom=0)
    below.set_xticks(places, table["min_idle"])
    below.set_xlabel("min-idle")
    for axes in (above, below):
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    show(figure, "03_min_idle")
else:
    print("None of these values would have claimed an entry, so there is no chart.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## One value per group
# MAGIC
# MAGIC `advise` recommends for each group the smallest value with which at most 10 % of the claimed
# MAGIC entries would have been done twice, as `claimlib advise` does.

# COMMAND ----------

for group in advise(store, min_idles_ms).groups if table["claimed"].any() else ():
    best = group.recommended
    value = "none of these values" if best is None else format_duration_ms(best["min_idle_ms"])
    print(one_line(group.stream), one_line(group.consumer_group), "min-idle:", value)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Whose work?
# MAGIC
# MAGIC One value does not fit all: where one consumer is slower than others, `--only-from`, or a policy with
# MAGIC a value per stream, spares it. These are the owners of whom the value nearest to 15 minutes would have
# MAGIC taken work that they then finished.

# COMMAND ----------

at = min(min_idles_ms, key=lambda ms: abs(ms - 15 * 60_000))
of_value = frame_of(claimed).where(F.col("min_idle_ms") == at)
by_owner = of_value.groupBy("stream", "from_consumer").agg(
    F.count("*").alias("claimed"), F.count_if(F.col("outcome") == "acknowledged").alias("done_twice")
)
print("min-idle", format_duration_ms(at))
show_rows(by_owner.orderBy("stream", "from_consumer"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What the sample shows
# MAGIC
# MAGIC - Half of its work takes less than four minutes, and one entry in a hundred over an hour.
# MAGIC - **15m**, a usual value, would have claimed 215 entries, and the owners of 127 of them (59 %)
# MAGIC   acknowledged them afterwards.
# MAGIC - **1h30m** would have claimed 66, of which 5 (8 %) would have been done twice. The other 61 needed a
# MAGIC   new owner: the two consumers who died held 59 of them. They would have waited for 97 minutes (the
# MAGIC   median), and not for 23. That is the value to take here, if an hour and a half can be borne.
# MAGIC - Beyond **2h** little is gained. At 4h most of `bob`'s entries are missed: by then somebody had given
# MAGIC   them to `alice` by hand.
# MAGIC - Entries that fail are delivered again every 40 minutes there. Up to 30m they are claimed too (some
# MAGIC   of the blue), and fail with their new owner.
