"""The secrets of users in SQLite. The rules are in the statements of `sql/sqlite/secrets.sql`."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.model.stored import EncryptedText
from easel.core.secret.secret import SecretInfo
from easel.ids import UserId
from easel.stores import named_sql
from easel.stores.rows.secrets import encrypted_from, secret_info_from
from easel.stores.sqlite.times import to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase
    from easel.stores.sqlite.shared_access import SharedSqlite

SQL = named_sql.load("sqlite", "secrets")


class SqliteSecrets:
    def __init__(self, database: "SqliteDatabase | SharedSqlite") -> None:
        self._database = database

    async def list_names(self, user_id: UserId, after: str, limit: int) -> list[SecretInfo]:
        rows = await self._read("list_secrets", user_id=user_id, after=after, limit=limit)
        return [secret_info_from(row, to_datetime) for row in rows]

    async def read(self, user_id: UserId, names: Collection[str]) -> dict[str, EncryptedText]:
        encoded = msgspec.json.encode(sorted(names)).decode()
        rows = await self._read("read_secrets", user_id=user_id, names=encoded)
        return {row["name"]: encrypted_from(row) for row in rows}

    async def set(self, user_id: UserId, name: str, secret: EncryptedText, max_count: int) -> bool:
        row = {"user_id": user_id, "name": name, "key_id": secret.key_id, "data": secret.data}
        return bool(await self._write("set_secret", **row, limit=max_count, now=self._database.clock()))

    async def delete(self, user_id: UserId, name: str) -> bool:
        return bool(await self._write("delete_secret", user_id=user_id, name=name))

    async def list_secrets(self, other_than: str) -> list[tuple[UserId, str, EncryptedText]]:
        rows = await self._read("list_other_secrets", key_id=other_than)
        return [(UserId(row["user_id"]), row["name"], encrypted_from(row)) for row in rows]

    async def replace_secret(
        self, user_id: UserId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        row = {"user_id": user_id, "name": name, "key_id": new.key_id, "data": new.data}
        return bool(await self._write("replace_secret", **row, replaced=old.data))

    async def _read(self, statement: str, /, **arguments: Any) -> list[Any]:
        return await self._database.read(
            lambda connection: connection.execute(SQL[statement].sql, arguments).fetchall()
        )

    async def _write(self, statement: str, /, **arguments: Any) -> list[Any]:
        return await self._database.write(
            lambda connection: connection.execute(SQL[statement].sql, arguments).fetchall()
        )
