"""The address of the gateway that a node connects to. Users give this address or that of the server."""

from urllib.parse import urlsplit

from easel.errors import BadSettings

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
GATEWAY = "/ws"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def gateway_url(text: str) -> str:
    """Return the address of the gateway, for `http://easel.example.org` or `wss://easel.example.org/ws`."""
    try:
        parts = urlsplit(text)
        is_valid = (
            parts.scheme in _SCHEMES
            and bool(parts.hostname)
            and parts.port != 0
            and not parts.query
            and not parts.fragment
        )
    except ValueError:
        is_valid = False
        parts = None
    if parts is None or not is_valid or parts.username is not None:
        raise BadSettings(
            problem="--url must be the address of an Easel server, such as ws://127.0.0.1:8800/ws or "
            "https://easel.example.org."
        )
    path = GATEWAY if parts.path in ("", "/") else parts.path
    return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{path}"


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK
