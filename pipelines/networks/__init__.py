"""Which recipe and which weights a job uses, and where they come from."""
