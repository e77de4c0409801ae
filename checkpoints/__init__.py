"""Published weight files: the manifest, and in a checkout what was fetched."""
