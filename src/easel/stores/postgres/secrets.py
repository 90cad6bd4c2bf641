"""The secrets of users in Postgres. The rules are in the statements of `sql/postgres/secrets.sql`."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from easel.core.model.stored import EncryptedText
from easel.core.secret.secret import SecretInfo
from easel.ids import UserId
from easel.stores import named_sql
from easel.stores.rows.secrets import encrypted_from, secret_info_from

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "secrets")


class PostgresSecrets:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def list_names(self, user_id: UserId, after: str, limit: int) -> list[SecretInfo]:
        rows = await self._database.rows(SQL["list_secrets"], user_id=user_id, after=after, limit=limit)
        return [secret_info_from(row) for row in rows]

    async def read(self, user_id: UserId, names: Collection[str]) -> dict[str, EncryptedText]:
        rows = await self._database.rows(SQL["read_secrets"], user_id=user_id, names=sorted(names))
        return {row["name"]: encrypted_from(row) for row in rows}

    async def set(self, user_id: UserId, name: str, secret: EncryptedText, max_count: int) -> bool:
        row = {"user_id": user_id, "name": name, "key_id": secret.key_id, "data": secret.data}
        return bool(await self._database.rows(SQL["set_secret"], **row, limit=max_count))

    async def delete(self, user_id: UserId, name: str) -> bool:
        return bool(await self._database.rows(SQL["delete_secret"], user_id=user_id, name=name))

    async def list_secrets(self, other_than: str) -> list[tuple[UserId, str, EncryptedText]]:
        rows = await self._database.rows(SQL["list_other_secrets"], key_id=other_than)
        return [(UserId(row["user_id"]), row["name"], encrypted_from(row)) for row in rows]

    async def replace_secret(
        self, user_id: UserId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        row = {"user_id": user_id, "name": name, "key_id": new.key_id, "data": new.data}
        return bool(await self._database.rows(SQL["replace_secret"], **row, replaced=old.data))
