"""The cookie of a browser in which a person has signed in.

Owns its content: the id of the sign-in, signed with a key that all instances share. The sign-in is in the
store: it ends when it expires, when its browser signs out, and with the token that it was made by. Cookies
are never logged.
"""

import hashlib
import hmac

from easel.core.principal import Principal
from easel.host.auth.credentials import Credentials
from easel.host.ports import SignInStore
from easel.ids import AccountId, UserId, new_sign_in_id

COOKIE_SECONDS = 30 * 24 * 3600


class Cookies:
    def __init__(self, credentials: Credentials, sign_ins: SignInStore, key: bytes) -> None:
        self._credentials = credentials
        self._sign_ins = sign_ins
        self._key = key

    async def issue(
        self,
        user_id: UserId,
        *,
        token_id: str | None = None,
        before: Principal | None = None,
        issuer: str | None = None,
    ) -> str:
        """Sign a person in and return the cookie; programs and machines send their token with each request.

        If the same person was signed in `before` in this browser, the sign-in is extended: one sign-out ends
        all that the browser has opened. `issuer`: of the provider by which the person signed in.
        """
        if before is not None and before.sign_in_id is not None and before.user_id == user_id:
            sign_in_id = before.sign_in_id
            if await self._sign_ins.extend(sign_in_id, user_id, COOKIE_SECONDS, issuer):
                return self._signed(sign_in_id)
        sign_in_id = new_sign_in_id()
        await self._sign_ins.create(sign_in_id, user_id, token_id, COOKIE_SECONDS, issuer)
        return self._signed(sign_in_id)

    async def check(self, cookie: str, account_id: AccountId | None = None) -> Principal | None:
        """Return the principal of the cookie in this account, by default the person's own.

        Returns None if the cookie is forged or has ended, or the person has no role in the account.
        """
        sign_in_id = cookie.rpartition(".")[0]
        if not hmac.compare_digest(cookie.encode(), self._signed(sign_in_id).encode()):
            return None
        return await self._credentials.find(account_id, sign_in_id=sign_in_id)

    def _signed(self, sign_in_id: str) -> str:
        return f"{sign_in_id}.{hmac.new(self._key, sign_in_id.encode(), hashlib.sha256).hexdigest()}"
