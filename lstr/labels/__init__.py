"""Labels: segments, label files, and checks of them."""
