"""Sign-ins that were ended: pushed to every instance, and read from the store if a notification was lost.

Owns what this instance knows of them. A cookie is signed and not stored, so most requests need no query: a
sign-in that was found active is trusted for `TRUST_SECONDS`, since its end would have been notified.
"""

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from easel.core.stream.notifications import Notification, SignedOut
from easel.errors import Unavailable
from easel.host.ports import Notifier, SignInStore
from easel.ids import UserId

TRUST_SECONDS = 10.0
MAX_CACHED = 10_000  # active sign-ins, and as many revoked ones; the store has the rest
MARGIN_SECONDS = 86_400.0  # the clocks of an instance and of the store may differ

_T = TypeVar("_T")


class RevokedSignIns:
    def __init__(self, store: SignInStore, notifier: Notifier, *, keep_seconds: float) -> None:
        """Keep a revoked sign-in for `keep_seconds`: as long as anything signed under it is valid."""
        self._store = store
        self._notifier = notifier
        self._keep_seconds = keep_seconds + MARGIN_SECONDS
        self._active: dict[str, float] = {}  # when each was found active
        self._revoked: dict[str, None] = {}
        # Called with each sign-in that is revoked, perhaps more than once.
        self.on_revoked: Callable[[str], None] = lambda _: None
        notifier.listen(self._on_notification)

    async def revoke(self, user_id: UserId, sign_in_id: str) -> None:
        """Revoke a sign-in: here before this returns, on other instances when they are notified."""
        await self._store.revoke(user_id, sign_in_id, self._keep_seconds)
        self._mark_revoked(sign_in_id)
        self._notifier.notify(SignedOut(sign_in_id))

    async def is_revoked(self, sign_in_id: str) -> bool:
        """Return whether the sign-in is revoked.

        While the database is unavailable, one that was active stays so.
        """
        if not self.is_known_revoked(sign_in_id):
            try:
                await self.refresh([sign_in_id])
            except Unavailable:
                if sign_in_id not in self._active:
                    raise
        return self.is_known_revoked(sign_in_id)

    def is_known_revoked(self, sign_in_id: str) -> bool:
        """Return whether this instance knows that the sign-in is revoked, without a query."""
        return sign_in_id in self._revoked

    async def refresh(self, sign_in_ids: Iterable[str]) -> None:
        """Query those that were not checked within `TRUST_SECONDS`."""
        now = time.monotonic()
        stale = [
            sign_in_id
            for sign_in_id in sign_in_ids
            if sign_in_id not in self._revoked
            and now - self._active.get(sign_in_id, -TRUST_SECONDS) >= TRUST_SECONDS
        ]
        if not stale:
            return
        revoked = await self._store.filter_revoked(stale)
        for sign_in_id in stale:
            if sign_in_id in revoked:
                self._mark_revoked(sign_in_id)
            elif sign_in_id not in self._revoked:  # a notification may have come during the query
                _put(self._active, sign_in_id, now)

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, SignedOut):
            self._mark_revoked(notification.sign_in_id)

    def _mark_revoked(self, sign_in_id: str) -> None:
        self._active.pop(sign_in_id, None)
        _put(self._revoked, sign_in_id, None)
        self.on_revoked(sign_in_id)


def _put(cache: dict[str, _T], key: str, value: _T) -> None:
    """Put an entry and evict the oldest ones over `MAX_CACHED`."""
    cache.pop(key, None)
    for oldest in list(islice(cache, max(0, len(cache) + 1 - MAX_CACHED))):
        del cache[oldest]
    cache[key] = value
