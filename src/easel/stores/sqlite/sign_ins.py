"""Revoked sign-ins of browsers, and the key that signs cookies, in SQLite.

The rules are in the statements of `sql/sqlite/sign_ins.sql`.
"""

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from easel.ids import UserId
from easel.stores import named_sql

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "sign_ins")


class SqliteSignIns:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def signing_key(self, candidate: str) -> str:
        arguments = {"candidate": candidate, "now": self._database.clock()}
        return await self._database.write(
            lambda connection: connection.execute(SQL["signing_key"].sql, arguments).fetchall()[0]["key"]
        )

    async def revoke(self, user_id: UserId, sign_in_id: str, seconds: float) -> None:
        now = self._database.clock()
        arguments = {
            "user_id": user_id,
            "sign_in_id": sign_in_id,
            "forget_at": now + int(seconds * 1_000_000),
        }

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(SQL["delete_expired_sign_ins"].sql, {"now": now})
            connection.execute(SQL["revoke_sign_in"].sql, arguments)

        await self._database.write(work)

    async def filter_revoked(self, sign_in_ids: Sequence[str]) -> set[str]:
        named = {"sign_in_ids": msgspec.json.encode(list(sign_in_ids)).decode()}
        rows: list[Any] = await self._database.read(
            lambda connection: connection.execute(SQL["revoked_sign_ins"].sql, named).fetchall()
        )
        return {row["sign_in_id"] for row in rows}
