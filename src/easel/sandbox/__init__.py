"""Runs commands and touches files for a session with only what it was given. `tools` is the way in."""
