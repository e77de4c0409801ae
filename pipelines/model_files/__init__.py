"""Model files: all that a trained system needs in one."""
