"""Ports of the settings and secrets of accounts: their stores, their encryption, and the source of values."""

from collections.abc import Collection, Mapping
from typing import Protocol

from easel.core.model.stored import EncryptedText, StoredSetting
from easel.core.secret.secret import SecretInfo
from easel.ids import AccountId


class RotatedStore(Protocol):
    """A store of encrypted texts, which `rotate` encrypts again with a new key."""

    async def list_secrets(self, other_than: str) -> list[tuple[AccountId, str, EncryptedText]]:
        """Return the secrets of all accounts that were encrypted with another key than this one."""
        ...

    async def replace_secret(
        self, account_id: AccountId, name: str, old: EncryptedText, new: EncryptedText
    ) -> bool:
        """Replace a secret unless it has changed since it was read. Returns whether it was replaced."""
        ...


class SettingStore(RotatedStore, Protocol):
    async def read(self, account_id: AccountId) -> dict[str, StoredSetting]:
        """Return the settings of the account by name."""
        ...

    async def change(self, account_id: AccountId, changes: Mapping[str, StoredSetting | None]) -> None:
        """Set these settings, all or none of them; None deletes one. The others stay. RX-19

        Nothing is stored for a user who does not exist.
        """
        ...


class SecretStore(RotatedStore, Protocol):
    async def list_names(self, account_id: AccountId, after: str, limit: int) -> list[SecretInfo]:
        """Return the names of the account's secrets after `after`, in their order, without values."""
        ...

    async def read(self, account_id: AccountId, names: Collection[str]) -> dict[str, EncryptedText]:
        """Return those of the named secrets that exist."""
        ...

    async def set(self, account_id: AccountId, name: str, secret: EncryptedText, max_count: int) -> bool:
        """Store or replace a secret. Returns False if the account has `max_count` others."""
        ...

    async def delete(self, account_id: AccountId, name: str) -> bool:
        """Delete a secret. Returns False if there is none of this name."""
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


class SecretSource(Protocol):
    """The values of secrets, for the code that calls a tool or a node."""

    async def resolve(self, account_id: AccountId, names: Collection[str]) -> Mapping[str, str]:
        """Return the values of these secrets. Raises `BadInput` for one that does not exist."""
        ...

    async def find_missing(self, account_id: AccountId, names: Collection[str]) -> list[str]:
        """Return the names that no secret of this account has."""
        ...
