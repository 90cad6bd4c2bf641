"""Encryption of stored secrets: AES-256-GCM, with the row as associated data and the id of the key.

The key is derived by HKDF from the server's secret key, for this purpose alone: cookies are signed with
another key. A secret is bound to its row: copied to another table, user or name, it cannot be decrypted. The
id of the key is stored beside a secret, so that a changed key is recognised and earlier keys can still read.
"""

import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from easel.core.model.stored import EncryptedText
from easel.errors import SecretsUnavailable
from easel.ids import AccountId

NONCE_BYTES = 12
KEY_ID_BYTES = 8


class SecretBox:
    def __init__(self, key: str | None, earlier_keys: Sequence[str] = (), *, table: str = "settings") -> None:
        """Encrypt with `key`, and decrypt with it or an earlier one. None: nothing can be encrypted."""
        self._table = table.encode()
        self._current = None if key is None else _key_id(key)
        known = [*earlier_keys, *([] if key is None else [key])]
        self._ciphers = {_key_id(each): AESGCM(_derive(each, b"secrets", 32)) for each in known}

    @property
    def current_key_id(self) -> str | None:
        return self._current

    def encrypt(self, account_id: AccountId, name: str, text: str) -> EncryptedText:
        if self._current is None:
            raise SecretsUnavailable(
                problem="A secret cannot be stored: with Postgres, EASEL_SECRET_KEY must be set, to the same "
                "value on every instance."
            )
        nonce = os.urandom(NONCE_BYTES)
        data = self._ciphers[self._current].encrypt(nonce, text.encode(), self._row(account_id, name))
        return EncryptedText(self._current, nonce + data)

    def decrypt(self, account_id: AccountId, name: str, secret: EncryptedText) -> str:
        """Return the text. Raises `SecretsUnavailable` for another key and for a changed or moved row."""
        cipher = self._ciphers.get(secret.key_id)
        if cipher is None:
            raise SecretsUnavailable(
                problem=f"The stored {name} was encrypted with another secret key (id {secret.key_id}): add "
                f"that key to EASEL_OLD_SECRET_KEYS and restart, or set {name} again."
            )
        nonce, data = secret.data[:NONCE_BYTES], secret.data[NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, data, self._row(account_id, name)).decode()
        except (InvalidTag, ValueError):
            raise SecretsUnavailable(
                problem=f"The stored {name} was changed outside of Easel and cannot be read; set it again."
            ) from None

    def _row(self, account_id: AccountId, name: str) -> bytes:
        """Return the associated data of a row. No part can contain the separator."""
        return b"\0".join((self._table, account_id.encode(), name.encode()))


def _key_id(key: str) -> str:
    return _derive(key, b"key id", KEY_ID_BYTES).hex()


def _derive(key: str, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=b"easel " + purpose).derive(key.encode())
