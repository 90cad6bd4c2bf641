"""A setting as it is stored: its text, or the encrypted text of a secret."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EncryptedText:
    key_id: str  # which key it was encrypted with
    data: bytes = field(repr=False)


StoredSetting = str | EncryptedText
