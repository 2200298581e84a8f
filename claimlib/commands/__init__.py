"""What a run decides, and which tables it touches: one module per command."""
