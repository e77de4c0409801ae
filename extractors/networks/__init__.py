"""Frames and flow to features: the two TSN networks and their weights."""
