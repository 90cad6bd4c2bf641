"""Run commands and change files for a session, isolated from the host. `tools` is the entry point."""
