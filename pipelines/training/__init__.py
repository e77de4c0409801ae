"""Features and labels to a checkpoint."""
