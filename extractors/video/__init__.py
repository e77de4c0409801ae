"""Files, cameras and network streams to 24 FPS frames in chunks."""
