"""Settings: TOML files, environment variables and options, resolved into frozen values."""
