"""Feature networks: their descriptions, weights files and runtimes."""
