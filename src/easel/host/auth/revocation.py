"""Revocation: what a credential has opened is closed when its token is revoked or its browser signs out.

Owns the watchers of this instance, which are called within `RECHECK_SECONDS` of the revocation of a token,
and at once when a sign-out is notified.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from easel.core.principal import Principal
from easel.errors import NotSignedIn
from easel.host.auth.credentials import RECHECK_SECONDS, Credentials
from easel.host.auth.revoked_sign_ins import RevokedSignIns
from easel.host.periodic import Periodic

SIGN_IN_PREFIX = "sign_"


class Revocation:
    def __init__(
        self, credentials: Credentials, sign_ins: RevokedSignIns, *, recheck_seconds: float = RECHECK_SECONDS
    ) -> None:
        self._credentials = credentials
        self._sign_ins = sign_ins
        sign_ins.on_revoked = self._end_watched
        self._watchers: dict[str, set[Callable[[], None]]] = {}  # by token id or sign-in id
        self._is_checking = False  # from the first watcher on
        self._checking = Periodic(
            "credentials.end_revoked", recheck_seconds, self.end_revoked, delay=recheck_seconds
        )

    async def sign_out(self, principal: Principal) -> None:
        """End the sign-in of the principal's browser on every instance, and close its connections."""
        if principal.sign_in_id is not None:
            await self._sign_ins.revoke(principal.account_id, principal.sign_in_id)

    async def is_signed_out(self, principal: Principal) -> bool:
        return principal.sign_in_id is not None and await self._sign_ins.is_revoked(principal.sign_in_id)

    def watch(self, principal: Principal, on_revoked: Callable[[], None]) -> Callable[[], None]:
        """Call `on_revoked` once, when the principal's token is revoked or its browser signs out.

        Returns a function that stops watching.
        """
        keys = [key for key in (principal.token_id, principal.sign_in_id) if key is not None]

        def end() -> None:
            stop()
            on_revoked()

        def stop() -> None:
            for key in keys:
                watchers = self._watchers.get(key, set())
                watchers.discard(end)
                if not watchers:
                    self._watchers.pop(key, None)

        for key in keys:
            self._watchers.setdefault(key, set()).add(end)
        if keys and not self._is_checking:
            self._checking.start()
            self._is_checking = True
        if principal.sign_in_id is not None and self._sign_ins.is_known_revoked(principal.sign_in_id):
            end()  # the sign-in was revoked after its cookie was checked
        return stop

    @contextlib.asynccontextmanager
    async def while_valid(self, principal: Principal) -> AsyncGenerator[None]:
        """Cancel the block and raise `NotSignedIn` when the token is revoked or the browser signs out."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                stop = self.watch(principal, lambda: limit.reschedule(0))
                try:
                    yield
                finally:
                    stop()
        except TimeoutError:
            if not limit.expired():
                raise
            raise NotSignedIn from None

    async def end_revoked(self) -> None:
        """Call the watchers of tokens and sign-ins that were revoked."""
        await self._sign_ins.refresh([key for key in self._watchers if key.startswith(SIGN_IN_PREFIX)])
        # Read `_watchers` again: it may have changed during the query.
        token_ids = {key for key in self._watchers if not key.startswith(SIGN_IN_PREFIX)}
        for token_id in await self._credentials.find_revoked(token_ids):
            self._end_watched(token_id)

    async def close(self) -> None:
        await self._checking.stop()

    def _end_watched(self, key: str) -> None:
        for end in list(self._watchers.get(key, ())):
            end()
