"""What was published about each kind of model."""
