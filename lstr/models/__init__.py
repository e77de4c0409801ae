"""Kinds of model, by family."""
