"""Who changed a canvas: the kind and the id of the acting principal in provenance and audit. CC-17, RS-68"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest_asyncio

from easel.core.principal import Principal, PrincipalKind
from easel.core.tool.context import ToolContext
from easel.host.canvases.drafts import Draft
from easel.ids import OWNER, RunId
from tests.host.runs.workers import script, wait_until_ended, working
from tests.host.services import HostServices
from tests.requirements import rule
from tests.support.principals import THE_OWNER, person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.host.conftest import RunHarness

SERVICE = Principal(OWNER, "deployer", kind=PrincipalKind.SERVICE)
PHONE = person(OWNER, "phone")  # a person's own token


@pytest_asyncio.fixture
async def services(harness: RunHarness) -> AsyncIterator[HostServices]:
    services = await HostServices.open(harness)
    yield services
    await services.close()


async def provenances(services: HostServices, canvas_id: str = "c") -> list[dict[str, Any]]:
    events = await services.harness.database.canvases.events_after(f"owner/{canvas_id}", 0, 100)
    return [msgspec.json.decode(event.data)["provenance"] for event in events]


async def rename(services: HostServices, principal: Principal, title: str) -> None:
    change = {"state_patch": None, "spec": None, "expected_revision": None}
    await services.library.patch(principal, "c", title=title, **change)


@rule("RS-68", "RS-33", "CC-17")
async def test_event_names_the_kind_and_the_id_of_who_changed_the_canvas(services: HostServices) -> None:
    await services.library.create(THE_OWNER, Draft(canvas_id="c"))
    await rename(services, SERVICE, "One")
    await rename(services, PHONE, "Two")
    found = [(by["kind"], by["agent_id"]) for by in await provenances(services)]
    assert found == [("person", "owner"), ("service", "deployer"), ("person", "owner")]


@rule("RS-68", "CC-17")
async def test_change_by_an_agent_names_the_agent_and_its_run(
    services: HostServices, harness: RunHarness
) -> None:
    await services.library.create(THE_OWNER, Draft(canvas_id="c", title="Mine"))
    wipe = {"operation": "upsert", "canvasId": "c", "title": "Taken over", "state": {}}
    run_id = await harness.start(script({"call": "gsv__Canvas", "args": wipe}, {"say": "done"}))
    async with working(harness.worker(services.tools._tools["gsv__Canvas"])):
        await wait_until_ended(harness, run_id)
    assert (await provenances(services))[-1] == {
        "kind": "agent",
        "agent_id": "main",
        "node_id": "canvas",
        "run_id": run_id,
    }


@rule("RS-68", "RS-59")
async def test_tool_that_writes_canvases_acts_as_an_agent_for_a_person_too(services: HostServices) -> None:
    context = ToolContext(THE_OWNER, "agent:main:main")
    await services.tools.call("gsv__Canvas", {"operation": "upsert", "canvasId": "c"}, context)
    [made] = await provenances(services)
    assert (made["kind"], made["agent_id"]) == ("agent", "main")


@rule("RS-68", "CV-48")
async def test_events_of_an_execution_name_who_started_it(services: HostServices) -> None:
    go = {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": 1}}
    await services.create({"toolPolicy": {"allow": ["gsv__Echo"]}, "actions": {"go": go}})
    for principal in (THE_OWNER, SERVICE):
        await services.run("go", principal=principal)
    found = {(by["kind"], by["agent_id"], by["node_id"]) for by in (await provenances(services))[1:]}
    assert found == {("person", "owner", "go"), ("service", "deployer", "go")}


@rule("RS-68")
async def test_cancelled_run_names_who_cancelled_it(harness: RunHarness) -> None:
    for principal, by in ((SERVICE, ("service", "deployer")), (THE_OWNER, ("person", "owner"))):
        run_id = await harness.start(script({"say": "hello"}), session=by[1])
        await harness.queue.cancel(principal, run_id)
        events = await harness.database.runs.events_after(RunId(run_id), 0, 100)
        done = msgspec.json.decode(events[-1].data)["provenance"]
        assert (done["kind"], done["agent_id"], done["node_id"]) == (*by, "cancel")
