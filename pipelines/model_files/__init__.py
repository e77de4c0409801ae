"""Model files: everything that a trained system needs, in one file."""
