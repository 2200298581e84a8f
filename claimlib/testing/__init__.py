"""Helpers for tests and demonstrations: what a user of the library may lean on as well."""
