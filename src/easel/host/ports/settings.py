"""Ports of the settings of accounts: their store, and the encryption of secrets."""

from collections.abc import Mapping
from typing import Protocol

from easel.core.model.stored import EncryptedText, StoredSetting
from easel.ids import AccountId


class SettingStore(Protocol):
    async def read(self, account_id: AccountId) -> dict[str, StoredSetting]:
        """Return the settings of the account by name."""
        ...

    async def change(self, account_id: AccountId, changes: Mapping[str, StoredSetting | None]) -> None:
        """Set these settings, all or none of them; None deletes one. The others stay. RX-19

        Nothing is stored for a user who does not exist.
        """
        ...

    async def list_secrets(self, other_than: str) -> list[tuple[AccountId, str, EncryptedText]]:
        """Return the secrets of all accounts that were encrypted with another key than this one."""
        ...

    async def replace_secret(
        self, account_id: AccountId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        """Replace a secret unless it has changed since it was read. Returns whether it was replaced."""
        ...


class SecretCipher(Protocol):
    @property
    def current_key_id(self) -> str | None:
        """The id of the key that encrypts; None: there is none."""
        ...

    def encrypt(self, account_id: AccountId, name: str, text: str) -> EncryptedText:
        """Encrypt a secret for this row. Raises `SecretsUnavailable` if there is no key."""
        ...

    def decrypt(self, account_id: AccountId, name: str, secret: EncryptedText) -> str:
        """Decrypt the secret of this row. Raises `SecretsUnavailable` if the key is not known."""
        ...
