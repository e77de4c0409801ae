"""Metrics of scores and events, measured by labels."""
