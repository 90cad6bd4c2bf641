"""From rows of `secrets` to values."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from easel.core.model.stored import EncryptedText
from easel.core.secret.secret import SecretInfo


def unchanged(value: datetime) -> datetime:
    return value


def secret_info_from(row: Any, to_time: Callable[[Any], datetime] = unchanged) -> SecretInfo:
    return SecretInfo(row["name"], to_time(row["created_at"]), to_time(row["updated_at"]))


def encrypted_from(row: Any) -> EncryptedText:
    return EncryptedText(row["key_id"], bytes(row["data"]))
