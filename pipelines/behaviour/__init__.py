"""What behaviour scientists report of labels: time budgets, ethograms, and how far two observers agree."""
