"""The order of an account's events, for the clients that follow the account.

Owns who follows on this instance, when appends are numbered, and how long numbers are kept. The order is
durable: a client that comes back to any instance continues after its number, or is told that it is too old
and must read again what it shows. Nothing happens for accounts that nobody follows. Does not know what a
client makes of an event.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from easel.core.stream.log import Bounds, check_cursor
from easel.core.stream.notifications import CanvasAppended, Notification, OrderAdvanced, RunAppended
from easel.core.stream.order import OrderedAppend, OrderState
from easel.errors import Unavailable
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
            await self.number()  # what was appended while nobody was there
            state = await self._read_state(account_id)
            follower.advance(state.newest)
            for loop in (self._passes, self._renewals):
                loop.start()
            yield follower
        finally:
            self._followers.discard(follower)

    async def read_after(self, account_id: AccountId, server_seq: int) -> list[OrderedAppend]:
        found = await self._store.read_after(account_id, server_seq, PAGE)
        # Read after the page: what was deleted in between would be missing from it.
        state = await self._read_state(account_id)
        check_cursor(server_seq, Bounds(state.oldest, state.newest, ended=False))
        return [found[0].after(server_seq), *found[1:]] if found else []

    async def number(self) -> None:
        """Number the new events of all accounts that are followed on this instance."""
        states = await self._store.states(self._accounts()) if self._followers else {}
        numbered = states
        while waiting := [account_id for account_id, state in numbered.items() if state.has_unordered]:
            numbered = await self._store.number(waiting, limit=MAX_NUMBERED, kept=KEPT_NUMBERS)
            for account_id, state in numbered.items():
                self._notifier.notify(OrderAdvanced(account_id, state.newest))
            states |= numbered
        for account_id, state in states.items():
            self._advance(account_id, state.newest)

    async def renew(self) -> None:
        """Renew the follows of this instance, and start those again that have ended."""
        accounts = self._accounts()
        lost = accounts - await self._store.renew(accounts, FOLLOW_SECONDS) if accounts else set[AccountId]()
        for account_id in lost:
            await self._store.follow(account_id, FOLLOW_SECONDS)

    async def close(self) -> None:
        for loop in (self._passes, self._renewals):
            await loop.stop()

    async def _pass_and_pause(self) -> None:
        await self.number()
        await asyncio.sleep(PAUSE_SECONDS)

    async def _read_state(self, account_id: AccountId) -> OrderState:
        state = (await self._store.states([account_id])).get(account_id)
        if state is None:  # the account was deleted
            raise Unavailable(what="The order of the account")
        return state

    def _accounts(self) -> set[AccountId]:
        return {follower.account_id for follower in self._followers}

    def _advance(self, account_id: AccountId, server_seq: int) -> None:
        for follower in self._followers:
            if follower.account_id == account_id:
                follower.advance(server_seq)

    def _on_notification(self, notification: Notification) -> None:
        if isinstance(notification, OrderAdvanced):
            self._advance(notification.key, notification.seq)
        elif self._followers and isinstance(notification, RunAppended | CanvasAppended):
            self._passes.wake()


async def end_expired_follows(store: OrderStore) -> int:
    """End following the accounts whose followers have gone. Returns how many."""
    count = 0
    while await store.end_expired() is not None:
        count += 1
    return count
