"""One flow of a person to connect a provider, from its start to the callback.

Owns which address a provider may call back. Has no store, no clock and no randomness. RX-39, RX-42, RX-43
"""

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from easel.errors import BadInput
from easel.ids import AccountId, UserId

FLOW_SECONDS = 600.0
LOOPBACK_PATH = "/auth/callback"


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow as it is stored until its callback, which consumes it."""

    state: str = field(repr=False)
    code_verifier: str = field(repr=False)
    provider: str
    account_id: AccountId
    user_id: UserId
    sign_in_id: str | None  # the browser's sign-in that began the flow; None: it was begun by a token
    redirect_uri: str
    origin: str  # of the address at which the flow began


@dataclass(frozen=True, slots=True)
class CallbackRule:
    """Which address a provider calls back: that of `public_url`, or one on loopback without it."""

    public_url: str
    allows_loopback: bool  # in the profile dev-local

    def redirect_uri(self, provider: str, origin: str) -> str:
        """Return the exact address for a flow that began at `origin`. Raises `BadInput`. O4"""
        if self.public_url:
            return f"{self.public_url.rstrip('/')}{public_path(provider)}"
        host, port = split_host(origin)
        if not self.allows_loopback or not is_loopback(host):
            raise BadInput(
                problem="Without EASEL_PUBLIC_URL a provider can call back a browser on the machine of Easel "
                "only; set it to the address of Easel, and restart."
            )
        return f"http://localhost:{port}{LOOPBACK_PATH}"

    def accepts(self, flow: Flow, path: str) -> bool:
        """Return whether the callback at this path is at the exact address of the flow.

        The address is computed again: the settings may have changed since the flow began.
        """
        try:
            expected = self.redirect_uri(flow.provider, flow.origin)
        except BadInput:
            return False
        return flow.redirect_uri == expected and urlsplit(expected).path == path

    def other_origin(self, flow: Flow, host: str) -> str | None:
        """Return the origin where the flow began, if the loopback callback arrived at another host name.

        The cookie of the person is at the host name where the flow began. RX-42
        """
        began = urlsplit(flow.origin).netloc
        is_other = not self.public_url and self.allows_loopback and host != began
        return flow.origin if is_other and is_loopback(split_host(flow.origin)[0]) else None


def public_path(provider: str) -> str:
    return f"/api/oauth/{provider}/callback"


def split_host(origin: str) -> tuple[str, int]:
    """Return the host name and the port of an origin; an unreadable one has the name of no host."""
    try:
        parts = urlsplit(origin)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", 0
    return host, port or (443 if parts.scheme == "https" else 80)


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
