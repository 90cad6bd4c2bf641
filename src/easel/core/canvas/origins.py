"""The origins that a canvas's page may reach: what `toolPolicy.connect` may name. U6, R7

It goes into a header that keeps pages in, so nothing but an exact origin has a place there. And it leads out, never in: an address, a
name of this machine or a name that only a local network knows would make every viewer's browser a way into that network.
"""

import re
from typing import Any

from easel.core.validation import refuse, shown

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ORIGIN = re.compile(rf"(?:https|wss)://(?P<host>{_LABEL}(?:\.{_LABEL})+)(?::(?P<port>[1-9][0-9]{{0,4}}))?")
_NUMBER = re.compile(
    r"[0-9]+|0x[0-9a-f]*"
)  # a host that ends in one is an address, whatever it looks like, to every browser
_LOCAL = frozenset(
    {"localhost", "local", "localdomain", "internal", "intranet", "private", "lan", "home", "corp", "arpa"}
)
MAX_HOST_LENGTH = 253
LAST_PORT = 65_535


def checked_origin(value: Any, at: str) -> str:
    found = _ORIGIN.fullmatch(value) if isinstance(value, str) else None
    if found is None or len(found["host"]) > MAX_HOST_LENGTH or int(found["port"] or 1) > LAST_PORT:
        refuse(
            at,
            f"{shown(value)} is no origin, such as https://api.example.com (https or wss, a full name, no path, no *).",
        )
    last = found["host"].rpartition(".")[2]
    if _NUMBER.fullmatch(last) or last in _LOCAL:
        refuse(
            at,
            f"{shown(value)} is an address or a name of this machine or a local network; a page may reach public names only.",
        )
    return str(value)
