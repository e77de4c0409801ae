"""Read, write, check and extract feature folders."""
