"""Only a person's write accepts a canvas, and a tool that weakens ends what was accepted. RS-59, RS-68"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.action.execution import ExecutionStatus
from easel.core.audit.record import parse_record
from easel.core.principal import Principal, PrincipalKind
from easel.errors import BadInput, Forbidden
from easel.host.canvases.drafts import Draft
from easel.ids import OWNER
from tests.host.actions.refresh_jobs import run_due_jobs
from tests.host.conftest import TestTool
from tests.host.services import HostServices
from tests.requirements import rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.host.conftest import RunHarness

SERVICE = Principal(OWNER, "sync", kind=PrincipalKind.SERVICE)
AGENT = Principal(OWNER, "main", kind=PrincipalKind.AGENT)
NODE = Principal(OWNER, "laptop", kind=PrincipalKind.NODE)
TOOL = "test__Run"
GO = {"kind": "tool.call", "tool": TOOL, "args": {}, "confirm": "never"}
SPEC: dict[str, Any] = {"version": 1, "toolPolicy": {"allow": [TOOL]}, "actions": {"go": GO}}
WIDER = {**SPEC, "actions": {"go": {**GO, "args": {"force": True}}}}
PAGE = {"assets/index.html": b"<button data-gsv-action='go'>Go</button>"}
PATH = "assets/index.html"


async def work(args: Mapping[str, Any]) -> str:
    return "done"


@pytest.fixture
def tool() -> TestTool:
    return TestTool(TOOL, work)


@pytest_asyncio.fixture
async def services(harness: RunHarness, tool: TestTool) -> AsyncIterator[HostServices]:
    services = await HostServices.open(harness, tool)
    yield services
    await services.close()


def redeclare(services: HostServices, tool: TestTool, **hints: Any) -> None:
    """Change what the tool says of itself, as a node does that connects again."""
    tool.definition = replace(tool.definition, **hints)
    services.tools.add([tool])


async def is_accepted(services: HostServices) -> bool:
    return (await services.library.get(THE_OWNER, "c")).is_accepted


async def asks(services: HostServices, action_id: str = "go") -> bool:
    return (await services.run(action_id)).status is ExecutionStatus.ASKED


async def audited(services: HostServices, action: str) -> list[dict[str, Any]]:
    links = await services.harness.database.audit.list_after(0, 10_000, 10_000)
    records = [dict(parse_record(link.record)) for link in links]
    return [record for record in records if record["action"] == action]


# --- only a person's write accepts -------------------------------------------------------------------------


@rule("RS-68", "RS-59")
async def test_service_that_sends_an_agents_canvas_back_does_not_accept_it(services: HostServices) -> None:
    await services.library.create(AGENT, Draft(canvas_id="c", spec=SPEC, assets=PAGE))
    await services.library.upsert(SERVICE, Draft(canvas_id="c", spec=SPEC, assets=PAGE))
    assert not await is_accepted(services)
    assert await asks(services)


@rule("RS-68")
@pytest.mark.parametrize("writer", [SERVICE, AGENT, NODE], ids=lambda writer: writer.kind.value)
async def test_same_content_keeps_the_acceptance_and_other_content_ends_it(
    services: HostServices, writer: Principal
) -> None:
    library, draft = services.library, Draft(canvas_id="c", spec=SPEC, assets=PAGE)
    await library.create(THE_OWNER, draft)
    await library.upsert(writer, draft)
    await services.assets.put(writer, "c", PATH, PAGE[PATH], None)
    change = {"state_patch": None, "title": "New", "expected_revision": None}
    await library.patch(writer, "c", spec=SPEC, **change)
    assert await is_accepted(services), "nothing that a person accepted has changed"
    changes = {
        "another spec": library.patch(writer, "c", spec=WIDER, **change),
        "an upsert with another spec": library.upsert(writer, replace(draft, spec=WIDER)),
        "another page": services.assets.put(writer, "c", PATH, b"<h1>", None),
        "another asset": services.assets.put(writer, "c", "assets/new.js", b"new", None),
        "other assets": library.upsert(writer, replace(draft, assets={PATH: b"<h2>"})),
        "fewer assets": library.upsert(writer, replace(draft, assets={})),
        "no page": services.assets.delete(writer, "c", PATH, None),
    }
    for what, changing in changes.items():
        await library.upsert(THE_OWNER, draft)
        assert await is_accepted(services)
        await changing
        assert not await is_accepted(services), what


@rule("RS-68")
async def test_canvas_of_a_service_waits_for_acceptance(services: HostServices) -> None:
    made = await services.library.create(SERVICE, Draft(canvas_id="c", spec=SPEC))
    assert not made.is_accepted
    assert await asks(services)
    for _ in range(2):
        await services.library.accept(THE_OWNER, "c", 1)
    assert not await asks(services)


@rule("RS-68", "RS-59")
@pytest.mark.parametrize("writer", [SERVICE, AGENT], ids=lambda writer: writer.kind.value)
async def test_nobody_but_a_person_can_claim_that_a_canvas_is_accepted(
    services: HostServices, writer: Principal
) -> None:
    library, draft = services.library, Draft(canvas_id="c", spec=SPEC, assets=PAGE, is_accepted=True)
    for write in (library.create, library.upsert):
        with pytest.raises(Forbidden, match="only a person"):
            await write(writer, draft)
    await library.create(writer, replace(draft, is_accepted=None))
    with pytest.raises(Forbidden, match="only a person"):
        await library.upsert(writer, draft)
    with pytest.raises(Forbidden):
        await library.accept(writer, "c", 1)
    assert not await is_accepted(services)


@rule("RS-59")
@pytest.mark.parametrize("way", ["patch", "upsert", "upsert with all its assets"])
async def test_saved_spec_accepts_no_page_that_an_agent_wrote(services: HostServices, way: str) -> None:
    library, draft = services.library, Draft(canvas_id="c", spec=SPEC)
    change = {"state_patch": None, "title": None, "expected_revision": None}
    await library.create(THE_OWNER, draft)
    await library.upsert(AGENT, Draft(canvas_id="c", assets=PAGE))
    if way == "patch":
        await library.patch(THE_OWNER, "c", spec=WIDER, **change)
    else:
        assets = {"assets": {PATH: b"mine"}} if way.endswith("assets") else {}
        await library.upsert(THE_OWNER, replace(draft, spec=WIDER, **assets))
    assert await is_accepted(services) is way.endswith("assets")
    await library.accept(THE_OWNER, "c", (await library.get(THE_OWNER, "c")).canvas.revision)
    await library.patch(THE_OWNER, "c", spec=SPEC, **change)
    assert await is_accepted(services), "a person's next change keeps the acceptance"


@rule("RS-59")
@pytest.mark.parametrize("way", ["patch", "upsert"])
async def test_person_who_saves_an_agents_spec_unchanged_accepts_it(services: HostServices, way: str) -> None:
    library, draft = services.library, Draft(canvas_id="c", spec=SPEC)
    await library.create(AGENT, draft)
    patch = [{"op": "add", "path": "/n", "value": 1}]
    await library.patch(THE_OWNER, "c", spec=None, state_patch=patch, title=None, expected_revision=None)
    assert not await is_accepted(services), "a state change is no acceptance"
    if way == "patch":
        await library.patch(THE_OWNER, "c", spec=SPEC, state_patch=None, title=None, expected_revision=None)
    else:
        await library.upsert(THE_OWNER, draft)
    assert await is_accepted(services)
    assert [event["changedPaths"] for _, event in (await services.log("canvas.updated"))[1:]] == [
        ["$accepted"]
    ]


@rule("RS-59")
async def test_accepted_member_is_refused_if_the_change_does_not_accept(services: HostServices) -> None:
    library, draft = services.library, Draft(canvas_id="c", is_accepted=True)
    mine = {PATH: b"mine"}
    await services.create(SPEC)
    assert (await library.upsert(THE_OWNER, draft)).canvas.is_accepted, "it is accepted already"
    await library.upsert(AGENT, Draft(canvas_id="c", assets=PAGE))
    before = await library.get(THE_OWNER, "c")
    for change in ({}, {"spec": SPEC}, {"assets": mine}):
        with pytest.raises(BadInput, match=r"canvas\.accept"):
            await library.upsert(THE_OWNER, replace(draft, **change))
    assert await library.get(THE_OWNER, "c") == before
    assert (await library.upsert(THE_OWNER, replace(draft, spec=SPEC, assets=mine))).canvas.is_accepted


# --- audit -------------------------------------------------------------------------------------------------


@rule("RS-68", "CV-48")
async def test_changes_of_spec_policy_and_assets_are_audited_with_what_changed(
    services: HostServices,
) -> None:
    await services.library.create(THE_OWNER, Draft(canvas_id="c", spec={"version": 1}, assets=PAGE))
    change = {"state_patch": None, "expected_revision": None}
    await services.library.patch(SERVICE, "c", spec=SPEC, title="Wider", **change)
    await services.assets.put(SERVICE, "c", PATH, b"<h1>", None)
    await services.assets.delete(AGENT, "c", PATH, None)
    [widened] = await audited(services, "canvas.spec.changed")
    assert widened["actor"] == {"account_id": "owner", "name": "sync", "kind": "service"}
    assert (widened["subject"], widened["details"]) == (
        "c",
        {
            "revision": 2,
            "accepted": False,
            "allow": {"added": [TOOL]},
            "confirm": {"go": "never"},
            "actions": {"added": ["go"]},
        },
    )
    [renamed] = await audited(services, "canvas.renamed")
    assert renamed["details"] == {"from": "c", "to": "Wider"}
    made, replaced, deleted = await audited(services, "canvas.asset.changed")
    assert made["details"]["size"] == len(PAGE[PATH])
    assert (replaced["details"]["path"], replaced["details"]["size"]) == (PATH, 4)
    assert replaced["details"]["digest"] != made["details"]["digest"]
    assert (deleted["actor"]["kind"], deleted["details"]["deleted"]) == ("agent", True)


@rule("RS-68", "RS-59")
async def test_acceptance_is_audited_however_it_comes_about(services: HostServices) -> None:
    draft = Draft(canvas_id="c", spec=SPEC, assets=PAGE)
    await services.library.create(AGENT, draft)
    await services.library.accept(THE_OWNER, "c", 1)
    await services.library.upsert(AGENT, replace(draft, spec=WIDER))
    await services.library.upsert(THE_OWNER, replace(draft, spec=WIDER))
    found = await audited(services, "canvas.accepted")
    assert [record["actor"]["kind"] for record in found] == ["person", "person"]
    assert [record["details"]["revision"] for record in found] == [1, 3]


# --- tools that weaken -------------------------------------------------------------------------------------

LOOK = {"kind": "tool.call", "tool": TOOL, "args": {}}
LOOKING: dict[str, Any] = {"version": 1, "toolPolicy": {"allow": [TOOL]}, "actions": {"look": LOOK, "go": GO}}


@rule("RS-68", "CV-22")
@pytest.mark.parametrize("author", [THE_OWNER, AGENT], ids=["person", "agent"])
async def test_tool_that_comes_to_claim_less_asks_until_the_canvas_is_accepted_again(
    services: HostServices, tool: TestTool, author: Principal
) -> None:
    await services.library.create(author, Draft(canvas_id="c", spec=LOOKING))
    await services.library.accept(THE_OWNER, "c", 1)
    assert not await asks(services), "it was accepted with `never`"
    redeclare(services, tool, read_only=True)
    assert await asks(services, "look"), "its own word gives it no rights"
    assert await asks(services, "go"), "the spec counts as not accepted"
    seen = await services.library.get(THE_OWNER, "c")
    assert (seen.is_accepted, list(seen.weakened)) == (False, [TOOL])
    assert "read-only" in seen.weakened[TOOL]
    accepted = await services.library.accept(THE_OWNER, "c", seen.canvas.revision)
    assert accepted.is_accepted
    assert not await asks(services, "look")
    assert not await asks(services, "go")
    assert (await audited(services, "canvas.accepted"))[-1]["details"]["tools"] == [TOOL]


@rule("RS-68")
async def test_write_of_a_person_does_not_agree_to_a_weaker_tool(
    services: HostServices, tool: TestTool
) -> None:
    await services.library.create(THE_OWNER, Draft(canvas_id="c", spec=LOOKING))
    redeclare(services, tool, read_only=True)
    await services.library.upsert(THE_OWNER, Draft(canvas_id="c", spec={**LOOKING, "title": "Saved"}))
    assert await asks(services, "look"), "only canvas.accept agrees"


@rule("RS-68")
async def test_tool_that_returns_to_its_old_definition_needs_no_acceptance(
    services: HostServices, tool: TestTool
) -> None:
    await services.library.create(THE_OWNER, Draft(canvas_id="c", spec=LOOKING))
    redeclare(services, tool, read_only=True)
    assert await asks(services)
    redeclare(services, tool, read_only=False)
    assert not await asks(services)


@rule("RS-68", "RS-16")
async def test_argument_that_is_no_longer_read_by_a_shell_asks(
    services: HostServices, tool: TestTool
) -> None:
    text = {"type": "string"}
    redeclare(services, tool, schema={"type": "object", "properties": {"line": {**text, "x-shell": True}}})
    go = {**GO, "args": {"line": "deploy {{state.v}}"}}
    await services.create({"toolPolicy": {"allow": [TOOL]}, "actions": {"go": go}, "state": {"v": "1.2"}})
    assert not await asks(services)
    redeclare(services, tool, schema={"type": "object", "properties": {"line": text}})
    assert await asks(services)


@rule("RS-68", "RS-45")
async def test_tool_that_was_unknown_and_claims_to_be_read_only_asks(harness: RunHarness) -> None:
    services = await HostServices.open(harness)
    await services.library.create(THE_OWNER, Draft(canvas_id="c", spec=LOOKING))
    services.tools.add([TestTool(TOOL, work, read_only=True)])
    assert await asks(services, "look")
    await services.library.accept(
        THE_OWNER, "c", (await services.library.get(THE_OWNER, "c")).canvas.revision
    )
    assert not await asks(services, "look")
    await services.close()


@rule("RS-68", "RS-45")
async def test_refresh_of_a_weakened_tool_does_not_fire_and_shows_why(harness: RunHarness) -> None:
    tool = TestTool(TOOL, work, read_only=True)
    services = await HostServices.open(harness, tool)
    jobs = [{"id": "r", "everyMs": 1_000, "action": "go"}]
    await services.create({**SPEC, "refresh": jobs})
    redeclare(services, tool, idempotent=True)
    harness.clock.ahead += 2
    assert await run_due_jobs(services) == 1
    [(_, failed)] = await services.log("canvas.refresh.failed")
    assert failed["error"]["name"] == "FORBIDDEN"
    assert TOOL in failed["error"]["message"]
    assert "accept the canvas again" in failed["error"]["message"]
    assert await services.log("canvas.action.started") == []
    await services.close()
