"""Define the behavior of Redis with the standard library alone, without Spark, server or clock."""
