"""Canvases as folders of this machine: export from a running Easel, import, watch."""
