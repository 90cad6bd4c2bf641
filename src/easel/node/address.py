"""The address of the gateway that a node connects to. Users give this address or that of the server."""

from contextlib import suppress
from urllib.parse import urlsplit

from easel.errors import BadSettings

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
GATEWAY = "/ws"


def gateway_url(text: str) -> str:
    """Return the address of the gateway, for `http://easel.example.org` or `wss://easel.example.org/ws`."""
    with suppress(ValueError):
        parts = urlsplit(text)
        is_bare = not (parts.query or parts.fragment or parts.username is not None)
        if parts.scheme in _SCHEMES and parts.hostname and parts.port != 0 and is_bare:
            path = GATEWAY if parts.path in ("", "/") else parts.path
            return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{path}"
    raise BadSettings(
        problem="--url must be the address of an Easel server, such as ws://127.0.0.1:8800/ws or "
        "https://easel.example.org."
    )
