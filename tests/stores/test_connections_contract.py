"""The connections of accounts to OAuth providers on every store: whose tokens are kept, and who refreshes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.model.stored import EncryptedText
from easel.core.oauth.connection import NewConnection
from easel.host.models.settings import rotate
from easel.ids import OWNER, AccountId, UserId
from easel.stores.encryption import SecretBox
from tests.requirements import case, rule

if TYPE_CHECKING:
    from easel.core.oauth.connection import StoredConnection
    from easel.host.ports import ConnectionStore
    from tests.stores.harness import Store

ME = UserId(OWNER)
OLD, NEW = EncryptedText("k", b"old"), EncryptedText("k", b"new")
CONNECTION = NewConnection(OWNER, "openai", ME, "models", "rev_1", OLD, 60.0)
CLAIM_SECONDS = 3600.0


@pytest.fixture
def connections(store: Store) -> ConnectionStore:
    return store.database.connections


async def read(connections: ConnectionStore, account_id: AccountId = OWNER) -> StoredConnection:
    found = await connections.read(account_id, "openai")
    assert found is not None
    return found


async def add_team(store: Store, **roles: str) -> AccountId:
    await store.sql("insert into accounts (account_id, kind) values ('team', 'team')")
    for name, role in roles.items():
        await store.sql(
            f"insert into team_members (account_id, user_id, role) values ('team', '{name}', '{role}')"
        )
    return AccountId("team")


async def save(connections: ConnectionStore, before: StoredConnection, revision: str = "rev_2") -> bool:
    return await connections.save_refreshed(before, NEW, revision=revision, scopes=None, usable_seconds=60.0)


@rule("RX-40")
async def test_connection_is_stored_listed_replaced_and_deleted(connections: ConnectionStore) -> None:
    assert await connections.connect(CONNECTION)
    stored = await read(connections)
    assert (stored.secret, stored.revision, stored.is_expired) == (OLD, "rev_1", False)
    assert await connections.connect(replace(CONNECTION, secret=NEW, revision="rev_2", usable_seconds=None))
    again = await read(connections)
    assert (again.secret, again.revision, again.info.expires_at) == (NEW, "rev_2", None)
    assert await connections.list_connections(OWNER) == [again.info]
    assert await connections.delete(OWNER, "openai")
    assert not await connections.delete(OWNER, "openai")
    assert await connections.read(OWNER, "openai") is None


@rule("RX-41")
@case("O6")
async def test_one_of_many_processes_refreshes_and_its_tokens_are_kept(connections: ConnectionStore) -> None:
    await connections.connect(replace(CONNECTION, usable_seconds=0))
    expired = await read(connections)
    assert expired.is_expired
    claims = [connections.claim_refresh(expired, f"claim_{n}", CLAIM_SECONDS) for n in range(20)]
    assert sum(await asyncio.gather(*claims)) == 1
    assert (await read(connections)).is_refreshing
    assert await save(connections, expired)
    fresh = await read(connections)
    assert (fresh.secret, fresh.is_expired, fresh.is_refreshing) == (NEW, False, False)
    assert fresh.info.scopes == "models", "a provider that names no scopes leaves them"
    assert not await connections.claim_refresh(expired, "late", CLAIM_SECONDS), "the tokens have changed"


@rule("RX-41")
async def test_expired_claim_is_taken_over_and_the_first_answer_is_kept(
    connections: ConnectionStore, store: Store
) -> None:
    await connections.connect(replace(CONNECTION, usable_seconds=0))
    expired = await read(connections)
    assert await connections.claim_refresh(expired, "first", CLAIM_SECONDS)
    await store.sql(f"update auth set refresh_until = {store.ago(1)}")
    assert await connections.claim_refresh(expired, "second", CLAIM_SECONDS)
    await connections.end_refresh(expired, "first", must_reconnect=True)
    assert not (await read(connections)).info.must_reconnect, "its claim has expired"
    assert await save(connections, expired), "the tokens of the first one are valid, also without its claim"
    assert not await save(connections, expired, "rev_3")
    await connections.end_refresh(expired, "second", must_reconnect=True)
    assert not (await read(connections)).info.must_reconnect, "the tokens have changed"


@rule("RX-41")
async def test_removal_and_a_new_connection_win_over_a_refresh(connections: ConnectionStore) -> None:
    await connections.connect(CONNECTION)
    before = await read(connections)
    await connections.claim_refresh(before, "claim", CLAIM_SECONDS)
    await connections.delete(OWNER, "openai")
    assert not await save(connections, before)
    assert await connections.read(OWNER, "openai") is None
    await connections.connect(replace(CONNECTION, revision="rev_9"))
    assert not await save(connections, before), "the revision is of the connection that was removed"
    assert (await read(connections)).secret == OLD


@rule("RX-41")
async def test_revoked_connection_is_marked_until_it_is_connected_again(connections: ConnectionStore) -> None:
    await connections.connect(CONNECTION)
    before = await read(connections)
    await connections.claim_refresh(before, "claim", CLAIM_SECONDS)
    await connections.end_refresh(before, "claim", must_reconnect=True)
    assert (await read(connections)).info.must_reconnect
    assert not await connections.claim_refresh(before, "other", CLAIM_SECONDS), "nothing to refresh"
    await connections.connect(replace(CONNECTION, revision="rev_2"))
    assert not (await read(connections)).info.must_reconnect


@rule("RX-54", "RS-76")
async def test_connections_of_accounts_are_separate_and_end_with_their_person(
    connections: ConnectionStore, store: Store
) -> None:
    ada, team = await store.add_user("ada"), await add_team(store, ada="admin")
    by_ada = replace(CONNECTION, account_id=team, user_id=UserId(ada))
    assert await connections.connect(by_ada)
    assert await connections.connect(CONNECTION)
    assert not await connections.connect(replace(CONNECTION, account_id=AccountId("none")))
    assert await connections.read(ada, "openai") is None
    await store.sql("delete from people where user_id = 'ada'")
    assert await connections.read(team, "openai") is None
    assert await connections.read(OWNER, "openai") is not None


@rule("RS-76")
async def test_only_an_admin_finishes_a_connection_of_a_team(
    connections: ConnectionStore, store: Store
) -> None:
    for name in ("ada", "bob", "eve"):
        await store.add_user(name)
    team = await add_team(store, ada="admin", bob="member")
    for name, may_connect in (("ada", True), ("bob", False), ("eve", False), (OWNER, False)):
        new = replace(CONNECTION, account_id=team, user_id=UserId(name))
        assert await connections.connect(new) is may_connect
    await store.sql("update accounts set disabled_at = created_at where account_id = 'team'")
    assert not await connections.connect(replace(CONNECTION, account_id=team, user_id=UserId("ada")))


@rule("RX-20")
async def test_tokens_are_bound_to_their_row_and_encrypted_again_by_a_rotation(
    connections: ConnectionStore,
) -> None:
    old, new = SecretBox("k" * 32, table="auth"), SecretBox("o" * 32, ["k" * 32], table="auth")
    await connections.connect(replace(CONNECTION, secret=old.encrypt(OWNER, "openai", "the tokens")))
    assert await rotate(connections, new) == 1
    assert await rotate(connections, new) == 0
    stored = (await read(connections)).secret
    assert b"the tokens" not in stored.data
    assert SecretBox("o" * 32, table="auth").decrypt(OWNER, "openai", stored) == "the tokens"
