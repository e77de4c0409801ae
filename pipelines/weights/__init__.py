"""Published and own weights on this machine."""
