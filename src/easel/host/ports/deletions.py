"""Port of deleted sessions, canvases and accounts: the rows that are still to be purged."""

from typing import Protocol

from easel.ids import AccountId


class DeletionStore(Protocol):
    """Sessions, canvases and accounts that are deleted, but whose rows are not purged yet.

    A step is one short transaction. It deletes a bounded number of rows of the session or canvas that was
    deleted first, or of the account, and returns how many. 0 means that nothing is left, or that other
    workers purge the rest.
    """

    async def purge_session(self) -> int: ...

    async def purge_canvas(self) -> int: ...

    async def list_accounts(self) -> list[AccountId]:
        """Return the deleted accounts, the one that was deleted first at the beginning."""
        ...

    async def purge_account(self, account_id: AccountId) -> int:
        """Do one step. The account itself is deleted last."""
        ...
