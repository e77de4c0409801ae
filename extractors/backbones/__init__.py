"""What is built: the feature networks."""
