"""Frames to optical flow: TV-L1 and DIS, on the CPU and on a GPU."""
