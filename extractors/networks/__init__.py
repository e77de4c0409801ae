"""Networks that make features: one entry each, their weights files, and the runtimes that compute them."""
