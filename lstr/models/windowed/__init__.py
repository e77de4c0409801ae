"""Models that see a window of chunks."""
