"""A job that does next to nothing: it counts the rows of one Delta table, and appends a row to
another."""

import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    read, written = sys.argv[1:]
    spark.read.format("delta").load(read).count()
    spark.range(1).write.format("delta").mode("append").save(written)
    spark.stop()
