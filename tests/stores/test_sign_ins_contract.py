"""Revoked sign-ins on every store: known until their cookies expire."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from easel.ids import OWNER, AccountId, new_sign_in_id
from tests.requirements import case

if TYPE_CHECKING:
    from easel.host.ports import SignInStore
    from tests.stores.harness import Store

MONTH = 30 * 86_400.0


@pytest.fixture
def sign_ins(store: Store) -> SignInStore:
    return store.database.sign_ins


async def test_first_signing_key_is_used_by_all_instances(sign_ins: SignInStore) -> None:
    candidates = [f"{n}" * 43 for n in range(8)]
    keys = await asyncio.gather(*(sign_ins.signing_key(candidate) for candidate in candidates))
    assert set(keys) == {keys[0]}
    assert keys[0] in candidates
    assert await sign_ins.signing_key("x" * 43) == keys[0]


@case("O9")
async def test_revoked_sign_ins_are_returned_among_the_given_ones(sign_ins: SignInStore) -> None:
    one, two, other = (new_sign_in_id() for _ in range(3))
    assert await sign_ins.filter_revoked([one, two]) == set()
    await sign_ins.revoke(OWNER, one, MONTH)
    await sign_ins.revoke(OWNER, other, MONTH)
    assert await sign_ins.filter_revoked([one, two]) == {one}
    assert await sign_ins.filter_revoked([]) == set()


async def test_revoking_twice_has_the_effect_of_once(sign_ins: SignInStore, store: Store) -> None:
    one = new_sign_in_id()
    for seconds in (MONTH, 0.0):
        await sign_ins.revoke(OWNER, one, seconds)
    await sign_ins.revoke(OWNER, new_sign_in_id(), MONTH)
    assert await sign_ins.filter_revoked([one]) == {one}, "the first revocation sets the time"


async def test_expired_revocations_are_deleted_by_the_next_one(sign_ins: SignInStore, store: Store) -> None:
    old, new = new_sign_in_id(), new_sign_in_id()
    await sign_ins.revoke(OWNER, old, MONTH)
    await store.sql(f"update ended_sign_ins set forget_at = {store.ago(1)} where sign_in_id = '{old}'")
    assert await sign_ins.filter_revoked([old]) == {old}
    await sign_ins.revoke(OWNER, new, MONTH)
    assert await sign_ins.filter_revoked([old, new]) == {new}


async def test_revoked_sign_ins_are_deleted_with_their_user(sign_ins: SignInStore, store: Store) -> None:
    await store.add_user("mallory")
    theirs, nobodys = new_sign_in_id(), new_sign_in_id()
    await sign_ins.revoke(AccountId("mallory"), theirs, MONTH)
    await sign_ins.revoke(AccountId("nobody"), nobodys, MONTH)
    assert await sign_ins.filter_revoked([theirs, nobodys]) == {theirs}
    await store.sql("delete from accounts where account_id = 'mallory'")
    assert await sign_ins.filter_revoked([theirs]) == set()
