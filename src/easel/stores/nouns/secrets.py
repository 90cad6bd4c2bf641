"""The secrets of accounts. The rules are in the statements of `sql/common/secrets.sql`."""

from collections.abc import Collection

from easel.core.model.stored import EncryptedText
from easel.core.secret.secret import SecretInfo
from easel.ids import AccountId
from easel.stores.nouns.statements import Row, Statements


class SqlSecrets:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def list_names(self, account_id: AccountId, after: str, limit: int) -> list[SecretInfo]:
        rows = await self._sql.rows("list_secrets", account_id=account_id, after=after, limit=limit)
        return [SecretInfo(row["name"], row["created_at"], row["updated_at"]) for row in rows]

    async def read(self, account_id: AccountId, names: Collection[str]) -> dict[str, EncryptedText]:
        rows = await self._sql.rows("read_secrets", account_id=account_id, names=sorted(names))
        return {row["name"]: _encrypted_from(row) for row in rows}

    async def set(self, account_id: AccountId, name: str, secret: EncryptedText, max_count: int) -> bool:
        row = {"account_id": account_id, "name": name, "key_id": secret.key_id, "data": secret.data}
        return bool(await self._sql.rows("set_secret", **row, limit=max_count))

    async def delete(self, account_id: AccountId, name: str) -> bool:
        return bool(await self._sql.rows("delete_secret", account_id=account_id, name=name))

    async def list_secrets(self, other_than: str) -> list[tuple[AccountId, str, EncryptedText]]:
        rows = await self._sql.rows("list_other_secrets", key_id=other_than)
        return [(AccountId(row["account_id"]), row["name"], _encrypted_from(row)) for row in rows]

    async def replace_secret(
        self, account_id: AccountId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        row = {"account_id": account_id, "name": name, "key_id": new.key_id, "data": new.data}
        return bool(await self._sql.rows("replace_secret", **row, replaced=old.data))


def _encrypted_from(row: Row) -> EncryptedText:
    return EncryptedText(row["key_id"], bytes(row["data"]))
