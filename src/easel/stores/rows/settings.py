"""From rows of `settings` to values and back."""

from typing import Any

from easel.core.model.stored import EncryptedText, StoredSetting


def setting_from(row: Any) -> StoredSetting:
    if row["encrypted"] is None:
        return row["value"]
    return encrypted_from(row)


def encrypted_from(row: Any) -> EncryptedText:
    return EncryptedText(row["key_id"], bytes(row["encrypted"]))


def setting_columns(setting: StoredSetting) -> dict[str, Any]:
    if isinstance(setting, EncryptedText):
        return {"value": None, "encrypted": setting.data, "key_id": setting.key_id}
    return {"value": setting, "encrypted": None, "key_id": None}
