"""Weights files of the feature networks: what they hold, what they say of themselves."""
