"""Which of two model files is better, on videos that neither has seen."""
