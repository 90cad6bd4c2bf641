"""The starter of a run: its agent has no more rights, and none without them is executed. RS-76"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.principal import PrincipalKind, Role, as_program, host_for
from easel.core.run.status import Status
from easel.core.tool.definition import ToolDefinition
from easel.host.runs.claimed_run import STARTER_LEFT
from easel.ids import OWNER, AccountId, UserId
from tests.host.runs.workers import script, wait_until_ended, working
from tests.requirements import rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from easel.core.principal import Principal
    from easel.core.run.run import Run
    from easel.core.tool.context import ToolContext
    from easel.ids import RunId
    from tests.host.conftest import RunHarness

CALL_PROBE = script({"call": "probe", "args": {}})


class Probe:
    """A tool that keeps the principals that call it."""

    definition = ToolDefinition("probe", "For a test.", {"type": "object"})

    def __init__(self) -> None:
        self.callers: list[Principal] = []

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        self.callers.append(context.principal)
        return {}


async def in_team(harness: RunHarness, role: Role) -> Principal:
    """Return the owner with this role in a new team."""
    await harness.sql("insert into accounts (account_id, kind) values ('ops', 'team')")
    await harness.sql(
        f"insert into team_members (account_id, user_id, role) values ('ops', '{OWNER}', '{role}')"
    )
    return replace(THE_OWNER, account_id=AccountId("ops"), role=role, is_operator=False)


@rule("RS-76")
async def test_agent_acts_with_the_role_of_the_member_who_started_its_run(harness: RunHarness):
    member, probe = await in_team(harness, Role.MEMBER), Probe()
    run = await harness.queue.start(member, "s", CALL_PROBE)
    async with working(harness.worker(probe)):
        await wait_until_ended_in(harness, member, run.run_id)
    [agent] = probe.callers
    assert (agent.role, agent.responsible, agent.run_id) == (Role.MEMBER, OWNER, run.run_id)
    assert (agent.kind, agent.user_id, agent.is_operator) == (PrincipalKind.AGENT, None, False)


@rule("RS-76", "RS-59")
async def test_run_of_a_service_is_that_of_the_person_who_answers_for_it(harness: RunHarness):
    probe = Probe()
    run = await harness.queue.start(as_program(THE_OWNER, PrincipalKind.SERVICE, "ci"), "s", CALL_PROBE)
    async with working(harness.worker(probe)):
        await wait_until_ended(harness, run.run_id)
    [agent] = probe.callers
    assert (agent.responsible, agent.is_person, agent.is_operator) == (UserId(OWNER), False, False)


@rule("RS-76")
async def test_run_of_easel_itself_is_executed_and_is_nobodys(harness: RunHarness):
    probe = Probe()
    run = await harness.queue.start(host_for(OWNER), "s", CALL_PROBE)
    async with working(harness.worker(probe)):
        await wait_until_ended(harness, run.run_id)
    [agent] = probe.callers
    assert (agent.responsible, agent.role) == (None, Role.MEMBER)


@rule("RS-76")
@pytest.mark.parametrize(
    "change",
    ["delete from team_members", "update team_members set role = 'viewer'"],
    ids=["removed", "now a viewer"],
)
async def test_run_of_a_person_without_the_right_to_start_runs_fails_before_its_first_step(
    harness: RunHarness, change: str
):
    member, probe = await in_team(harness, Role.MEMBER), Probe()
    run = await harness.queue.start(member, "s", CALL_PROBE)
    await harness.sql(change)
    async with working(harness.worker(probe)):
        ended = await wait_until_ended_in(harness, member, run.run_id)
    assert probe.callers == []
    assert ended.status is Status.FAILED
    assert ended.error_message is not None
    assert STARTER_LEFT in ended.error_message


async def wait_until_ended_in(harness: RunHarness, principal: Principal, run_id: RunId) -> Run:
    async def has_ended() -> bool:
        return (await harness.queue.get(principal, run_id)).is_terminal

    await wait_for(has_ended)
    return await harness.queue.get(principal, run_id)
