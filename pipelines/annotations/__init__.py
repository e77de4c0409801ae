"""Label formats of common annotation tools."""
