"""A rendered set of labelled videos and every job on it."""
