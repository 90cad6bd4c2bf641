"""The starter of a run, and the role of its agent, on every store. RS-76"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.principal import Role
from easel.ids import OWNER, AccountId, UserId
from tests.requirements import rule
from tests.stores.harness import CLAIM_SECONDS, A, B, Store, new_run, start_runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.core.run.run import Claim, NewRun
    from easel.host.ports import RunStore

ANN = UserId("ann")


async def add_team(store: Store, name: str, roles: Mapping[str, str]) -> AccountId:
    for user in roles:
        await store.add_user(user)
    return await store.add_team(name, **roles)


def run_of(started_by: UserId | None, role: Role, *, account: AccountId) -> NewRun:
    return replace(new_run(f"as {role}", user=account), started_by=started_by, started_role=role)


async def claim_run(runs: RunStore, new: NewRun) -> Claim:
    [claim] = await start_runs(runs, new)
    return claim


@rule("RS-76")
@pytest.mark.parametrize(
    "started_as, role_now, expected",
    [
        (Role.MEMBER, "member", Role.MEMBER),
        (Role.MEMBER, "admin", Role.MEMBER),
        (Role.ADMIN, "admin", Role.ADMIN),
        (Role.ADMIN, "member", Role.MEMBER),
        (Role.ADMIN, "viewer", Role.VIEWER),
    ],
)
async def test_agent_has_the_lower_of_its_starters_roles_then_and_now(
    runs: RunStore, store: Store, started_as: Role, role_now: str, expected: Role
):
    team = await add_team(store, "ops", {"ann": role_now, "bea": "admin"})
    claim = await claim_run(runs, run_of(ANN, started_as, account=team))
    assert (claim.started_by, claim.role) == (ANN, expected)
    assert claim.may_act is (expected is not Role.VIEWER)
    assert (claim.agent.role, claim.agent.responsible, claim.agent.is_person) == (expected, ANN, False)


@rule("RS-76")
@pytest.mark.parametrize(
    "leaving",
    [
        "delete from team_members where user_id = 'ann'",
        "update team_members set account_id = 'other' where user_id = 'ann'",
        "update accounts set disabled_at = created_at where account_id = 'ann'",
    ],
    ids=["removed", "member of another team only", "disabled"],
)
async def test_run_of_a_person_who_left_has_no_role(runs: RunStore, store: Store, leaving: str):
    team = await add_team(store, "ops", {"ann": "admin", "bea": "admin"})
    await add_team(store, "other", {})
    await runs.enqueue(run_of(ANN, Role.ADMIN, account=team))
    await store.sql(leaving)
    [claim] = await runs.claim_queued(A, 1, CLAIM_SECONDS, 0)
    assert (claim.role, claim.may_act, claim.agent.role) == (None, False, Role.VIEWER)


@rule("RS-76", "RX-37")
async def test_role_is_read_again_at_every_claim(runs: RunStore, store: Store):
    team = await add_team(store, "ops", {"ann": "admin"})
    [claim] = await start_runs(runs, run_of(ANN, Role.ADMIN, account=team))
    await store.sql("update team_members set role = 'member'")
    await store.expire_claim(claim.run_id)
    [taken_over] = await runs.claim_expired(B, 1, CLAIM_SECONDS)
    assert (claim.role, taken_over.role, taken_over.started_by) == (Role.ADMIN, Role.MEMBER, ANN)
    await store.sql("delete from team_members")
    [recovered] = await runs.claim_unacknowledged(B, [], CLAIM_SECONDS, opened=False)
    assert (recovered.role, recovered.started_by) == (None, ANN)


@rule("RS-76")
async def test_everybody_is_admin_of_their_own_account_but_an_agent_is_not_more_than_it_began_as(
    runs: RunStore,
):
    owner = UserId(OWNER)
    assert (await claim_run(runs, run_of(owner, Role.ADMIN, account=OWNER))).role is Role.ADMIN
    assert (await claim_run(runs, run_of(owner, Role.MEMBER, account=OWNER))).role is Role.MEMBER


@rule("RS-76")
async def test_person_without_a_membership_gets_no_role_from_another_account(runs: RunStore, store: Store):
    await store.add_user("ann")
    claim = await claim_run(runs, run_of(ANN, Role.ADMIN, account=OWNER))
    assert (claim.role, claim.may_act) == (None, False)


@rule("RS-76")
async def test_run_of_easel_itself_keeps_its_role(runs: RunStore):
    claim = await claim_run(runs, run_of(None, Role.MEMBER, account=OWNER))
    assert (claim.started_by, claim.role, claim.agent.responsible) == (None, Role.MEMBER, None)
