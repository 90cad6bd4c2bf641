"""The services of signing in on one store. Several of them may share a store, as instances do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easel.assembly.storage import derive_key, owner_credential
from easel.host.auth.cookies import Cookies
from easel.host.auth.credentials import Credentials
from easel.host.auth.revocation import Revocation
from easel.host.auth.throttle import SignInThrottle
from easel.stores.sqlite.notifier import LocalNotifier

if TYPE_CHECKING:
    from easel.core.principal import Principal
    from tests.host.conftest import RunHarness

KEY = "k" * 43
TOKEN = "the right token"


class SigningIn:
    """Without the shared notifier the instance gets no notifications, as if they were lost."""

    def __init__(
        self,
        harness: RunHarness,
        token: str = TOKEN,
        *,
        key: str = KEY,
        notifier: LocalNotifier | None = None,
        throttle: SignInThrottle | None = None,
        recheck_seconds: float = 0.01,
    ) -> None:
        database = harness.database
        self.credentials = Credentials(
            database.tokens,
            database.accounts,
            database.sign_ins,
            [owner_credential(token)],
            throttle or SignInThrottle(1_000),
            recheck_seconds=recheck_seconds,
        )
        self.cookies = Cookies(self.credentials, database.sign_ins, derive_key(key, token, "cookie"))
        self.revocation = Revocation(
            self.credentials,
            database.sign_ins,
            notifier or LocalNotifier(),
            recheck_seconds=recheck_seconds,
        )

    async def by_token(self, token: str = TOKEN) -> Principal:
        principal = await self.credentials.authenticate(token)
        assert principal is not None
        return principal

    async def by_cookie(self, cookie: str) -> Principal:
        principal = await self.cookies.check(cookie)
        assert principal is not None
        return principal
