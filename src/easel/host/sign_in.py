"""Who is calling: the owner's token, and the cookie a browser gets for it.

A cookie is signed with the token and says when it ends, so every instance that knows the token can check it and a new
token ends all cookies. Nothing is stored, and neither token nor cookie is ever logged.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

from easel.core.principal import THE_OWNER, Principal

COOKIE_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class SignIn:
    owner_token: str = field(repr=False)

    def by_token(self, token: str) -> Principal | None:
        return THE_OWNER if hmac.compare_digest(_digest(token), _digest(self.owner_token)) else None

    def new_cookie(self, now: float) -> str:
        until = str(int(now) + COOKIE_SECONDS)
        return f"{until}.{self._signature(until)}"

    def by_cookie(self, cookie: str, now: float) -> Principal | None:
        until, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(until).encode()):
            return None
        return THE_OWNER if now < int(until) else None

    def _signature(self, until: str) -> str:
        return hmac.new(self.owner_token.encode(), f"easel cookie {until}".encode(), hashlib.sha256).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
