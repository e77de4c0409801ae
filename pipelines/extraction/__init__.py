"""Videos to feature folders, on one machine or many."""
