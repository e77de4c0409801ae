"""How good scores and events are, against labels."""
