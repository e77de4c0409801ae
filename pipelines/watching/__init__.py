"""Watching cameras for weeks: what was seen is kept, shown on a page and told to people."""
