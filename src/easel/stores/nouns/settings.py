"""The settings of accounts. The rules are in the statements of `sql/common/settings.sql`."""

from collections.abc import Mapping
from typing import Any

from easel.core.model.stored import EncryptedText, StoredSetting
from easel.ids import AccountId
from easel.stores.nouns.statements import Row, Statements, Steps


class SqlSettings:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def read(self, account_id: AccountId) -> dict[str, StoredSetting]:
        rows = await self._sql.rows("settings_of_account", account_id=account_id)
        return {
            row["name"]: row["value"] if row["encrypted"] is None else _encrypted_from(row) for row in rows
        }

    async def change(self, account_id: AccountId, changes: Mapping[str, StoredSetting | None]) -> None:
        await self._sql.transaction(_change(account_id, changes))

    async def list_secrets(self, other_than: str) -> list[tuple[AccountId, str, EncryptedText]]:
        rows = await self._sql.rows("list_other_secrets", key_id=other_than)
        return [(AccountId(row["account_id"]), row["name"], _encrypted_from(row)) for row in rows]

    async def replace_secret(
        self, account_id: AccountId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        row = {"account_id": account_id, "name": name, "encrypted": new.data, "key_id": new.key_id}
        return bool(await self._sql.rows("replace_secret", **row, replaced=old.data))


def _change(account_id: AccountId, changes: Mapping[str, StoredSetting | None]) -> Steps[None]:
    # In the order of their names, so that two changes of one account cannot wait for each other.
    for name, setting in sorted(changes.items()):
        row = {"account_id": account_id, "name": name}
        if setting is None:
            yield "delete_setting", row
        else:
            yield "set_setting", {**row, **_columns(setting)}


def _columns(setting: StoredSetting) -> dict[str, Any]:
    if isinstance(setting, EncryptedText):
        return {"value": None, "encrypted": setting.data, "key_id": setting.key_id}
    return {"value": setting, "encrypted": None, "key_id": None}


def _encrypted_from(row: Row) -> EncryptedText:
    return EncryptedText(row["key_id"], bytes(row["encrypted"]))
