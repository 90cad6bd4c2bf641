"""Sign-ins of browsers on every store: valid until they end, with the roles of their person."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from easel.core.account import Member, Person
from easel.core.principal import Role
from easel.core.token import TokenKind
from easel.ids import OWNER, AccountId, UserId, new_sign_in_id
from tests.requirements import case, rule
from tests.stores.test_nodes_contract import new_token

if TYPE_CHECKING:
    from easel.host.ports import SignInStore
    from tests.stores.harness import Store

MONTH = 30 * 86_400.0
ME = UserId(OWNER)


@pytest.fixture
def sign_ins(store: Store) -> SignInStore:
    return store.database.sign_ins


async def test_first_signing_key_is_used_by_all_instances(sign_ins: SignInStore) -> None:
    candidates = [f"{n}" * 43 for n in range(8)]
    keys = await asyncio.gather(*(sign_ins.signing_key(candidate) for candidate in candidates))
    assert set(keys) == {keys[0]}
    assert keys[0] in candidates
    assert await sign_ins.signing_key("x" * 43) == keys[0]


@rule("RS-76")
async def test_sign_in_gives_the_role_of_its_person_in_each_account(
    sign_ins: SignInStore, store: Store
) -> None:
    ada = UserId(await store.add_user("ada"))
    await store.add_team("devs", ada="member", owner="admin")
    await store.add_team("ops", owner="admin")
    one, other = new_sign_in_id(), new_sign_in_id()
    await sign_ins.create(one, ada, None, MONTH)
    await sign_ins.create(other, ME, None, MONTH)
    person = Person(ada, is_operator=False)
    devs, ops = AccountId("devs"), AccountId("ops")
    own = {(one, ada): Member(AccountId(ada), person, Role.ADMIN)}
    assert await sign_ins.list_valid([(one, None)]) == own
    assert await sign_ins.list_valid([(one, devs)]) == {
        **own,
        (one, devs): Member(devs, person, Role.MEMBER),
    }
    for foreign in (ops, OWNER, AccountId("nobody"), AccountId("x' or 1=1")):
        assert await sign_ins.list_valid([(one, foreign)]) == own
    both = await sign_ins.list_valid([(one, devs), (other, devs), (other, ops), ("sign_x", devs)])
    assert {(key, member.role) for key, member in both.items()} == {
        ((one, "ada"), Role.ADMIN),
        ((other, OWNER), Role.ADMIN),
        ((one, "devs"), Role.MEMBER),
        ((other, "devs"), Role.ADMIN),
        ((other, "ops"), Role.ADMIN),
    }
    assert await sign_ins.list_valid([]) == {}


@rule("RS-76")
@pytest.mark.parametrize(
    "change",
    [
        "update accounts set disabled_at = {now} where account_id = 'ada'",
        "update accounts set disabled_at = {now} where account_id = 'devs'",
        "delete from team_members",
        "update sign_ins set expires_at = {now}",
        "update tokens set revoked_at = {now}",
        "update tokens set expires_at = {now}",
        "delete from accounts where account_id = 'devs'",
        "delete from accounts where account_id = 'ada'",
    ],
)
async def test_sign_in_ends_with_what_it_depends_on(sign_ins: SignInStore, store: Store, change: str) -> None:
    ada = UserId(await store.add_user("ada"))
    devs = await store.add_team("devs", ada="member")
    made = await store.database.tokens.create(new_token(TokenKind.USER, user=AccountId(ada)))
    assert made is not None
    one = new_sign_in_id()
    await sign_ins.create(one, ada, made.token_id, MONTH)
    assert (one, devs) in await sign_ins.list_valid([(one, devs)])
    await store.sql(change.format(now=store.ago(1)))
    assert (one, devs) not in await sign_ins.list_valid([(one, devs)])


@case("O9")
async def test_ended_sign_in_is_not_extended(sign_ins: SignInStore, store: Store) -> None:
    one, other, of_ada = (new_sign_in_id() for _ in range(3))
    ada = UserId(await store.add_user("ada"))
    for sign_in_id in (one, other):
        await sign_ins.create(sign_in_id, ME, None, MONTH)
    await sign_ins.create(of_ada, ada, None, MONTH)
    assert await sign_ins.extend(one, ME, MONTH)
    assert not await sign_ins.extend(one, ada, MONTH), "of another person"
    assert await sign_ins.end(one)
    assert not await sign_ins.end(one)
    assert not await sign_ins.extend(one, ME, MONTH)
    assert await sign_ins.end_all(ME, kept="") == [other]
    assert [key for key, _ in await sign_ins.list_valid([(name, None) for name in (one, other, of_ada)])] == [
        of_ada
    ]


async def test_expired_sign_ins_of_a_person_are_deleted_by_the_next_one(
    sign_ins: SignInStore, store: Store
) -> None:
    old, new = new_sign_in_id(), new_sign_in_id()
    await sign_ins.create(old, ME, None, MONTH)
    await store.sql(f"update sign_ins set expires_at = {store.ago(1)} where sign_in_id = '{old}'")
    await sign_ins.create(new, ME, None, MONTH)
    assert [row["sign_in_id"] for row in await store.sql("select sign_in_id from sign_ins")] == [new]
