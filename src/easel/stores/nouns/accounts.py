"""Accounts with their logs, and people. The rules are in the statements of `sql/common/accounts.sql`."""

from collections.abc import Sequence

from easel.core.account import AccountKind, Member, Person
from easel.core.principal import Role
from easel.core.stream.log import Bounds, LoggedEvent
from easel.ids import AccountId, UserId
from easel.stores.nouns.statements import Row, Statements, Steps
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

    async def add(self, account_id: AccountId, kind: AccountKind, display_name: str | None = None) -> bool:
        def steps() -> Steps[bool]:
            added = yield "add_account", {"account_id": account_id, "kind": kind.value}
            if added and kind is AccountKind.PERSON:
                yield "add_person", {"account_id": account_id, "display_name": display_name}
            return bool(added)

        return await self._sql.transaction(steps())

    async def set_member(self, account_id: AccountId, user_id: UserId, role: Role) -> bool:
        row = await self._sql.row("set_member", account_id=account_id, user_id=user_id, role=role.value)
        return row is not None

    async def mark_deleted(self, account_id: AccountId) -> bool:
        return await self._sql.row("mark_account", account_id=account_id) is not None


def to_person(row: Row) -> Person:
    return Person(UserId(row["user_id"]), bool(row["is_operator"]), row["display_name"])


def to_member(row: Row) -> Member:
    """Return the person of a credential in its account."""
    return Member(AccountId(row["account_id"]), to_person(row), Role(row["member_role"]))
