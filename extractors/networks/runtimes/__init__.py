"""What computes the feature networks."""
