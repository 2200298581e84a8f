"""Build the reports that people and programs read: one model, and a module per kind of command."""
