"""Files that are never half written, here and on object stores."""
