"""Revocation: what a credential has opened is closed when it ends or gives other rights.

Owns the watchers of this instance, which are called within `RECHECK_SECONDS` after a token was revoked or has
expired, a person was disabled or has another role, and at once when a sign-out is notified.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from easel.core.principal import Principal
from easel.core.stream.notifications import Notification, SignedOut
from easel.errors import NotSignedIn
from easel.host.auth.credentials import RECHECK_SECONDS, Credentials
from easel.host.periodic import Periodic
from easel.host.ports import Notifier, SignInStore
from easel.ids import UserId


class Revocation:
    def __init__(
        self,
        credentials: Credentials,
        sign_ins: SignInStore,
        notifier: Notifier,
        *,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._credentials = credentials
        self._sign_ins = sign_ins
        self._notifier = notifier
        # By the principal that a connection was opened with: many connections have the same one.
        self._watchers: dict[Principal, set[Callable[[], None]]] = {}
        self._is_checking = False  # from the first watcher on
        self._checking = Periodic(
            "credentials.end_revoked", recheck_seconds, self.end_revoked, delay=recheck_seconds
        )
        notifier.listen(self._on_notification)

    async def sign_out(self, principal: Principal) -> None:
        """End the sign-in of the principal's browser on every instance, and close its connections."""
        if principal.sign_in_id is not None and await self._sign_ins.end(principal.sign_in_id):
            self._end_sign_in(principal.sign_in_id)

    async def find_issuer(self, principal: Principal) -> str | None:
        """Return the issuer by which the person signed in in this browser, None for another way."""
        return principal.sign_in_id and await self._sign_ins.find_issuer(principal.sign_in_id)

    async def sign_out_others(self, user_id: UserId, kept: str | None = None) -> None:
        """End the sign-ins of a person, except one."""
        for sign_in_id in await self._sign_ins.end_all(user_id, kept or ""):
            self._end_sign_in(sign_in_id)

    async def is_valid(self, principal: Principal) -> bool:
        """Return whether the credential of this principal is still valid, perhaps with other rights."""
        return await self._credentials.find_again(principal) is not None

    def watch(self, principal: Principal, on_revoked: Callable[[], None]) -> Callable[[], None]:
        """Call `on_revoked` once, when the principal's credential ends or gives other rights.

        Returns a function that stops watching.
        """

        def end() -> None:
            stop()
            on_revoked()

        def stop() -> None:
            watchers = self._watchers.get(principal, set())
            watchers.discard(end)
            if not watchers:
                self._watchers.pop(principal, None)

        if principal.token_id is None and principal.sign_in_id is None:
            return stop
        self._watchers.setdefault(principal, set()).add(end)
        if not self._is_checking:
            self._checking.start()
            self._is_checking = True
        if self._credentials.is_ended(principal.sign_in_id):
            end()  # the sign-in was ended after its cookie was checked
        return stop

    @contextlib.asynccontextmanager
    async def while_valid(self, principal: Principal) -> AsyncGenerator[None]:
        """Cancel the block and raise `NotSignedIn` when the credential ends or gives other rights."""
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
        """Call the watchers of credentials that have ended or give other rights."""
        for principal in await self._credentials.list_changed(list(self._watchers)):
            self._end_watched(principal)

    async def close(self) -> None:
        await self._checking.stop()

    def _end_sign_in(self, sign_in_id: str) -> None:
        self._notifier.notify(SignedOut(sign_in_id))
        self._on_notification(SignedOut(sign_in_id))

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, SignedOut):
            self._credentials.end_sign_in(notification.sign_in_id)
            for principal in list(self._watchers):
                if principal.sign_in_id == notification.sign_in_id:
                    self._end_watched(principal)

    def _end_watched(self, principal: Principal) -> None:
        for end in list(self._watchers.get(principal, ())):
            end()
