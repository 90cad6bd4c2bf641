"""The settings of sign-in by OpenID Connect, EASEL_OIDC_…, as the description of one provider.

Owns their checks. No message contains the value of a secret.
"""

from urllib.parse import urlsplit

from easel.core.oauth.flow import is_loopback
from easel.core.openid.provider import OpenIdProvider, parse_allowed
from easel.errors import BadSettings


def read_openid(
    issuer: str,
    client_id: str,
    client_secret: str,
    allowed: str,
    teams_claim: str,
    *,
    public_url: str,
    is_prod: bool,
) -> OpenIdProvider | None:
    """Return the provider that these settings describe, None without an issuer. Raises `BadSettings`."""
    if not issuer:
        if client_id or client_secret or allowed or teams_claim:
            raise BadSettings(problem="EASEL_OIDC_ISSUER must be set too, to sign in by OpenID Connect.")
        return None
    if not client_id:
        raise BadSettings(problem="EASEL_OIDC_CLIENT_ID must be set too, to sign in by OpenID Connect.")
    _check_issuer(issuer, is_prod=is_prod)
    if is_prod and not public_url.startswith("https://"):
        raise BadSettings(
            problem="EASEL_PUBLIC_URL must be an https address: in the profile prod the OpenID provider must "
            "call back https://…, so set it to the public address of Easel, or remove EASEL_OIDC_…."
        )
    try:
        entries = parse_allowed(allowed)
    except ValueError as entry:
        raise BadSettings(
            problem=f"EASEL_OIDC_ALLOWED must be a list of domains like @example.com and addresses like "
            f"ada@example.com, separated by commas; {str(entry)[:100]!r} is neither."
        ) from None
    return OpenIdProvider(issuer, client_id, client_secret, entries, teams_claim)


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
