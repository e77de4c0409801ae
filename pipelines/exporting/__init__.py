"""A model file as graphs that run without torch, once they have been seen to score as it does."""
