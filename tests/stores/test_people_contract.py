"""People, teams, members and invitations on every store. RS-76"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.account import AccountKind
from easel.core.openid.identity import Identity
from easel.core.people import Membership
from easel.core.principal import Role
from easel.core.token import NewToken, TokenKind, digest_of
from easel.errors import AlreadyExists, BadInput, LastAdmin, NotFound
from easel.ids import OWNER, AccountId, UserId, new_token_id
from tests.requirements import rule
from tests.stores.harness import (
    CONSTRAINT_ERRORS,
    Store,
    other_connection,
    wait_for_blocked_statement,
)
from tests.stores.test_artifacts_contract import ON_POSTGRES

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from easel.host.ports import PeopleStore

ADA, BOB, CLEO = UserId("ada"), UserId("bob"), UserId("cleo")
WEB = AccountId("web")
WEEK = 7 * 86_400.0


@pytest.fixture
def people(store: Store) -> PeopleStore:
    return store.database.people


def new_token(user_id: str, account_id: str = "", kind: TokenKind = TokenKind.USER) -> NewToken:
    token_id = new_token_id()
    return NewToken(
        token_id=token_id,
        account_id=AccountId(account_id or user_id),
        kind=kind,
        user_id=UserId(user_id),
        role=Role.ADMIN,
        name="a token",
        node_id=None,
        digest=digest_of(token_id),
    )


async def add(people: PeopleStore, *names: UserId, is_operator: bool = False) -> None:
    for name in names:
        assert await people.add_person(
            name, is_operator=is_operator, token=new_token(name), invitation=f"of {name}", seconds=WEEK
        )


async def make_team(people: PeopleStore, **roles: str) -> None:
    """Create the team with ada as its first admin."""
    await add(people, *map(UserId, {"ada", *roles}))
    assert await people.add_team(WEB, ADA)
    for name, role in roles.items():
        assert await people.set_member(WEB, UserId(name), Role(role))


async def roles_of(people: PeopleStore, account_id: AccountId = WEB) -> dict[str, str]:
    return {member.user_id: member.role.value for member in await people.list_members(account_id, "", 100)}


async def column(store: Store, sql: str) -> list[Any]:
    return [next(iter(row.values())) for row in await store.sql(sql)]


# -- names ---------------------------------------------------------------------------------------------------


@rule("RS-76")
async def test_added_person_has_an_account_a_token_and_an_invitation(
    store: Store, people: PeopleStore
) -> None:
    token = new_token(ADA)
    assert await people.add_person(ADA, is_operator=False, token=token, invitation="digest", seconds=WEEK)
    [listed] = [person for person in await people.list_people("", 10) if person.user_id == ADA]
    assert (listed.is_operator, listed.display_name, listed.disabled_at) == (False, None, None)
    principal = await store.database.tokens.find_by_digest(token.digest)
    assert principal is not None
    assert (principal.account_id, principal.user_id, principal.role) == (ADA, ADA, Role.ADMIN)
    invited = await people.find_invited("digest")
    assert invited is not None
    assert (invited.account_id, invited.person.user_id) == (ADA, ADA)
    assert await people.list_memberships(ADA) == [Membership(AccountId(ADA), AccountKind.PERSON, Role.ADMIN)]


@rule("RS-76")
async def test_name_is_given_once_to_a_person_or_a_team(store: Store, people: PeopleStore) -> None:
    await make_team(people)
    for name in (ADA, UserId(WEB), UserId(OWNER)):
        assert not await people.add_person(
            name, is_operator=False, token=new_token(name), invitation="x", seconds=WEEK
        )
        assert not await people.add_team(AccountId(name), ADA)
    assert await column(store, "select count(*) from tokens") == [1]


@rule("RS-76")
async def test_name_of_a_deleted_account_is_not_given_again(store: Store, people: PeopleStore) -> None:
    await make_team(people, bob="admin")
    assert await people.delete_person(ADA)
    assert await people.delete_team(WEB)
    for is_purged in (False, True):
        if is_purged:
            await store.purge()
            assert await column(store, "select account_id from accounts order by 1") == ["bob", "owner"]
        for name in (ADA, UserId(WEB)):
            assert not await people.add_person(
                name, is_operator=False, token=new_token(name), invitation=str(is_purged), seconds=WEEK
            )
            assert not await people.add_team(AccountId(name), BOB)


@rule("RS-76")
@pytest.mark.parametrize("name", ["Ada", "a_b", "", "a b", "a" * 64])
async def test_database_refuses_a_name_that_is_none(people: PeopleStore, name: str) -> None:
    with pytest.raises(CONSTRAINT_ERRORS):
        await people.add_person(
            UserId(name), is_operator=False, token=new_token(name), invitation="x", seconds=WEEK
        )


async def test_lists_are_paged_by_name(people: PeopleStore) -> None:
    await make_team(people, bob="viewer")
    await people.add_team(AccountId("api-2"), BOB)
    assert [person.user_id for person in await people.list_people("", 2)] == ["ada", "bob"]
    assert [person.user_id for person in await people.list_people("bob", 2)] == ["owner"]
    assert [(t.account_id, t.member_count) for t in await people.list_teams("", 1)] == [("api-2", 1)]
    assert [(t.account_id, t.member_count) for t in await people.list_teams("api-2", 1)] == [("web", 2)]
    assert [member.user_id for member in await people.list_members(WEB, "ada", 5)] == ["bob"]
    assert await roles_of(people, AccountId(BOB)) == {"bob": "admin"}, "a person's own account"


# -- members -------------------------------------------------------------------------------------------------


@rule("RS-76")
async def test_team_needs_an_admin_who_exists_and_is_not_disabled(people: PeopleStore) -> None:
    await add(people, ADA)
    await people.disable_person(ADA)
    for admin in (ADA, CLEO, UserId(WEB)):
        with pytest.raises(NotFound):
            await people.add_team(WEB, admin)
    assert await people.find_team(WEB) is None


@rule("RS-76")
async def test_members_are_added_changed_and_removed(people: PeopleStore) -> None:
    await make_team(people, bob="viewer")
    assert await people.set_member(WEB, BOB, Role.MEMBER)
    assert await roles_of(people) == {"ada": "admin", "bob": "member"}
    with pytest.raises(AlreadyExists):
        await people.set_member(WEB, BOB, Role.ADMIN, is_member=False)
    with pytest.raises(NotFound):
        await people.set_member(WEB, CLEO, Role.ADMIN, is_member=True)
    with pytest.raises(NotFound):
        await people.set_member(WEB, CLEO, Role.VIEWER)
    assert await people.set_member(AccountId("none"), BOB, Role.VIEWER) is None
    assert await people.set_member(AccountId(ADA), BOB, Role.VIEWER) is None, "a person has no members"
    assert await people.remove_member(WEB, BOB)
    assert not await people.remove_member(WEB, BOB)
    assert await roles_of(people) == {"ada": "admin"}
    assert [found.account_id for found in await people.list_memberships(BOB)] == ["bob"]


async def at_once(store: Store, *works: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run two changes at the same time: on Postgres both have begun when one of them gets a lock."""
    if store.kind == "sqlite":
        return await asyncio.gather(*works, return_exceptions=True)
    async with other_connection(store) as other:
        async with other.transaction():
            await other.execute("select 1 from accounts for update")
            tasks = [asyncio.create_task(work) for work in works]
            await wait_for_blocked_statement(other, len(tasks))
        return await asyncio.gather(*tasks, return_exceptions=True)


LOSSES = {
    "removed": lambda people, admin: people.remove_member(WEB, ADA, admin),
    "made a member": lambda people, admin: people.set_member(WEB, ADA, Role.MEMBER, admin),
    "disabled": lambda people, admin: people.disable_person(ADA, admin),
    "deleted": lambda people, admin: people.delete_person(ADA, admin),
}


@rule("RS-76")
@pytest.mark.parametrize("loss", LOSSES)
async def test_last_admin_who_is_not_disabled_stays(people: PeopleStore, loss: str) -> None:
    await make_team(people, bob="member", cleo="admin")
    await people.disable_person(CLEO)
    before = await people.list_people("", 10)
    for new_admin in (None, ADA):
        with pytest.raises(LastAdmin, match="web"):
            await LOSSES[loss](people, new_admin)
    for new_admin in (CLEO, UserId("nobody")):
        with pytest.raises(NotFound):
            await LOSSES[loss](people, new_admin)
    assert await roles_of(people) == {"ada": "admin", "bob": "member", "cleo": "admin"}
    assert await people.list_people("", 10) == before
    assert await LOSSES[loss](people, BOB)
    assert (await roles_of(people))["bob"] == "admin"


@rule("RS-76")
@pytest.mark.parametrize("loss", LOSSES)
async def test_admin_may_go_while_another_is_left(people: PeopleStore, loss: str) -> None:
    await make_team(people, bob="admin")
    assert await LOSSES[loss](people, None)
    with pytest.raises(LastAdmin):
        await people.remove_member(WEB, BOB)


@rule("RS-76")
@pytest.mark.parametrize("second", ["removes", "is disabled", "deletes"])
async def test_two_admins_who_end_each_other_at_once_leave_one(
    store: Store, people: PeopleStore, second: str
) -> None:
    await make_team(people, bob="admin")
    ends: dict[str, Coroutine[Any, Any, Any]] = {
        "removes": people.remove_member(WEB, ADA),
        "is disabled": people.disable_person(ADA),
        "deletes": people.delete_person(ADA),
    }
    chosen = ends.pop(second)
    for other in ends.values():
        other.close()
    done = await at_once(store, people.remove_member(WEB, BOB), chosen)
    assert sorted(type(result).__name__ for result in done) == ["LastAdmin", "bool"]
    left = "select count(*) from team_members m join accounts a on a.account_id = m.user_id"
    assert await column(store, f"{left} where m.role = 'admin' and a.disabled_at is null") == [1]


@rule("RS-76")
async def test_last_operator_is_neither_disabled_nor_deleted(people: PeopleStore) -> None:
    for end in (people.disable_person, people.delete_person):
        with pytest.raises(BadInput, match="only operator"):
            await end(UserId(OWNER))
    await add(people, ADA, is_operator=True)
    assert await people.disable_person(UserId(OWNER))
    for end in (people.disable_person, people.delete_person):
        with pytest.raises(BadInput, match="only operator"):
            await end(ADA)


@rule("RS-76")
async def test_two_operators_who_disable_each_other_at_once_leave_one(
    store: Store, people: PeopleStore
) -> None:
    await add(people, ADA, is_operator=True)
    done = await at_once(store, people.disable_person(ADA), people.disable_person(UserId(OWNER)))
    assert sorted(type(result).__name__ for result in done) == ["BadInput", "bool"]


# -- who leaves ----------------------------------------------------------------------------------------------


async def departures(store: Store) -> set[tuple[str, str]]:
    rows = await store.sql("select account_id, user_id from departures")
    return {(row["account_id"], row["user_id"]) for row in rows}


async def valid_accounts(store: Store, user_id: str) -> set[str]:
    """Return the accounts in which tokens of the person are not revoked."""
    sql = f"select distinct account_id from tokens where user_id = '{user_id}' and revoked_at is null"
    return set(await column(store, sql))


@rule("RS-76", "RX-52")
async def test_removed_member_loses_the_tokens_there_and_departs(store: Store, people: PeopleStore) -> None:
    await make_team(people, bob="member")
    for kind in TokenKind:
        assert await store.database.tokens.create(new_token(BOB, WEB, kind))
    assert await store.database.tokens.create(new_token(ADA, WEB))
    await people.remove_member(WEB, BOB)
    assert await valid_accounts(store, BOB) == {"bob"}
    assert await valid_accounts(store, ADA) == {"ada", "web"}
    assert await departures(store) == {("web", "bob")}


@rule("RS-76", "RX-52")
@pytest.mark.parametrize("end", ["remove_member", "disable_person", "delete_person"])
async def test_connections_that_a_person_signed_in_go_with_them(
    store: Store, people: PeopleStore, end: str
) -> None:
    await make_team(people, bob="member")
    no_bytes = "''" if store.kind == "postgres" else "x''"
    for provider, user_id in (("one", BOB), ("two", ADA)):
        await store.sql(
            "insert into auth (account_id, provider, user_id, key_id, data, scopes, connected_at, revision)"
            f" values ('web', '{provider}', '{user_id}', 'key', {no_bytes}, '', {store.ago(0)}, 'r')"
        )
    await (people.remove_member(WEB, BOB) if end == "remove_member" else getattr(people, end)(BOB))
    assert await column(store, "select provider from auth") == ["two"]


@rule("RS-76", "RX-52")
@pytest.mark.parametrize("end", ["disable_person", "delete_person"])
async def test_disabled_or_deleted_person_departs_everywhere(
    store: Store, people: PeopleStore, end: str
) -> None:
    await make_team(people, bob="member")
    await people.add_team(AccountId("api-2"), ADA)
    await people.set_member(AccountId("api-2"), BOB, Role.VIEWER)
    assert await store.database.tokens.create(new_token(BOB, WEB, TokenKind.NODE))
    await people.invite(BOB, "a link", WEEK)
    assert await getattr(people, end)(BOB)
    assert not await getattr(people, end)(BOB)
    assert await valid_accounts(store, BOB) == set()
    assert await departures(store) == {("web", "bob"), ("bob", "bob"), ("api-2", "bob")}
    assert await people.find_invited("a link") is None
    assert await people.find_password(BOB) is None
    assert ("bob" in await roles_of(people)) is (end == "disable_person")


@rule("RS-76")
async def test_enabled_person_is_a_member_again_without_tokens(store: Store, people: PeopleStore) -> None:
    await make_team(people, bob="member")
    assert not await people.enable_person(BOB)
    await people.disable_person(BOB)
    assert await people.enable_person(BOB)
    assert await people.find_password(BOB) is not None
    assert (await roles_of(people))["bob"] == "member"
    assert await valid_accounts(store, BOB) == set()
    await people.delete_person(BOB)
    assert not await people.enable_person(BOB), "nobody comes back from being deleted"


@rule("RS-76")
async def test_departure_outlives_the_purge_of_the_person(store: Store, people: PeopleStore) -> None:
    await make_team(people, bob="member")
    await people.delete_person(BOB)
    await store.purge()
    assert await departures(store) == {("web", "bob")}


# -- invitations and passwords -------------------------------------------------------------------------------


@rule("RS-76")
async def test_invitation_is_used_once_and_by_one_of_two(people: PeopleStore) -> None:
    await add(people, ADA)
    uses = [
        people.use_invitation("of ada", display_name=name, password_hash=f"hash of {name}")
        for name in ("Ada L.", "Ada B.")
    ]
    used = [member for member in await asyncio.gather(*uses) if member is not None]
    assert len(used) == 1
    found = await people.find_password(ADA)
    assert found is not None
    assert found == (used[0], f"hash of {used[0].person.display_name}")
    assert await people.find_invited("of ada") is None


@rule("RS-76")
async def test_invitation_ends_with_a_newer_one_and_with_time(store: Store, people: PeopleStore) -> None:
    await add(people, ADA, BOB)
    assert await people.invite(ADA, "newer", WEEK)
    assert await people.find_invited("of ada") is None
    assert await people.find_invited("newer") is not None
    await store.sql(f"update invitations set expires_at = {store.ago(0)}")
    for digest in ("newer", "of bob"):
        assert await people.find_invited(digest) is None
        assert await people.use_invitation(digest, display_name=None, password_hash="x") is None
    assert not await people.invite(CLEO, "of cleo", WEEK)
    assert await people.find_password(ADA) is not None
    assert (await people.find_password(ADA))[1] is None  # type: ignore[index]


@rule("RS-76")
async def test_one_of_many_concurrent_invitations_is_left(store: Store, people: PeopleStore) -> None:
    await add(people, ADA)
    digests = [f"newer {n}" for n in range(4)]
    assert await at_once(store, *(people.invite(ADA, digest, WEEK) for digest in digests)) == [True] * 4
    assert await column(store, "select count(*) from invitations") == [1]


@rule("RS-76")
@ON_POSTGRES
@pytest.mark.parametrize("by", ["password", "identity"])
async def test_using_an_invitation_locks_the_person_before_the_invitation(
    store: Store, people: PeopleStore, by: str
) -> None:
    await add(people, ADA)
    use = (
        people.use_invitation("of ada", display_name=None, password_hash="x")
        if by == "password"
        else store.database.identities.connect("of ada", Identity("https://id.example", "s"))
    )
    async with other_connection(store) as other:
        async with other.transaction():
            await other.execute("select 1 from accounts where account_id = 'ada' for update")
            task = asyncio.create_task(use)
            await wait_for_blocked_statement(other)
            await other.execute("delete from invitations")  # as disabling the person does
        assert await task is None


@rule("RS-76")
async def test_member_who_is_removed_while_being_disabled_is_disabled(
    store: Store, people: PeopleStore
) -> None:
    await make_team(people, bob="member")
    if store.kind == "sqlite":
        done = await at_once(store, people.remove_member(WEB, BOB), people.disable_person(BOB))
        assert done == [True, True]
        return
    async with other_connection(store) as other:
        async with other.transaction():
            await other.execute("select 1 from accounts where account_id = 'web' for update")
            task = asyncio.create_task(people.disable_person(BOB))
            await wait_for_blocked_statement(other)
            await other.execute("delete from team_members where user_id = 'bob'")
        assert await task


@rule("RS-76")
@ON_POSTGRES
async def test_text_that_cannot_be_stored_is_bad_input(people: PeopleStore) -> None:
    with pytest.raises(BadInput, match="cannot be stored"):
        await people.find_password(UserId("a\0"))
    with pytest.raises(BadInput, match="cannot be stored"):
        await people.invite(UserId("a\0"), "digest", WEEK)


@rule("RS-76")
async def test_password_is_replaced_only_if_it_is_the_expected_one(people: PeopleStore) -> None:
    await add(people, ADA)
    assert not await people.set_password(ADA, "new", expected="old", keep_sign_in=None)
    assert await people.set_password(ADA, "old", expected=None, keep_sign_in=None)
    assert not await people.set_password(ADA, "new", expected=None, keep_sign_in=None)
    assert await people.set_password(ADA, "new", expected="old", keep_sign_in=None)
    await people.replace_hash(ADA, "other", "old")
    found = await people.find_password(ADA)
    assert found is not None
    assert found[1] == "new"


@rule("RS-76")
async def test_new_password_ends_the_other_sign_ins(store: Store, people: PeopleStore) -> None:
    await add(people, ADA, BOB)
    sign_ins = store.database.sign_ins
    for user_id, sign_in_id in ((ADA, "sign_1"), (ADA, "sign_2"), (BOB, "sign_3")):
        await sign_ins.create(sign_in_id, user_id, None, WEEK)
    await people.set_password(ADA, "hash", expected=None, keep_sign_in="sign_2")
    ended = "select sign_in_id from sign_ins where ended_at is not null order by 1"
    assert await column(store, ended) == ["sign_1"]
    await people.use_invitation("of ada", display_name=None, password_hash="x")
    assert await column(store, ended) == ["sign_1", "sign_2"]
