"""Accounts and people. The rules are in the statements of `sql/common/accounts.sql`."""

from easel.core.account import Person
from easel.ids import AccountId
from easel.stores.nouns.statements import Row, Statements


class SqlAccounts:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def find_person(self, account_id: AccountId) -> Person | None:
        row = await self._sql.row("find_person", account_id=account_id)
        return to_person(row) if row else None

    async def mark_deleted(self, account_id: AccountId) -> bool:
        return await self._sql.row("mark_account", account_id=account_id) is not None


def to_person(row: Row) -> Person:
    return Person(row["user_id"], bool(row["is_operator"]))
