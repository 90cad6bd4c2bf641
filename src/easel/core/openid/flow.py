"""One sign-in at the provider, from its start to the callback: the flow as it is stored in between.

It has no account yet, and is bound to the browser by a cookie of its own. Owns the address of the callback,
and to which of our paths a sign-in may lead back. RX-39, RX-44
"""

import hashlib
import re
from dataclasses import dataclass, field

from easel.core.oauth.flow import is_loopback, split_host
from easel.errors import BadInput

FLOW_SECONDS = 600.0
CALLBACK_PATH = "/sign-in/openid/callback"
HOME = "/"

_NAME = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
# The pages that a sign-in leads back to. Everything else, such as another host, becomes the home page.
_TARGET = re.compile(rf"/canvas/{_NAME}/{_NAME}(?:\?account=[a-z0-9-]{{1,63}})?|/api/docs")


@dataclass(frozen=True, slots=True)
class SignInFlow:
    """A flow as it is stored until its callback, which consumes it."""

    state: str = field(repr=False)
    code_verifier: str = field(repr=False)
    nonce: str = field(repr=False)
    browser: str = field(repr=False)  # the digest of the browser's cookie
    issuer: str
    redirect_uri: str
    target: str
    invitation: str | None = field(
        default=None, repr=False
    )  # its digest: connect this identity to its person


def digest_of_browser(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


def callback_address(public_url: str, host: str, *, allows_loopback: bool) -> str:
    """Return the exact address that the provider calls back. Raises `BadInput`. RX-43"""
    if public_url:
        return f"{public_url.rstrip('/')}{CALLBACK_PATH}"
    if allows_loopback and is_loopback(split_host(f"http://{host}")[0]):
        return f"http://{host}{CALLBACK_PATH}"
    raise BadInput(
        problem="Without EASEL_PUBLIC_URL a provider can call back a browser on the machine of Easel only; "
        "ask who runs this Easel to set it."
    )


def safe_target(path: str) -> str:
    """Return the path if a sign-in may lead back to it, else the home page: never another host."""
    return path if _TARGET.fullmatch(path) else HOME
