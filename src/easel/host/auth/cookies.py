"""The cookie that a browser gets for the token of a person.

Owns its content: the time when it expires, the sign-in of the browser, and the token it was issued for. It is
signed with a key that all instances share, so every instance can check it. It is invalid after its token is
revoked or its browser signs out. Cookies are never logged.
"""

import hashlib
import hmac
from dataclasses import replace

from easel.core.principal import Principal
from easel.host.auth.credentials import Credentials
from easel.host.auth.revoked_sign_ins import RevokedSignIns
from easel.ids import new_sign_in_id

COOKIE_SECONDS = 30 * 24 * 3600


class Cookies:
    def __init__(self, credentials: Credentials, sign_ins: RevokedSignIns, key: bytes) -> None:
        self._credentials = credentials
        self._sign_ins = sign_ins
        self._key = key

    def issue(self, now: float, principal: Principal, before: Principal | None = None) -> str:
        """Issue a cookie to a person; programs and machines send their token with each request.

        If the browser was signed in with the same token `before`, the new cookie has the same sign-in id: one
        sign-out ends all cookies of the browser.
        """
        assert principal.is_person
        is_same = before is not None and before.token_id == principal.token_id
        sign_in_id = before.sign_in_id if before is not None and is_same else None
        content = f"{int(now) + COOKIE_SECONDS}.{sign_in_id or new_sign_in_id()}.{principal.token_id}"
        return f"{content}.{self._signature(content)}"

    async def check(self, cookie: str, now: float) -> Principal | None:
        """Return the principal of the cookie, None if it is forged, expired or revoked."""
        content, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(content).encode()):
            return None
        expires_at, sign_in_id, token_id = content.split(".")
        if not now < int(expires_at) or await self._sign_ins.is_revoked(sign_in_id):
            return None
        principal = await self._credentials.find_by_id(token_id)
        return None if principal is None else replace(principal, sign_in_id=sign_in_id)

    def _signature(self, content: str) -> str:
        return hmac.new(self._key, content.encode(), hashlib.sha256).hexdigest()
