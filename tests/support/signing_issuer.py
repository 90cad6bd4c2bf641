"""A small OpenID provider in the test process that signs whatever a test asks for: the hostile outside world.

It publishes its discovery document and keys; `answer` is the next ID token.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from joserfc import jwk, jws

from easel.oauth.http import ProviderHttp, ProviderReply

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT_ID = "easel"
NOW = 1_800_000_000.0


def encode(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class SigningIssuer(ProviderHttp):
    """Answers requests without a socket, as `ProviderHttp` would return them."""

    def __init__(self, algorithm: str = "ES256") -> None:
        super().__init__(allows_loopback=False)
        self.issuer = "https://issuer.example"
        self.algorithm = algorithm
        self.key = new_key(algorithm, "first")
        self.keys: list[Any] = [self.key.as_dict(private=False)]
        self.changes: dict[str, Any] = {}  # of the discovery document
        self.answer: Any = None
        self.requests: list[str] = []  # paths

    async def get(self, provider: str, url: str) -> ProviderReply:
        self.requests.append(path := url.removeprefix(self.issuer))
        return ProviderReply(200, {"keys": self.keys} if path == "/keys" else self.discovery)

    async def post(
        self, provider: str, url: str, form: Mapping[str, str], auth: tuple[str, str] | None
    ) -> ProviderReply:
        return ProviderReply(200, {"access_token": "a", "token_type": "Bearer", "id_token": self.answer})

    @property
    def discovery(self) -> dict[str, Any]:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/auth",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "id_token_signing_alg_values_supported": [self.algorithm],
            **self.changes,
        }
        return {name: value for name, value in found.items() if value is not None}

    def claims(self, nonce: str, /, **changes: Any) -> dict[str, Any]:
        """Return claims that are accepted, with changes; None removes one."""
        claims = {
            "iss": self.issuer,
            "sub": "subject",
            "aud": CLIENT_ID,
            "iat": NOW,
            "exp": NOW + 300,
            "nonce": nonce,
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def sign(self, claims: dict[str, Any], *, key: jwk.Key | None = None, **header: Any) -> str:
        """Return a signed token, by default with the published key."""
        key = key or self.key
        merged = {"alg": self.algorithm, "kid": key.kid, **header}
        merged = {name: value for name, value in merged.items() if value is not None}
        registry = jws.JWSRegistry(algorithms=[merged["alg"]], strict_check_header=False)
        return jws.serialize_compact(merged, json.dumps(claims).encode(), key, registry=registry)


def new_key(algorithm: str, key_id: str) -> jwk.Key:
    parameters: jwk.KeyParameters = {"kid": key_id, "use": "sig"}
    match algorithm:
        case "RS256":
            return jwk.RSAKey.generate_key(2048, parameters)
        case "EdDSA":
            return jwk.OKPKey.generate_key("Ed25519", parameters)
        case _:
            return jwk.ECKey.generate_key("P-256", parameters)
