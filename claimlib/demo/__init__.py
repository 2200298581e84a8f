"""Stalled work on a real server, one Spark run, and the proof that both agree."""
