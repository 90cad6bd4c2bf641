"""Accounts on every store: people, disabled accounts, and the purge of deleted ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.account import AccountKind, Member, Person
from easel.core.artifact.artifact import account_folder
from easel.core.principal import Role
from easel.core.token import TokenKind, digest_of, principal_of
from easel.ids import OWNER, AccountId, SessionId, UserId, new_token_id
from easel.stores.blobs.store import open_blobs
from tests.requirements import rule
from tests.stores.harness import CLAIM_SECONDS, CONSTRAINT_ERRORS, A, B, Store, new_run
from tests.stores.test_canvas_refresh_contract import EVERY, POLL, advance_clock, claim_jobs
from tests.stores.test_canvas_refresh_contract import create_canvas as create_refreshed_canvas
from tests.stores.test_canvases_contract import create_canvas
from tests.stores.test_deletions_contract import count_rows, fill_session
from tests.stores.test_nodes_contract import new_token
from tests.support.artifacts import new as new_artifact

if TYPE_CHECKING:
    from easel.host.ports import AccountStore

TALK = SessionId("talk")
# Their rows are deleted in bounded steps before the account is deleted with the few rows of other tables.
GROWING = (
    "sessions",
    "runs",
    "run_events",
    "messages",
    "boards",
    "artifact_refs",
    "canvases",
    "canvas_events",
    "artifacts",
    "ended_threads",
    "ended_canvases",
)


@pytest.fixture
def accounts(store: Store) -> AccountStore:
    return store.database.accounts


async def disable(store: Store, account_id: AccountId) -> None:
    await store.sql(f"update accounts set disabled_at = {store.ago(0)} where account_id = '{account_id}'")


async def enable(store: Store, account_id: AccountId) -> None:
    await store.sql(f"update accounts set disabled_at = null where account_id = '{account_id}'")


@rule("RS-76")
async def test_person_is_found_with_whether_they_operate_the_host(
    store: Store, accounts: AccountStore
) -> None:
    ada = await store.add_user("ada")
    await store.add_team("team")
    assert await accounts.find_person(OWNER) == Person(UserId(OWNER), is_operator=True)
    assert await accounts.find_person(ada) == Person(UserId(ada), is_operator=False)
    assert await accounts.find_person(AccountId("team")) is None
    assert await accounts.find_person(AccountId("nobody")) is None
    await disable(store, ada)
    assert await accounts.find_person(ada) is None


@rule("RS-76")
async def test_name_is_given_once(store: Store, accounts: AccountStore) -> None:
    ada, devs = AccountId("ada"), AccountId("devs")
    assert await accounts.add(ada, AccountKind.PERSON, "Ada L.")
    assert await accounts.add(devs, AccountKind.TEAM)
    assert await accounts.find_person(ada) == Person(UserId(ada), is_operator=False, display_name="Ada L.")
    assert await accounts.find_person(devs) is None
    for name in (ada, devs, OWNER):
        assert not await accounts.add(name, AccountKind.PERSON)
    await store.sql("insert into ended_accounts (account_id) values ('bob')")
    assert not await accounts.add(AccountId("bob"), AccountKind.TEAM)
    with pytest.raises(CONSTRAINT_ERRORS):
        await accounts.add(AccountId("A_b"), AccountKind.TEAM)


@rule("RS-76")
async def test_only_a_team_has_members(store: Store, accounts: AccountStore) -> None:
    ada, devs = UserId(await store.add_user("ada")), await store.add_team("devs")
    assert await accounts.set_member(devs, ada, Role.VIEWER)
    assert await accounts.set_member(devs, ada, Role.ADMIN)
    assert not await accounts.set_member(OWNER, ada, Role.ADMIN)
    assert not await accounts.set_member(devs, UserId("nobody"), Role.ADMIN)
    assert await store.sql("select user_id, role from team_members") == [{"user_id": "ada", "role": "admin"}]


@rule("RS-76")
@pytest.mark.parametrize("token_kind", list(TokenKind))
async def test_token_is_not_found_while_its_account_is_disabled(store: Store, token_kind: TokenKind) -> None:
    tokens, ada = store.database.tokens, await store.add_user("ada")
    made = await tokens.create(new_token(token_kind, user=ada))
    assert made is not None
    expected = principal_of(made, Member(ada, Person(UserId(ada), is_operator=False), Role.ADMIN))
    assert await tokens.find_by_digest(digest_of("s")) == await tokens.find_by_id(made.token_id) == expected
    await disable(store, ada)
    assert await tokens.find_by_digest(digest_of("s")) is None
    assert await tokens.find_by_id(made.token_id) is None
    assert await tokens.list_valid([made.token_id]) == []
    await enable(store, ada)
    assert await tokens.list_valid([made.token_id]) == [expected]


@rule("RS-76")
@pytest.mark.parametrize("token_kind", list(TokenKind))
async def test_token_for_a_team_has_the_lower_role_of_itself_and_its_person(
    store: Store, token_kind: TokenKind
) -> None:
    tokens, ada, team = store.database.tokens, UserId(await store.add_user("ada")), AccountId("devs")
    new = replace(new_token(token_kind), account_id=team, user_id=ada)
    assert await tokens.create(new) is None, "no such team"
    await store.add_team("devs")
    assert await tokens.create(new) is None, "not a member of it"
    for held, given, effective in (
        ("admin", Role.MEMBER, Role.MEMBER),
        ("member", Role.ADMIN, Role.MEMBER),
        ("viewer", Role.ADMIN, Role.VIEWER),
    ):
        await store.database.accounts.set_member(team, ada, Role(held))
        made = replace(new, token_id=new_token_id(), role=given, digest=digest_of(held))
        assert await tokens.create(made) is not None
        found = await tokens.find_by_digest(digest_of(held))
        if token_kind is TokenKind.NODE:
            assert (found is None) == (held == "viewer"), "a viewer has no nodes"
            continue
        assert found is not None
        assert (found.account_id, found.role, found.responsible) == (team, effective, ada)
        assert found.is_person == (token_kind is TokenKind.USER)
    await store.sql("delete from team_members")
    assert await tokens.find_by_digest(digest_of("admin")) is None


@rule("RS-76")
async def test_token_ends_with_its_expiry_and_with_its_person(store: Store) -> None:
    tokens, ada = store.database.tokens, await store.add_user("ada")
    await store.add_team("devs", ada="admin")
    made = await tokens.create(replace(new_token(), account_id=AccountId("devs"), user_id=UserId(ada)))
    short = await tokens.create(replace(new_token(text="short"), seconds=3600.0))
    assert made is not None
    assert short is not None
    assert short.expires_at is not None
    await tokens.note_use([made.token_id])
    used = await tokens.find(AccountId("devs"), made.token_id)
    assert used is not None
    assert used.last_used_at is not None
    assert await tokens.find(OWNER, made.token_id) is None
    assert len(await tokens.list_valid([made.token_id, short.token_id])) == 2
    await store.sql(f"update tokens set expires_at = {store.ago(1)} where token_id = '{short.token_id}'")
    await disable(store, ada)
    assert await tokens.list_valid([made.token_id, short.token_id]) == []


@rule("RS-76")
async def test_runs_of_a_disabled_account_are_not_claimed(store: Store) -> None:
    runs, ada = store.runs, await store.add_user("ada")
    lost, waiting, mine = new_run(user=ada), new_run("other", user=ada), new_run()
    await runs.enqueue(lost)
    await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    await store.expire_claim(lost.run_id)
    await runs.enqueue(waiting)
    await runs.enqueue(mine)
    await disable(store, ada)
    assert await runs.claim_expired(B, 9, CLAIM_SECONDS) == []
    assert [claim.run_id for claim in await runs.claim_queued(B, 9, CLAIM_SECONDS, 0)] == [mine.run_id]
    await enable(store, ada)
    assert [claim.run_id for claim in await runs.claim_expired(B, 9, CLAIM_SECONDS)] == [lost.run_id]
    assert [claim.run_id for claim in await runs.claim_queued(B, 9, CLAIM_SECONDS, 0)] == [waiting.run_id]


@rule("RS-76")
async def test_refresh_jobs_of_a_disabled_account_do_not_fire(store: Store) -> None:
    jobs, ada = store.database.executions, await store.add_user("ada")
    await create_refreshed_canvas(store, POLL, user=ada)
    await advance_clock(store, EVERY)
    await disable(store, ada)
    assert await claim_jobs(jobs) == []
    assert await jobs.next_refresh(unwatched=True) is None, "the scheduler does not wake up for it"
    await enable(store, ada)
    assert len(await claim_jobs(jobs)) == 1


@rule("RS-76")
async def test_deleted_account_is_disabled_and_gets_no_new_tokens(
    store: Store, accounts: AccountStore
) -> None:
    ada = await store.add_user("ada")
    assert await accounts.mark_deleted(ada)
    assert not await accounts.mark_deleted(ada)
    assert not await accounts.mark_deleted(AccountId("nobody"))
    assert await accounts.find_person(ada) is None
    assert await store.database.tokens.create(new_token(user=ada)) is None
    assert await store.database.deletions.purge_account(OWNER) == 0
    assert await store.runs.enqueue(new_run())


async def owned_tables(store: Store) -> list[str]:
    """Return the tables with an owner, except the audit chain, whose records stay."""
    columns = (
        "select m.name as table_name from sqlite_schema m, pragma_table_info(m.name) c"
        " where m.type = 'table' and c.name = 'account_id'"
        if store.kind == "sqlite"
        else "select table_name from information_schema.columns"
        " where table_schema = 'public' and column_name = 'account_id'"
    )
    return [row["table_name"] for row in await store.sql(columns) if row["table_name"] != "audit"]


async def count_owned(store: Store, account_id: AccountId) -> dict[str, int]:
    counted = {
        table: await store.sql(f"select count(*) as n from {table} where account_id = '{account_id}'")
        for table in await owned_tables(store)
    }
    return {table: rows[0]["n"] for table, rows in counted.items()}


@rule("RS-76")
async def test_deleted_account_is_purged_in_steps_and_another_stays(
    own_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("easel.stores.nouns.deletions.MAX_PURGED_ROWS", 5)
    monkeypatch.setattr("easel.stores.nouns.deletions.MAX_PURGED_RUNS", 2)
    store, database = own_store, own_store.database
    ada, blobs = await store.add_user("ada"), open_blobs(str(own_store.folder / "blobs"))
    await fill_session(store)
    for session in ("kept", "gone"):
        await database.sessions.create(OWNER, SessionId(session), None)
    await store.runs.enqueue(new_run("kept", user=ada))
    for owner in (OWNER, ada):
        await create_canvas(database.canvases, account_id=owner)
        await create_canvas(database.canvases, "deleted", account_id=owner)
        await database.canvases.delete(owner, "deleted", lambda _: None)  # type: ignore[arg-type]
        await database.artifacts.claim(owner, [new_artifact(b"%d" % n, account_id=owner) for n in range(7)])
        await database.tokens.create(new_token(user=owner, text=owner))
        for n in range(3):
            await blobs.put(f"{account_folder(owner)}/artifacts/{n}", b"text")
    before = await count_owned(store, ada)
    assert await database.accounts.mark_deleted(OWNER)
    left, steps = await count_rows(store, *GROWING), 0
    assert await database.deletions.list_accounts() == [OWNER]
    while deleted := await database.deletions.purge_account(OWNER):
        steps += 1
        assert deleted <= 5
        owned = await count_owned(store, OWNER)
        if owned["accounts"]:
            left = {table: owned[table] for table in GROWING if table in owned}
    assert steps > 15
    assert set(left.values()) == {0}, "before the account itself was deleted"
    assert set((await count_owned(store, OWNER)).values()) == {0}
    assert await database.deletions.list_accounts() == []
    assert await count_owned(store, ada) == before


@rule("RS-76")
async def test_purge_deletes_the_blobs_of_the_account_alone(store: Store, accounts: AccountStore) -> None:
    blobs, ada = open_blobs(str(store.folder / "blobs")), await store.add_user("ada")
    for owner in (ada, OWNER, "ada2"):
        await blobs.put(f"{account_folder(AccountId(owner))}/artifacts/1", b"text")
    assert await accounts.mark_deleted(ada)
    assert await store.purge() == 1
    assert await store.purge() == 0
    folders = sorted([key async for key in blobs.list("accounts")])
    assert folders == ["accounts/ada2/artifacts/1", "accounts/owner/artifacts/1"]
