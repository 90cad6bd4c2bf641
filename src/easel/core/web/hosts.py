"""The hosts that `local__Fetch` may reach: addresses of pages, lists of hosts, and public IP addresses. RS-74

Owns which text is an address (only one reading of it is possible), whether a list names its host, and which
IP addresses are public. Does not resolve names.
"""

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from easel.core.validation import quote_value, refuse

FETCH = "local__Fetch"
OWN_PAGE = "easel:/healthz"  # a fixed name of this server's own page; no host is needed for it
READ_METHODS = ("GET", "HEAD")
MAX_HOSTS = 100  # of one canvas
MAX_URL_LENGTH = 8_000
DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*"
_PORT = r"(?::(?P<port>[1-9][0-9]{0,4}))?"
_PATTERN = re.compile(rf"(?P<host>(?:\*\.{_LABEL}\.)?{_NAME}|\[[0-9a-f:.]{{2,45}}\]){_PORT}")
_URL = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{_NAME}|\[[0-9a-f:.]{{2,45}}\]){_PORT}"
    r"(?P<path>/[!-\"$->@-\[\]-~]*)?(?P<query>\?[!-\"$-\[\]-~]*)?(?:#[!-~]*)?",
    re.IGNORECASE | re.ASCII,
)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Url:
    """An address of http or https. The host is in lower case; `target` is path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host, with the port if it is not the default one: also an entry of a list of hosts."""
        return self.host if self.port == DEFAULT_PORTS[self.scheme] else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str, at: str = "url") -> Url:
    """Return the address without its fragment. Raises `BadInput` if programs could read it differently."""
    match = _URL.fullmatch(text) if len(text) <= MAX_URL_LENGTH else None
    if match is None or int(match["port"] or 1) > 65_535:
        refuse(
            at,
            f"must be like https://host/path?query: http or https, at most {MAX_URL_LENGTH} characters, no "
            "user name, no backslash, and spaces and letters beyond ASCII as %XX.",
        )
    path = match["path"] or "/"
    if not {".", ".."}.isdisjoint(re.split(r"[/\\]", unquote(path))):
        refuse(at, "must not have `.` or `..` as a part of its path.")
    scheme = match["scheme"].lower()
    port = int(match["port"] or DEFAULT_PORTS[scheme])
    return Url(scheme, match["host"].lower(), port, path + (match["query"] or ""))


def parse_host(value: Any, at: str) -> str:
    """Return an entry of a list of hosts: `api.example.com`, `*.example.com` or `10.0.0.7:8080`."""
    match = _PATTERN.fullmatch(value.lower()) if isinstance(value, str) and len(value) <= 260 else None
    if match is None or int(match["port"] or 1) > 65_535:
        refuse(
            at,
            f"{quote_value(value)} is not a host; it must be like api.example.com, api.example.com:8443 or "
            "*.example.com (every name below it), without a scheme or a path.",
        )
    return match.group()


def is_listed(url: Url, hosts: Collection[str]) -> bool:
    """Return whether a list names the host, or `*.` and a domain above it. No port: the default one."""
    names = (url.authority, f"{url.host}:{url.port}")
    return any(
        entry in names or (entry.startswith("*") and any(name.endswith(entry[1:]) for name in names))
        for entry in hosts
    )


def may_connect(address: IpAddress, private: Networks) -> bool:
    """Return whether the address is public or in one of the given networks."""
    if isinstance(address, ipaddress.IPv6Address):
        # An IPv4 address inside, which a translation or a tunnel leads to.
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return may_connect(inner, private)
    is_unicast = not address.is_multicast and (address.version == 4 or address in _GLOBAL_UNICAST)
    return (address.is_global and is_unicast) or any(address in network for network in private)


def parse_hosts(text: str) -> frozenset[str]:
    """Return the hosts of EASEL_FETCH_HOSTS. Raises `BadInput`."""
    parts = (part.strip() for part in text.split(","))
    return frozenset(parse_host(part, "EASEL_FETCH_HOSTS") for part in parts if part)


def parse_networks(text: str, setting: str = "EASEL_FETCH_PRIVATE") -> Networks:
    """Return the networks of a setting, such as `10.0.0.0/8, ::1`. Raises `BadInput`."""
    try:
        return [ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as problem:
        refuse(setting, f"{problem}; a network must be like 10.0.0.0/8.")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself. Other names, such as `a.localhost`, may be others."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
