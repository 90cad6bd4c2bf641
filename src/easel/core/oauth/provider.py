"""An OAuth provider as the operator of the host describes it: its client, its addresses and its models.

Owns for which model a connection may be used, and which issuer may answer. Does not know where the
description comes from.
"""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from easel.core.model.choice import ModelChoice, Provider
from easel.core.model.settings import VENDORS


@dataclass(frozen=True, slots=True)
class OAuthProvider:
    name: str
    client_id: str
    client_secret: str = field(repr=False)  # empty: a public client, which PKCE alone protects
    authorize_url: str
    token_url: str
    scopes: str = ""
    issuer: str = ""  # empty: any issuer at the origin of `authorize_url`
    base_url: str = ""  # the server whose models take its tokens; empty: that of the vendor with its name

    def serves(self, choice: ModelChoice) -> bool:
        """Return whether its tokens may be sent to the server of this model, and to no other one."""
        if choice.provider is Provider.SCRIPTED or choice.base_url != self.base_url:
            return False
        return bool(self.base_url) or VENDORS[choice.provider] == self.name

    def is_issuer(self, issuer: str | None) -> bool:
        """Return whether a callback with this `iss` may be an answer of this provider. O5"""
        if self.issuer:
            return issuer == self.issuer
        return issuer is None or _origin(issuer) == _origin(self.authorize_url)


def _origin(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", url
    return parts.scheme, parts.netloc
