"""Windows: the chunks that a model takes as input at one chunk, and its losses."""
