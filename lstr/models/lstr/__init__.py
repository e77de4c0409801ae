"""The Long Short-Term Transformer, its stream and its relatives."""
