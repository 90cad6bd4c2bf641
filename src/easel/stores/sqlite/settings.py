"""The settings of users in SQLite. The rules are in the statements of `sql/sqlite/settings.sql`."""

import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from easel.core.model.stored import EncryptedText, StoredSetting
from easel.ids import UserId
from easel.stores import named_sql
from easel.stores.rows.settings import encrypted_from, setting_columns, setting_from

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase
    from easel.stores.sqlite.shared_access import SharedSqlite

SQL = named_sql.load("sqlite", "settings")


class SqliteSettings:
    def __init__(self, database: "SqliteDatabase | SharedSqlite") -> None:
        self._database = database

    async def read(self, user_id: UserId) -> dict[str, StoredSetting]:
        rows: list[Any] = await self._database.read(
            lambda connection: connection.execute(SQL["user_settings"].sql, {"user_id": user_id}).fetchall()
        )
        return {row["name"]: setting_from(row) for row in rows}

    async def change(self, user_id: UserId, changes: Mapping[str, StoredSetting | None]) -> None:
        now = self._database.clock()

        def work(connection: sqlite3.Connection) -> None:
            for name, setting in changes.items():
                row = {"user_id": user_id, "name": name}
                if setting is None:
                    connection.execute(SQL["delete_setting"].sql, row)
                else:
                    columns = setting_columns(setting)
                    connection.execute(SQL["set_setting"].sql, {**row, **columns, "now": now})

        await self._database.write(work)

    async def list_secrets(self, other_than: str) -> list[tuple[UserId, str, EncryptedText]]:
        rows: list[Any] = await self._database.read(
            lambda connection: connection.execute(
                SQL["list_other_secrets"].sql, {"key_id": other_than}
            ).fetchall()
        )
        return [(UserId(row["user_id"]), row["name"], encrypted_from(row)) for row in rows]

    async def replace_secret(
        self, user_id: UserId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        arguments = {
            "user_id": user_id,
            "name": name,
            "encrypted": new.data,
            "key_id": new.key_id,
            "replaced": old.data,
        }
        return await self._database.write(
            lambda connection: bool(connection.execute(SQL["replace_secret"].sql, arguments).fetchall())
        )
