"""Features with their labels, and what networks have seen of them."""
