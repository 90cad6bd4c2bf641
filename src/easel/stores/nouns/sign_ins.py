"""Sign-ins of browsers, and the key that signs cookies.

The rules are in the statements of `sql/common/sign_ins.sql`.
"""

from collections.abc import Collection

from easel.core.account import Member
from easel.core.principal import Role
from easel.ids import AccountId, UserId
from easel.stores.nouns.accounts import to_member, to_person
from easel.stores.nouns.statements import Statements


class SqlSignIns:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def signing_key(self, candidate: str) -> str:
        [row] = await self._sql.rows("signing_key", candidate=candidate)
        return row["key"]

    async def create(
        self,
        sign_in_id: str,
        user_id: UserId,
        token_id: str | None,
        seconds: float,
        issuer: str | None = None,
    ) -> None:
        await self._sql.rows("delete_old_sign_ins", user_id=user_id)
        await self._sql.rows(
            "create_sign_in",
            sign_in_id=sign_in_id,
            user_id=user_id,
            token_id=token_id,
            seconds=seconds,
            issuer=issuer,
        )

    async def extend(
        self, sign_in_id: str, user_id: UserId, seconds: float, issuer: str | None = None
    ) -> bool:
        row = await self._sql.row(
            "extend_sign_in", sign_in_id=sign_in_id, user_id=user_id, seconds=seconds, issuer=issuer
        )
        return row is not None

    async def find_issuer(self, sign_in_id: str) -> str | None:
        row = await self._sql.row("sign_in_issuer", sign_in_id=sign_in_id)
        return row and row["issuer"]

    async def list_valid(
        self, sign_ins: Collection[tuple[str, AccountId | None]]
    ) -> dict[tuple[str, AccountId], Member]:
        rows = await self._sql.rows(
            "signed_in",
            sign_in_ids=[sign_in_id for sign_in_id, _ in sign_ins],
            account_ids=sorted({account_id for _, account_id in sign_ins if account_id is not None}),
        )
        members: dict[tuple[str, AccountId], Member] = {}
        for row in rows:
            own = Member(AccountId(row["user_id"]), to_person(row), Role.ADMIN)
            members[row["sign_in_id"], own.account_id] = own
            if row["account_id"] is not None:
                members[row["sign_in_id"], row["account_id"]] = to_member(row)
        return members

    async def end(self, sign_in_id: str) -> bool:
        return await self._sql.row("end_sign_in", sign_in_id=sign_in_id) is not None

    async def end_all(self, user_id: UserId, kept: str = "") -> list[str]:
        rows = await self._sql.rows("end_sign_ins", user_id=user_id, kept=kept)
        return [row["sign_in_id"] for row in rows]
