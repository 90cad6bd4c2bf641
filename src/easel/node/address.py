"""Where a node connects to, as people write it: the gateway's address, or just the server's."""

from urllib.parse import urlsplit

from easel.errors import BadSettings

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
GATEWAY = "/ws"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def gateway_url(text: str) -> str:
    """`http://easel.example.org` and `wss://easel.example.org/ws` both lead to the gateway."""
    try:
        parts = urlsplit(text)
        fits = (
            parts.scheme in _SCHEMES
            and bool(parts.hostname)
            and parts.port != 0
            and not parts.query
            and not parts.fragment
        )
    except ValueError:
        fits = False
        parts = None
    if parts is None or not fits or parts.username is not None:
        raise BadSettings(
            problem="--url is the address of an Easel, such as ws://127.0.0.1:8800/ws or https://easel.example.org."
        )
    path = GATEWAY if parts.path in ("", "/") else parts.path
    return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{path}"


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK
