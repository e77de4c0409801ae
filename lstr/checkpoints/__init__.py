"""Checkpoint files, ours and published."""
