"""What people and programs read of a result: one model, a module per kind of command."""
