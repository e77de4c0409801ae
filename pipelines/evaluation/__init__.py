"""Evaluation of checkpoints: metrics, thresholds and reports."""
