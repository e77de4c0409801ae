"""Pages that this machine serves to its own browsers."""
