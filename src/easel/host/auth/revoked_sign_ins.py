"""Revoked sign-ins: notified to every instance, and read from the store in case a notification was lost.

Owns this instance's cache of active and revoked sign-ins. Most requests need no query: a cookie is signed,
and a sign-in that was found active is trusted for `TRUST_SECONDS`, because its revocation is notified.
"""

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from easel.core.stream.notifications import Notification, SignedOut
from easel.errors import Unavailable
from easel.host.ports import Notifier, SignInStore
from easel.ids import AccountId

TRUST_SECONDS = 10.0
MAX_CACHED = 10_000  # active sign-ins, and as many revoked ones; all others are read from the store
MARGIN_SECONDS = 86_400.0  # tolerates different clocks of instance and store

_T = TypeVar("_T")


class RevokedSignIns:
    def __init__(self, store: SignInStore, notifier: Notifier, *, keep_seconds: float) -> None:
        """Keep revocations for `keep_seconds`, which must cover the validity of cookies and view tokens."""
        self._store = store
        self._notifier = notifier
        self._keep_seconds = keep_seconds + MARGIN_SECONDS
        self._active: dict[str, float] = {}  # sign-in id: time when it was found active
        self._revoked: dict[str, None] = {}
        # Called with the id of each revoked sign-in, perhaps more than once.
        self.on_revoked: Callable[[str], None] = lambda _: None
        notifier.listen(self._on_notification)

    async def revoke(self, account_id: AccountId, sign_in_id: str) -> None:
        """Revoke a sign-in: on this instance at once, on other instances when they are notified."""
        await self._store.revoke(account_id, sign_in_id, self._keep_seconds)
        self._mark_revoked(sign_in_id)
        self._notifier.notify(SignedOut(sign_in_id))

    async def is_revoked(self, sign_in_id: str) -> bool:
        """Return whether the sign-in is revoked.

        While the database is unavailable, a sign-in that was last found active counts as active.
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
        """Query the sign-ins that were not checked within `TRUST_SECONDS`."""
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
            elif sign_in_id not in self._revoked:  # not revoked by a notification during the query
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
