"""Leave stalled work on a real server, run Spark once, and prove that both agree."""
