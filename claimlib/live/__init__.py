"""Read a live Redis or Valkey server into plain values, without Spark and pandas (`[redis]`)."""
