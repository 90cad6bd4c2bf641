"""Which browsers have signed out: told to every instance by the bell, and read from the store where the bell was not heard.

Owns what is known of it here. A cookie is signed and stored nowhere, so there is nothing to look up for most requests: a sign-in that was
found open once is believed in for `HEARD_SECONDS`, since its end would have been rung.
"""

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from easel.core.stream.notifications import Notification, SignedOut
from easel.errors import Unavailable
from easel.host.ports import Notifier, SignInStore
from easel.ids import UserId

HEARD_SECONDS = 10.0  # how long the bell alone is relied on
MAX_KNOWN = 10_000  # sign-ins of each kind that are remembered; of any other the store knows
MARGIN_SECONDS = 86_400.0  # the clocks of an instance and of the store may differ

_T = TypeVar("_T")


class RevokedSignIns:
    def __init__(self, store: SignInStore, notifier: Notifier, *, keep_seconds: float) -> None:
        self._store = store
        self._notifier = notifier
        self._keep_seconds = (
            keep_seconds + MARGIN_SECONDS
        )  # so long may somebody come with what was made under it
        self._open: dict[str, float] = {}  # when they were looked at
        self._ended: dict[str, None] = {}
        self.told: Callable[[str], None] = lambda _: None  # of each that ends, perhaps more than once
        notifier.listen(self._on_notification)

    async def end(self, user_id: UserId, sign_in_id: str) -> None:
        """It opens nothing any more: here when this returns, and elsewhere as soon as it is heard."""
        await self._store.revoke(user_id, sign_in_id, self._keep_seconds)
        self._mark(sign_in_id)
        self._notifier.notify(SignedOut(sign_in_id))

    async def has_ended(self, sign_in_id: str) -> bool:
        if not self.knows(sign_in_id):
            try:
                await self.look([sign_in_id])
            except Unavailable:
                if (
                    sign_in_id not in self._open
                ):  # else they go on: nothing of theirs can be read without the store either
                    raise
        return self.knows(sign_in_id)

    def knows(self, sign_in_id: str) -> bool:
        """Whether it is known here that it was ended."""
        return sign_in_id in self._ended

    async def look(self, sign_in_ids: Iterable[str]) -> None:
        """At those that nothing was heard of for a while."""
        now = time.monotonic()
        stale = [
            one
            for one in sign_in_ids
            if one not in self._ended and now - self._open.get(one, -HEARD_SECONDS) >= HEARD_SECONDS
        ]
        if not stale:
            return
        ended = await self._store.filter_revoked(stale)
        for one in stale:
            if one in ended:
                self._mark(one)
            elif one not in self._ended:  # it may have been rung meanwhile
                _remember(self._open, one, now)

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, SignedOut):
            self._mark(notification.sign_in_id)

    def _mark(self, sign_in_id: str) -> None:
        self._open.pop(sign_in_id, None)
        _remember(self._ended, sign_in_id, None)
        self.told(sign_in_id)


def _remember(known: dict[str, _T], key: str, value: _T) -> None:
    """The oldest go where there are too many."""
    known.pop(key, None)
    for old in list(islice(known, max(0, len(known) + 1 - MAX_KNOWN))):
        del known[old]
    known[key] = value
