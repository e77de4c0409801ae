"""Folders of features: reading, writing, checking, comparing."""
