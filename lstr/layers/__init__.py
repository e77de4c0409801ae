"""Layers that several models are built of."""
