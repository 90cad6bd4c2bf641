"""Easel: a self-hosted host for agent canvases. The outside contract is its HTTP, WebSocket and command line."""

__version__ = "0.1.0"
__all__ = ["__version__"]
