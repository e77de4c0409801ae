"""What people say happened: segments, label files, checks of them."""
