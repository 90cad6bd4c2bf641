"""The settings of users in Postgres. The rules are in the statements of `sql/postgres/settings.sql`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from easel.core.model.stored import EncryptedText, StoredSetting
from easel.ids import UserId
from easel.stores import named_sql
from easel.stores.rows.settings import encrypted_from, setting_columns, setting_from

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "settings")


class PostgresSettings:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def read(self, user_id: UserId) -> dict[str, StoredSetting]:
        rows = await self._database.rows(SQL["user_settings"], user_id=user_id)
        return {row["name"]: setting_from(row) for row in rows}

    async def change(self, user_id: UserId, changes: Mapping[str, StoredSetting | None]) -> None:
        # In the order of their names, so that two changes of one user cannot wait for each other.
        async with self._database.connection() as connection, connection.transaction():
            for name, setting in sorted(changes.items()):
                row = {"user_id": user_id, "name": name}
                statement = SQL["delete_setting"] if setting is None else SQL["set_setting"]
                columns = {} if setting is None else setting_columns(setting)
                await connection.execute(statement.sql, *statement.arguments({**row, **columns}))

    async def list_secrets(self, other_than: str) -> list[tuple[UserId, str, EncryptedText]]:
        rows = await self._database.rows(SQL["list_other_secrets"], key_id=other_than)
        return [(UserId(row["user_id"]), row["name"], encrypted_from(row)) for row in rows]

    async def replace_secret(
        self, user_id: UserId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        replaced = await self._database.rows(
            SQL["replace_secret"],
            user_id=user_id,
            name=name,
            encrypted=new.data,
            key_id=new.key_id,
            replaced=old.data,
        )
        return bool(replaced)
