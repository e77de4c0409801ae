"""Sources to timelines: files, folders, cameras, network streams."""
