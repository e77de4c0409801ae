"""What the model sees of a video at one chunk, and what it loses."""
