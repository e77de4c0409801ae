"""What a step needs to know of its place in time: index arithmetic in numpy, which needs no torch."""
