"""Jobs that run extractors and models on videos and streams."""
