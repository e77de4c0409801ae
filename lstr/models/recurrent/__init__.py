"""Recurrent models, which see one chunk after another."""
