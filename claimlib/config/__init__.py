"""Resolve TOML files, environment variables and options into frozen values."""
