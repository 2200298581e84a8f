"""What Redis does, stated with the standard library alone: no Spark, no server, no clock."""
