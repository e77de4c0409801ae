"""Telling people of what was seen: to whom and when, in which words, and by which channels."""
