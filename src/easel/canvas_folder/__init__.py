"""Canvases as folders on this machine: export from a running Easel, import, watch."""
