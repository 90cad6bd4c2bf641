"""The settings of sign-in by OpenID Connect, EASEL_OIDC_…, as the description of one provider.

Owns their checks. No message contains the value of a secret.
"""

from typing import Protocol
from urllib.parse import urlsplit

from easel.core.oauth.flow import is_loopback
from easel.core.openid.provider import OpenIdProvider, parse_allowed
from easel.errors import BadSettings


class OpenIdSettings(Protocol):
    """The settings that describe the provider."""

    @property
    def oidc_issuer(self) -> str: ...
    @property
    def oidc_client_id(self) -> str: ...
    @property
    def oidc_client_secret(self) -> str: ...
    @property
    def oidc_allowed(self) -> str: ...
    @property
    def oidc_teams_claim(self) -> str: ...
    @property
    def public_url(self) -> str: ...
    @property
    def is_prod(self) -> bool: ...


def read_openid(given: OpenIdSettings) -> OpenIdProvider | None:
    """Return the provider that these settings describe, None without an issuer. Raises `BadSettings`."""
    issuer, client_id, claim = given.oidc_issuer, given.oidc_client_id, given.oidc_teams_claim
    if not issuer:
        if client_id or given.oidc_client_secret or given.oidc_allowed or claim:
            raise BadSettings(problem="EASEL_OIDC_ISSUER must be set too, to sign in by OpenID Connect.")
        return None
    if not client_id:
        raise BadSettings(problem="EASEL_OIDC_CLIENT_ID must be set too, to sign in by OpenID Connect.")
    _check_issuer(issuer, is_prod=given.is_prod)
    if given.is_prod and not given.public_url.startswith("https://"):
        raise BadSettings(
            problem="EASEL_PUBLIC_URL must be an https address: in the profile prod the OpenID provider must "
            "call back https://…, so set it to the public address of Easel, or remove EASEL_OIDC_…."
        )
    try:
        allowed = parse_allowed(given.oidc_allowed)
    except ValueError as entry:
        raise BadSettings(
            problem=f"EASEL_OIDC_ALLOWED must be a list of domains like @example.com and addresses like "
            f"ada@example.com, separated by commas; {str(entry)[:100]!r} is neither."
        ) from None
    return OpenIdProvider(issuer, client_id, given.oidc_client_secret, allowed, claim)


def _check_issuer(issuer: str, *, is_prod: bool) -> None:
    try:
        parts = urlsplit(issuer)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    is_local = not is_prod and parts.scheme == "http" and is_loopback(host)
    is_plain = not (parts.query or parts.fragment or parts.username) and issuer.isprintable()
    if not host or not is_plain or not (parts.scheme == "https" or is_local):
        loopback = "" if is_prod else ", or an http address on this machine"
        raise BadSettings(
            problem=f"EASEL_OIDC_ISSUER must be an https address without a query{loopback}, exactly as the "
            "provider writes its issuer."
        )
