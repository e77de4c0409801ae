"""Pixels to features: 24 FPS frames in chunks, optical flow, and the two TSN networks."""
