"""The jobs: each chains the extractors and the model over many videos or one stream."""
