"""Labelled segments in the formats of the field's tools."""
