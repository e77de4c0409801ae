"""A published row again: trained by its settings, scored by its protocol, and printed beside it."""
