"""A live Redis or Valkey server, read into plain values (no Spark, no pandas; extra `[redis]`)."""
