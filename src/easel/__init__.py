"""Easel: a self-hosted host for agent canvases. Its public contract is HTTP, WebSocket and command line."""

__version__ = "0.1.0"
__all__ = ["__version__"]
