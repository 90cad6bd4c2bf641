"""Revoked sign-ins of browsers, and the key that signs cookies.

The rules are in the statements of `sql/common/sign_ins.sql`.
"""

from collections.abc import Sequence

from easel.ids import AccountId
from easel.stores.nouns.statements import Statements


class SqlSignIns:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def signing_key(self, candidate: str) -> str:
        [row] = await self._sql.rows("signing_key", candidate=candidate)
        return row["key"]

    async def revoke(self, account_id: AccountId, sign_in_id: str, seconds: float) -> None:
        await self._sql.rows("delete_expired_sign_ins")
        await self._sql.rows("revoke_sign_in", account_id=account_id, sign_in_id=sign_in_id, seconds=seconds)

    async def filter_revoked(self, sign_in_ids: Sequence[str]) -> set[str]:
        rows = await self._sql.rows("revoked_sign_ins", sign_in_ids=list(sign_in_ids))
        return {row["sign_in_id"] for row in rows}
