"""Accounts with their logs, and people. The rules are in the statements of `sql/common/accounts.sql`."""

from collections.abc import Sequence

from easel.core.account import Person
from easel.core.stream.log import Bounds, LoggedEvent
from easel.ids import AccountId
from easel.stores.nouns.statements import Row, Statements
from easel.stores.rows.runs import to_events


class SqlAccounts:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def find_person(self, account_id: AccountId) -> Person | None:
        row = await self._sql.row("find_person", account_id=account_id)
        return to_person(row) if row else None

    async def bounds(self, account_id: AccountId, name: str, /) -> Bounds | None:
        row = await self._sql.row("account_bounds", account_id=account_id) if name == account_id else None
        return Bounds(row["oldest_seq"], row["last_seq"], ended=False) if row else None

    async def heads(self, account_ids: Sequence[AccountId], /) -> dict[AccountId, int]:
        rows = await self._sql.rows("account_heads", account_ids=list(account_ids))
        return {row["account_id"]: row["last_seq"] for row in rows}

    async def events_after(self, account_id: AccountId, cursor: int, limit: int, /) -> list[LoggedEvent]:
        rows = await self._sql.rows("account_after", account_id=account_id, cursor=cursor, limit=limit)
        return to_events(row.values() for row in rows)

    async def mark_deleted(self, account_id: AccountId) -> bool:
        return await self._sql.row("mark_account", account_id=account_id) is not None


def to_person(row: Row) -> Person:
    return Person(row["user_id"], bool(row["is_operator"]))
