"""Threads, and arrays that may be larger than memory: how the work is done, whatever it is."""
