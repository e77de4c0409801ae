"""Labelled videos to weights of the feature networks."""
