"""Port of what accounts have used: its store."""

from collections.abc import Mapping
from typing import Protocol

from easel.core.account_limits import Counts, Totals
from easel.ids import AccountId


class UsageStore(Protocol):
    async def exchange(
        self, instance_id: str, counts: Mapping[str, Counts], seconds: float
    ) -> dict[str, Counts]:
        """Store for some seconds what this instance counts of accounts and tokens.

        Returns the sums of what the other instances count of them.
        """
        ...

    async def delete_expired(self) -> None:
        """Delete counts that were not stored again in time."""
        ...

    async def totals(self, account_id: AccountId, day: str) -> Totals: ...

    async def add_model_tokens(self, account_id: AccountId, day: str, tokens: int) -> None: ...
