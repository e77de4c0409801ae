"""Learning as one job: labelled videos to one model file."""
