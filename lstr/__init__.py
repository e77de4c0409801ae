"""Long Short-Term Transformer for online action detection: features in, class scores out, a chunk at a time."""

__version__ = "0.1.0"
