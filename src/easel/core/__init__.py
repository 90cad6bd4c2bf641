"""Rules: no await, no clock, no I/O. Time, ids and chance arrive as arguments."""
