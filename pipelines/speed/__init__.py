"""How fast this machine decides."""
