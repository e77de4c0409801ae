"""When a class is on: the rule, how thresholds are chosen, and who carries them."""
