"""Decide the runs of commands.  Each command has one module."""
