"""Revoked sign-ins of browsers, and the key that signs cookies, in Postgres.

The rules are in the statements of `sql/postgres/sign_ins.sql`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from easel.ids import UserId
from easel.stores import named_sql

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "sign_ins")


class PostgresSignIns:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def signing_key(self, candidate: str) -> str:
        return (await self._database.row(SQL["signing_key"], candidate=candidate))["key"]

    async def revoke(self, user_id: UserId, sign_in_id: str, seconds: float) -> None:
        await self._database.rows(
            SQL["revoke_sign_in"], user_id=user_id, sign_in_id=sign_in_id, seconds=seconds
        )

    async def filter_revoked(self, sign_in_ids: Sequence[str]) -> set[str]:
        return {
            row["sign_in_id"]
            for row in await self._database.rows(SQL["revoked_sign_ins"], sign_in_ids=list(sign_in_ids))
        }
