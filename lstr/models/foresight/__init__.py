"""Models that generate the future from the memory."""
