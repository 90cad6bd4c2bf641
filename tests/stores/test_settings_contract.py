"""The settings of users on every store, and the encryption of secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easel.core.model.stored import EncryptedText
from easel.errors import SecretsUnavailable
from easel.ids import OWNER, AccountId
from easel.stores.encryption import SecretBox
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.host.ports import SettingStore
    from tests.stores.harness import Store

KEY, OTHER_KEY = "k" * 32, "o" * 32


@pytest.fixture
def settings(store: Store) -> SettingStore:
    return store.database.settings


@rule("RX-19")
async def test_only_the_named_settings_are_changed(settings: SettingStore) -> None:
    assert await settings.read(OWNER) == {}
    await settings.change(OWNER, {"provider": "anthropic", "model": "m"})
    await settings.change(OWNER, {"model": None, "base_url": "http://a"})
    assert await settings.read(OWNER) == {"provider": "anthropic", "base_url": "http://a"}
    await settings.change(OWNER, {"provider": "gemini", "token_budget": None})
    assert await settings.read(OWNER) == {"provider": "gemini", "base_url": "http://a"}


@rule("RX-54")
async def test_settings_of_users_are_separate(settings: SettingStore, store: Store) -> None:
    mallory = await store.add_user("mallory")
    await settings.change(OWNER, {"model": "mine"})
    await settings.change(mallory, {"model": "theirs"})
    await settings.change(mallory, {"model": None})
    assert await settings.read(OWNER) == {"model": "mine"}
    assert await settings.read(mallory) == {}


async def test_settings_are_deleted_with_their_user(settings: SettingStore, store: Store) -> None:
    mallory = await store.add_user("mallory")
    await settings.change(mallory, {"model": "m"})
    await settings.change(AccountId("nobody"), {"model": "m"})
    await store.sql("delete from accounts where account_id = 'mallory'")
    assert await store.sql("select * from settings") == []


@rule("RX-19")
async def test_secret_is_stored_encrypted_and_read_back(settings: SettingStore, store: Store) -> None:
    box = SecretBox(KEY)
    secret = box.encrypt(OWNER, "api_key", "sk-plain-text")
    await settings.change(OWNER, {"api_key": secret})
    stored = (await settings.read(OWNER))["api_key"]
    assert stored == secret
    assert isinstance(stored, EncryptedText)
    assert box.decrypt(OWNER, "api_key", stored) == "sk-plain-text"
    assert b"plain-text" not in stored.data
    assert "plain-text" not in str(await store.sql("select * from settings"))


async def test_row_has_a_value_or_a_secret_with_its_key(store: Store) -> None:
    columns = "insert into settings (account_id, name, value, encrypted, key_id) values "
    text = "x'00'" if store.kind == "sqlite" else r"'\x00'"
    for values in (f"'v', {text}, 'k'", "null, null, null", f"null, {text}, null", "'v', null, 'k'"):
        with pytest.raises(Exception, match=r"value_or_encrypted|encrypted_has_key"):
            await store.sql(f"{columns} ('owner', 'api_key', {values})")


async def test_secrets_of_other_keys_are_listed_and_replaced(settings: SettingStore) -> None:
    old, new = SecretBox(KEY), SecretBox(OTHER_KEY, [KEY])
    assert new.current_key_id is not None
    secret = old.encrypt(OWNER, "api_key", "one")
    await settings.change(OWNER, {"api_key": secret, "model": "m"})
    listed = await settings.list_secrets(new.current_key_id)
    assert listed == [(OWNER, "api_key", secret)]
    again = new.encrypt(OWNER, "api_key", "one")
    assert await settings.replace_secret(OWNER, "api_key", secret, again)
    assert not await settings.replace_secret(OWNER, "api_key", secret, again), "it has changed since"
    assert await settings.list_secrets(new.current_key_id) == []
    assert await settings.read(OWNER) == {"api_key": again, "model": "m"}


# --- encryption, without a store ----------------------------------------------------------------------------


def test_secret_of_another_row_or_changed_bytes_cannot_be_decrypted() -> None:
    box = SecretBox(KEY)
    secret = box.encrypt(OWNER, "api_key", "text")
    changed = EncryptedText(secret.key_id, secret.data[:-1] + bytes([secret.data[-1] ^ 1]))
    short = EncryptedText(secret.key_id, b"12")
    for account_id, name, tried in (
        (AccountId("mallory"), "api_key", secret),
        (OWNER, "other", secret),
        (OWNER, "api_key", changed),
        (OWNER, "api_key", short),
    ):
        with pytest.raises(SecretsUnavailable, match="set it again"):
            box.decrypt(account_id, name, tried)
    assert box.encrypt(OWNER, "api_key", "text") != secret, "a nonce must be used once"


def test_changed_key_is_explained_and_an_earlier_one_can_read() -> None:
    secret = SecretBox(KEY).encrypt(OWNER, "api_key", "text")
    with pytest.raises(SecretsUnavailable, match=f"id {secret.key_id}.*EASEL_OLD_SECRET_KEYS"):
        SecretBox(OTHER_KEY).decrypt(OWNER, "api_key", secret)
    assert SecretBox(OTHER_KEY, [KEY]).decrypt(OWNER, "api_key", secret) == "text"


def test_nothing_is_encrypted_without_a_key() -> None:
    with pytest.raises(SecretsUnavailable, match="EASEL_SECRET_KEY must be set"):
        SecretBox(None).encrypt(OWNER, "api_key", "text")
    secret = SecretBox(KEY).encrypt(OWNER, "api_key", "text")
    assert SecretBox(None, [KEY]).decrypt(OWNER, "api_key", secret) == "text"
