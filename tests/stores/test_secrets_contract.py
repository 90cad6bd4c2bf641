"""The secrets of users on every store, and their encryption."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from easel.core.model.stored import EncryptedText
from easel.errors import SecretsUnavailable
from easel.host.user_settings import rotate
from easel.ids import OWNER, AccountId
from easel.stores.encryption import SecretBox
from tests.requirements import rule

if TYPE_CHECKING:
    from easel.host.ports import SecretStore
    from tests.stores.harness import Store

KEY, OTHER_KEY = "k" * 32, "o" * 32


@pytest.fixture
def secrets(store: Store) -> SecretStore:
    return store.database.secrets


@rule("RS-66")
async def test_secret_is_set_replaced_listed_and_deleted(secrets: SecretStore) -> None:
    for name in ("B", "A", "C"):
        assert await secrets.set(OWNER, name, EncryptedText("k", b"one"), 10)
    [first, *_] = await secrets.list_names(OWNER, "", 10)
    assert await secrets.set(OWNER, "A", EncryptedText("k", b"two"), 10)
    listed = await secrets.list_names(OWNER, "", 10)
    assert [secret.name for secret in listed] == ["A", "B", "C"]
    assert listed[0].created_at == first.created_at
    assert listed[0].updated_at >= first.updated_at
    assert [secret.name for secret in await secrets.list_names(OWNER, "A", 1)] == ["B"]
    assert await secrets.read(OWNER, ["A", "B", "D"]) == {
        "A": EncryptedText("k", b"two"),
        "B": EncryptedText("k", b"one"),
    }
    assert await secrets.delete(OWNER, "A")
    assert not await secrets.delete(OWNER, "A")
    assert await secrets.read(OWNER, ["A"]) == {}


@rule("RS-66")
async def test_number_of_secrets_is_limited_and_an_existing_one_can_be_replaced(secrets: SecretStore) -> None:
    for name in ("A", "B"):
        assert await secrets.set(OWNER, name, EncryptedText("k", b"one"), 2)
    assert not await secrets.set(OWNER, "C", EncryptedText("k", b"one"), 2)
    assert await secrets.set(OWNER, "B", EncryptedText("k", b"two"), 2)
    assert len(await secrets.list_names(OWNER, "", 10)) == 2


@rule("RX-54")
async def test_secrets_of_users_are_separate_and_deleted_with_their_user(
    secrets: SecretStore, store: Store
) -> None:
    mallory = await store.add_user("mallory")
    await secrets.set(OWNER, "A", EncryptedText("k", b"mine"), 10)
    await secrets.set(mallory, "A", EncryptedText("k", b"theirs"), 10)
    assert not await secrets.set(AccountId("nobody"), "A", EncryptedText("k", b"x"), 10)
    assert await secrets.read(mallory, ["A"]) == {"A": EncryptedText("k", b"theirs")}
    await store.sql("delete from accounts where account_id = 'mallory'")
    assert [row["account_id"] for row in await store.sql("select * from secrets")] == [OWNER]


@rule("RS-66")
async def test_secret_is_bound_to_its_table_user_and_name() -> None:
    box, settings = SecretBox(KEY, table="secrets"), SecretBox(KEY)
    secret = box.encrypt(OWNER, "api_key", "plain text")
    assert box.decrypt(OWNER, "api_key", secret) == "plain text"
    with pytest.raises(SecretsUnavailable):
        settings.decrypt(OWNER, "api_key", secret)
    with pytest.raises(SecretsUnavailable):
        box.decrypt(OWNER, "other", secret)
    with pytest.raises(SecretsUnavailable):
        box.decrypt(AccountId("mallory"), "api_key", secret)


@rule("RS-66")
async def test_rotation_encrypts_secrets_again(secrets: SecretStore) -> None:
    old, new = SecretBox(KEY, table="secrets"), SecretBox(OTHER_KEY, [KEY], table="secrets")
    await secrets.set(OWNER, "A", old.encrypt(OWNER, "A", "plain text"), 10)
    assert await rotate(secrets, new) == 1
    assert await rotate(secrets, new) == 0
    [stored] = (await secrets.read(OWNER, ["A"])).values()
    assert SecretBox(OTHER_KEY, table="secrets").decrypt(OWNER, "A", stored) == "plain text"
