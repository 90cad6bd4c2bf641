"""Identities, flows of sign-in and the teams of a claim, on every store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.account import Person
from easel.core.openid.flow import SignInFlow
from easel.core.openid.identity import Identity, TeamChanges
from easel.core.principal import Role
from easel.errors import AlreadyExists
from easel.ids import AccountId, UserId
from tests.requirements import case, rule
from tests.stores.harness import CONSTRAINT_ERRORS

if TYPE_CHECKING:
    from easel.host.ports import IdentityStore, SignInFlowStore
    from tests.stores.harness import Store

ISSUER, OTHER = "https://issuer.example", "https://other.example"
FLOW = SignInFlow("state", "verifier", "nonce", "browser", ISSUER, "https://easel/cb", "/", None)
ADA = UserId("ada")


@pytest.fixture
def identities(store: Store) -> IdentityStore:
    return store.database.identities


@pytest.fixture
def flows(store: Store) -> SignInFlowStore:
    return store.database.sign_in_flows


def teams(**roles: str) -> dict[AccountId, Role]:
    return {AccountId(team): Role(role) for team, role in roles.items()}


async def members(store: Store) -> set[tuple[str, str, str]]:
    rows = await store.sql("select account_id, user_id, role from team_members")
    return {(row["account_id"], row["user_id"], row["role"]) for row in rows}


# -- flows ---------------------------------------------------------------------------------------------------


@rule("RX-40", "RX-44")
@case("O1", "O2")
async def test_flow_is_consumed_once_by_its_own_browser(flows: SignInFlowStore) -> None:
    await flows.start(FLOW, 600)
    for state, browser in (("state", "another"), ("other", "browser"), ("state", ""), ("", "")):
        assert await flows.consume(state, browser) is None
    found = await asyncio.gather(*(flows.consume("state", "browser") for _ in range(8)))
    assert sorted(found, key=str) == sorted([FLOW, *[None] * 7], key=str)
    await flows.start(replace(FLOW, state="old"), -1)
    assert await flows.consume("old", "browser") is None


async def test_flow_of_a_browser_is_none_of_an_account(flows: SignInFlowStore, store: Store) -> None:
    await flows.start(FLOW, 600)
    assert await store.database.oauth_flows.find("state") is None
    for change in ("user_id = 'owner'", "browser = null", "nonce = null"):
        with pytest.raises(CONSTRAINT_ERRORS):
            await store.sql(f"update oauth_state set {change}")
    assert await flows.consume("state", "browser") is not None


# -- identities ----------------------------------------------------------------------------------------------


@rule("RS-76")
async def test_identity_is_the_issuer_with_the_subject(identities: IdentityStore) -> None:
    member = await identities.add_person(ADA, "Ada", ISSUER, "1")
    assert member is not None
    assert (member.account_id, member.role) == ("ada", Role.ADMIN)
    assert member.person == Person(ADA, is_operator=False, display_name="Ada")
    known = await identities.find(ISSUER, "1")
    assert known is not None
    assert known.member == member
    for issuer, subject in ((OTHER, "1"), (ISSUER, "11"), (f"{ISSUER}1", ""), (ISSUER, ""), (ISSUER, "ada")):
        assert await identities.find(issuer, subject) is None


@rule("RS-76")
async def test_new_person_never_gets_the_name_of_another(identities: IdentityStore, store: Store) -> None:
    await store.add_team("devs")
    await store.sql("insert into ended_accounts (account_id) values ('gone')")
    for name in ("owner", "devs", "gone"):
        assert await identities.add_person(UserId(name), None, ISSUER, "1") is None
    assert await identities.find(ISSUER, "1") is None


async def test_one_of_two_callbacks_at_once_makes_the_person(identities: IdentityStore, store: Store) -> None:
    found = await asyncio.gather(
        *(identities.add_person(UserId(f"ada-{n}"), None, ISSUER, "1") for n in range(4)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, AlreadyExists) for each in found) == 3
    assert len(await store.sql("select 1 from accounts where account_id like 'ada-%'")) == 1


@rule("RS-76")
@pytest.mark.parametrize("column", ["disabled_at", "deleted_at"])
async def test_disabled_or_deleted_person_has_no_member(
    identities: IdentityStore, store: Store, column: str
) -> None:
    await identities.add_person(ADA, None, ISSUER, "1")
    await store.sql(f"update accounts set disabled_at = {store.ago(1)} where account_id = 'ada'")
    await store.sql(f"update accounts set {column} = {store.ago(1)} where account_id = 'ada'")
    known = await identities.find(ISSUER, "1")
    assert known is not None
    assert known.member is None
    if column == "deleted_at":
        await store.sql("delete from accounts where account_id = 'ada'")
        known = await identities.find(ISSUER, "1")
        assert known is not None
        assert known.member is None


async def invite(store: Store, name: str, digest: str = "digest") -> None:
    assert await store.database.people.invite(UserId(name), digest, 600)


@rule("RS-76")
async def test_invitation_connects_an_identity_once(identities: IdentityStore, store: Store) -> None:
    await store.add_user("ada")
    await store.add_user("bob")
    await invite(store, "ada")
    assert await identities.connect("another", Identity(ISSUER, "1")) is None
    member = await identities.connect("digest", Identity(ISSUER, "1", display_name="Ada"))
    assert member is not None
    assert member.person == Person(ADA, is_operator=False, display_name="Ada")
    assert await identities.connect("digest", Identity(ISSUER, "2")) is None
    await invite(store, "bob")
    with pytest.raises(AlreadyExists):
        await identities.connect("digest", Identity(ISSUER, "1"))
    known = await identities.find(ISSUER, "1")
    assert known is not None
    assert known.user_id == "ada"
    assert await identities.connect("digest", Identity(ISSUER, "2")) is not None, "it was not consumed"
    # The identity of a deleted person may be connected by an invitation.
    await store.database.people.delete_person(ADA)
    await invite(store, "bob")
    assert await identities.connect("digest", Identity(ISSUER, "1")) is not None


# -- teams ---------------------------------------------------------------------------------------------------


@rule("RS-76")
async def test_claim_sets_and_removes_only_what_came_from_it(identities: IdentityStore, store: Store) -> None:
    await store.add_user("ada")
    for team in ("by-claim", "by-hand", "taken-over"):
        await store.add_team(team, owner="admin")
    await store.sql(
        "insert into team_members (account_id, user_id, role) values ('by-hand', 'ada', 'viewer')"
    )
    wanted = teams(**{"by-claim": "member", "by-hand": "admin", "taken-over": "viewer", "nowhere": "admin"})
    changes = await identities.apply_teams(ADA, wanted)
    assert changes == TeamChanges({"by-claim": "member", "taken-over": "viewer"}, (), (), ("nowhere",))
    assert await identities.apply_teams(ADA, wanted) == TeamChanges(unknown=("nowhere",))
    await store.database.people.set_member(AccountId("taken-over"), ADA, Role.MEMBER)
    assert (await identities.apply_teams(ADA, teams(**{"by-claim": "viewer"}))).given == {
        "by-claim": "viewer"
    }
    assert (await identities.apply_teams(ADA, {})).removed == ("by-claim",)
    owner = {(team, "owner", "admin") for team in ("by-claim", "by-hand", "taken-over")}
    assert await members(store) == owner | {("by-hand", "ada", "viewer"), ("taken-over", "ada", "member")}
    assert await store.sql("select account_id, user_id from departures") == [
        {"account_id": "by-claim", "user_id": "ada"}
    ]


@rule("RS-76")
async def test_claim_never_takes_the_last_admin_away(identities: IdentityStore, store: Store) -> None:
    await store.add_user("ada")
    await store.add_team("devs")
    await identities.apply_teams(ADA, teams(devs="admin"))
    for wanted in (teams(devs="member"), {}):
        assert await identities.apply_teams(ADA, wanted) == TeamChanges(kept=("devs",))
    await store.add_user("bob")
    await store.database.people.set_member(AccountId("devs"), UserId("bob"), Role.ADMIN)
    assert (await identities.apply_teams(ADA, {})).removed == ("devs",)
    assert await members(store) == {("devs", "bob", "admin")}
