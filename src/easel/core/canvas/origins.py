"""The origins that a canvas's page may connect to, as `toolPolicy.connect` lists them. U6, R7

Owns the check of an origin. Only an exact origin is accepted, because it becomes part of a
Content-Security-Policy header. IP addresses, names of this machine and names in a local network are refused:
they would give a page access to the local network of every viewer.
"""

import re
from typing import Any

from easel.core.validation import quote_value, refuse

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN = re.compile(rf"(?:https|wss)://(?P<host>{_LABEL}(?:\.{_LABEL})+)(?::(?P<port>[1-9][0-9]{{0,4}}))?")
# Browsers parse a host that ends in a number as an IP address.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCAL = frozenset(
    {"localhost", "local", "localdomain", "internal", "intranet", "private", "lan", "home", "corp", "arpa"}
)
MAX_HOST_LENGTH = 253
MAX_PORT = 65_535


def require_origin(value: Any, at: str) -> str:
    match = _ORIGIN.fullmatch(value) if isinstance(value, str) else None
    if match is None or len(match["host"]) > MAX_HOST_LENGTH or int(match["port"] or 1) > MAX_PORT:
        refuse(
            at,
            f"{quote_value(value)} must be an origin such as https://api.example.com "
            "(https or wss, a full name, no path, no *).",
        )
    last = match["host"].rpartition(".")[2]
    if _NUMBER.fullmatch(last) or last in _LOCAL:
        refuse(
            at,
            f"{quote_value(value)} is an address, or a name of this machine or a local network; "
            "a page may reach only public names.",
        )
    return str(value)
