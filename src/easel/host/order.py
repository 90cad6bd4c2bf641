"""The order of an account's events, for the clients that follow the account.

Owns who follows on this instance, when appends are numbered, and how long numbers are kept. The order is
durable: a client that reconnects to any instance continues after its number; if that is too old, it gets an
error and must read again what it shows. Accounts without followers cost nothing. Does not know what a client
makes of an event.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from easel.core.stream.log import Bounds, check_cursor
from easel.core.stream.notifications import (
    AccountAppended,
    CanvasAppended,
    Notification,
    OrderAdvanced,
    RunAppended,
)
from easel.core.stream.order import OrderedAppend
from easel.errors import NotFound, Unavailable
from easel.host.periodic import Periodic
from easel.host.ports import Notifier, OrderStore
from easel.ids import AccountId

# After its last client has left, an account is followed so long, so that a client that reconnects continues.
FOLLOW_SECONDS = 120.0
RENEW_SECONDS = FOLLOW_SECONDS / 4
EXPIRE_SECONDS = 60.0  # interval of ending follows that were not renewed
MAX_NUMBERED = 200  # transactions whose appends one transaction numbers
KEPT_NUMBERS = 10_000  # per account; a client that is further behind reads again what it shows
PAGE = 100
PAUSE_SECONDS = 0.1  # between two passes, so that many appends share a pass


class Follower:
    """One follower of an account. `head` is the newest number that this instance knows."""

    def __init__(self, order: "AccountOrder", account_id: AccountId) -> None:
        self._order = order
        self.account_id = account_id
        self.head = 0
        self._advanced = asyncio.Event()

    async def read_after(self, server_seq: int) -> list[OrderedAppend]:
        """Return the next appends after a number, at most a page. Raises `CursorOutOfRange` if it is too old
        or was never given; the follower must then read again what it shows.
        """
        return await self._order.read_after(self.account_id, server_seq)

    async def wait(self, server_seq: int, seconds: float) -> bool:
        """Wait until there are events after a number. Returns whether there are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.head <= server_seq:
                    self._advanced.clear()
                    await self._advanced.wait()
        return self.head > server_seq

    def advance(self, server_seq: int) -> None:
        if server_seq > self.head:
            self.head = server_seq
            self._advanced.set()


class AccountOrder:
    def __init__(self, store: OrderStore, notifier: Notifier, *, poll_seconds: float) -> None:
        self._store = store
        self._notifier = notifier
        self._followers: set[Follower] = set()
        self._passes = Periodic("order.number", poll_seconds, self._pass_and_pause)
        self._renewals = Periodic("order.renew", RENEW_SECONDS, self.renew, delay=RENEW_SECONDS)
        notifier.listen(self._on_notification)

    @contextlib.asynccontextmanager
    async def follow(self, account_id: AccountId) -> AsyncGenerator[Follower]:
        """Follow an account: every event that is appended from now on gets a number."""
        follower = Follower(self, account_id)
        await self._store.follow(account_id, FOLLOW_SECONDS)
        self._followers.add(follower)
        try:
            await self.number()  # events that were appended before a reconnect
            follower.advance((await self._read_bounds(account_id)).newest)
            for loop in (self._passes, self._renewals):
                loop.start()
            yield follower
        finally:
            self._followers.discard(follower)

    async def read_after(self, account_id: AccountId, server_seq: int) -> list[OrderedAppend]:
        found = await self._store.read_after(account_id, server_seq, PAGE)
        # Read after the page: what was deleted in between would be missing from it.
        check_cursor(server_seq, await self._read_bounds(account_id))
        return [found[0].after(server_seq), *found[1:]] if found else []

    async def number(self) -> None:
        """Number the new events, if there are followers on this instance."""
        if not self._followers:
            return
        if await self._store.has_unordered():
            await number_appends(self._store, self._notifier)
        for account_id, bounds in (await self._store.bounds(self._accounts())).items():
            self._advance(account_id, bounds.newest)

    async def renew(self) -> None:
        """Renew the follows of this instance, and start those again that have ended."""
        accounts = self._accounts()
        lost = accounts - await self._store.renew(accounts, FOLLOW_SECONDS) if accounts else set[AccountId]()
        for account_id in lost:
            with contextlib.suppress(NotFound, Unavailable):  # deleted, or tried again with the next renewal
                await self._store.follow(account_id, FOLLOW_SECONDS)

    async def close(self) -> None:
        for loop in (self._passes, self._renewals):
            await loop.stop()

    async def _pass_and_pause(self) -> None:
        await self.number()
        await asyncio.sleep(PAUSE_SECONDS)

    async def _read_bounds(self, account_id: AccountId) -> Bounds:
        bounds = (await self._store.bounds([account_id])).get(account_id)
        if bounds is None:  # the account was deleted
            raise Unavailable(what="The order of the account")
        return bounds

    def _accounts(self) -> set[AccountId]:
        return {follower.account_id for follower in self._followers}

    def _advance(self, account_id: AccountId, server_seq: int) -> None:
        for follower in self._followers:
            if follower.account_id == account_id:
                follower.advance(server_seq)

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, OrderAdvanced):
            self._advance(notification.key, notification.seq)
        elif self._followers and isinstance(notification, RunAppended | CanvasAppended | AccountAppended):
            self._passes.wake()


async def number_appends(store: OrderStore, notifier: Notifier) -> None:
    """Number all appends that have no number yet, unless another instance does, and notify the followers."""
    has_more = True
    while has_more:
        numbered = await store.number(limit=MAX_NUMBERED, kept=KEPT_NUMBERS)
        for account_id, bounds in numbered.orders.items() if numbered else ():
            notifier.notify(OrderAdvanced(account_id, bounds.newest))
        has_more = numbered is not None and numbered.has_more


async def end_expired_follows(store: OrderStore, notifier: Notifier) -> int:
    """End following the accounts whose followers have gone. Returns how many.

    Also numbers what is left when the instances with followers have crashed.
    """
    count = 0
    while await store.end_expired() is not None:
        count += 1
    await number_appends(store, notifier)
    return count
