"""How good model files are on videos that none of them has seen, and which of several is better."""
