"""The unit of time: a chunk of video, of which each has one feature row and one decision."""

FEATURES_PER_SECOND = 4
"""Chunks per second: 24 frames per second, 6 frames per chunk (paper, Feature Encoding)."""

CHUNK_SECONDS = 1 / FEATURES_PER_SECOND
