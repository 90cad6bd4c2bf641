"""Port of the orders of accounts: their store."""

from collections.abc import Collection
from typing import Protocol

from easel.core.stream.log import Bounds
from easel.core.stream.order import Numbered, OrderedAppend
from easel.ids import AccountId


class OrderStore(Protocol):
    """The order of all events of an account, kept while the account is followed."""

    async def follow(self, account_id: AccountId, seconds: float) -> None:
        """Follow an account for some seconds. Every append that commits from now on will be numbered.

        Waits for the appends that may have started before; raises `Unavailable` if one does not end.
        """
        ...

    async def renew(self, account_ids: Collection[AccountId], seconds: float) -> set[AccountId]:
        """Follow accounts for some seconds more. Returns those that are followed."""
        ...

    async def bounds(self, account_ids: Collection[AccountId]) -> dict[AccountId, Bounds]:
        """Return the first and the last number of each account that was ever followed."""
        ...

    async def has_unordered(self) -> bool:
        """Return whether appends have no number yet."""
        ...

    async def number(self, *, limit: int, kept: int) -> Numbered | None:
        """Number the appends of up to `limit` transactions. About `kept` numbers of each account are kept.

        Returns None if another instance numbers them.
        """
        ...

    async def read_after(self, account_id: AccountId, server_seq: int, limit: int) -> list[OrderedAppend]: ...

    async def end_expired(self) -> AccountId | None:
        """End following an account that was not renewed in time. Returns None if there is none."""
        ...
