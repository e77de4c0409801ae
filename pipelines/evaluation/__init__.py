"""How good a checkpoint is: metrics, thresholds, the report."""
