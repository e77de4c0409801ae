"""Arrays and files as they are written and read."""
