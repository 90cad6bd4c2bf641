"""The canvas tools of agents, and the limits of specs written by agents. CV-49, RS-59"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.principal import Principal, PrincipalKind
from easel.core.run.status import Status
from easel.core.tool.context import ToolContext
from easel.errors import BadInput, Forbidden, NotFound, RevisionConflict, ToolFailed
from easel.ids import CanvasId
from tests.host.actions.refresh_jobs import run_due_jobs, spec_with_refresh
from tests.host.conftest import TestTool
from tests.host.runs.workers import script, wait_until_ended, working
from tests.host.services import HostServices
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER, person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.host.conftest import RunHarness

PERSON = ToolContext(THE_OWNER, "agent:main:main")
SPEC = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Echo"]},
    "state": {"n": 0},
    "actions": {
        "say": {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": "{{state.n}}"}, "saveAs": "said"}
    },
}


@pytest_asyncio.fixture
async def services(harness: RunHarness) -> AsyncIterator[HostServices]:
    services = await HostServices.open(harness)
    yield services
    await services.close()


async def call_canvas(
    services: HostServices, operation: str, context: ToolContext = PERSON, **args: Any
) -> Any:
    return await services.tools.call("gsv__Canvas", {"operation": operation, **args}, context)


@rule("CV-49")
async def test_agent_creates_a_canvas_with_state_and_actions_in_a_run(
    services: HostServices, harness: RunHarness
) -> None:
    page = '<h1 data-gsv-text="state.n"></h1>'
    upsert = {
        "operation": "upsert",
        "canvasId": "c",
        "title": "Mine",
        "spec": SPEC,
        "assets": {"assets/index.html": page},
    }
    patch = {
        "operation": "patchState",
        "canvasId": "c",
        "patch": [{"op": "replace", "path": "/n", "value": 7}],
    }
    run_id = await harness.start(
        script(
            {"call": "gsv__Canvas", "args": upsert},
            {"call": "gsv__Canvas", "args": patch},
            {"call": "gsv__Canvas", "args": {"operation": "open", "canvasId": "c"}},
            {"say": "done"},
        ),
        session="planning",
    )
    tools = [services.tools._tools["gsv__Canvas"]]
    async with working(harness.worker(*tools)):
        assert (await wait_until_ended(harness, run_id)).status is Status.COMPLETED
    snapshot = await services.library.get(THE_OWNER, "c")
    assert snapshot.canvas.title == "Mine"
    assert snapshot.canvas.session_key == "agent:main:planning", "it belongs to the session that created it"
    assert snapshot.canvas.state == {"n": 7}
    assert [asset.path for asset in snapshot.assets] == ["assets/index.html"]
    assert not snapshot.canvas.is_accepted
    assert [view.client_id for view in snapshot.live_views] == ["agent:main:planning"]
    assert (await services.run("say")).result == "7"


@rule("CV-49")
async def test_get_list_open_and_close_describe_the_canvas(services: HostServices) -> None:
    created = await call_canvas(services, "upsert", canvasId="c", spec=SPEC)
    assert (created["canvasId"], created["revision"], created["viewUrl"], created["warnings"]) == (
        "c",
        1,
        "/canvas/main/c",
        [],
    )
    got = await call_canvas(services, "get", canvasId="c")
    assert (got["state"], got["spec"], got["accepted"]) == ({"n": 0}, SPEC, False)
    assert (await call_canvas(services, "list"))["canvases"] == [
        {"canvasId": "c", "agentId": "main", "title": "c", "revision": 1}
    ]
    opened = await call_canvas(services, "open", canvasId="c")
    assert (await call_canvas(services, "close", canvasId="c", viewId=opened["viewId"]))["closed"] == [
        opened["viewId"]
    ]
    assert (await call_canvas(services, "get", canvasId="c"))["views"] == 0


@rule("CV-49")
async def test_get_reports_failing_jobs(harness: RunHarness) -> None:
    async def fail(_: Mapping[str, Any]) -> Any:
        raise ToolFailed(tool="poke", reason="the door is locked")

    services = await HostServices.open(harness, TestTool("poke", fail, read_only=True))
    await services.create(spec_with_refresh({"kind": "tool.call", "tool": "poke"}, tools=("poke",)))
    assert "failing" not in await call_canvas(services, "get", canvasId="c")
    harness.clock.ahead += 60
    await run_due_jobs(services)
    [job] = (await call_canvas(services, "get", canvasId="c"))["failing"]
    assert (job["refreshId"], job["actionId"], job["failures"]) == ("poll", "look", 1)
    assert "the door is locked" in job["error"]["message"]
    await services.close()


@pytest.mark.parametrize(
    "args, error",
    [
        ({"operation": "get", "canvasId": "nowhere"}, NotFound),
        ({"operation": "patchState", "canvasId": "c"}, BadInput),
        ({"operation": "patchState", "canvasId": "c", "patch": [{"op": "move", "path": "/n"}]}, BadInput),
        ({"operation": "upsert", "canvasId": "c", "spec": {"version": 2}}, BadInput),
        ({"operation": "upsert", "canvasId": "c", "expectedRevision": 9}, RevisionConflict),
        ({"operation": "delete", "canvasId": "c"}, BadInput),
        ({"operation": "get"}, BadInput),
        ({"operation": "confirm", "canvasId": "c"}, BadInput),
    ],
)
@rule("CV-49")
async def test_invalid_call_raises_the_matching_error(
    services: HostServices, args: Mapping[str, Any], error: type[Exception]
) -> None:
    await call_canvas(services, "upsert", canvasId="c", spec=SPEC)
    with pytest.raises(error):
        await services.tools.call("gsv__Canvas", args, PERSON)
    assert (await call_canvas(services, "get", canvasId="c"))["revision"] == 1


@rule("RS-59")
async def test_spec_of_an_agent_may_allow_only_tools_of_the_agent(services: HostServices) -> None:
    spec = {**SPEC, "toolPolicy": {"allow": ["gsv__Echo", "prod__Bash"]}}
    with pytest.raises(Forbidden, match="prod__Bash"):
        await call_canvas(services, "upsert", canvasId="c", spec=spec)
    with pytest.raises(NotFound):
        await services.library.get(THE_OWNER, "c")


@rule("RS-59")
async def test_confirm_never_by_an_agent_counts_as_auto_until_accepted(harness: RunHarness) -> None:
    async def touch(_: Mapping[str, Any]) -> Any:
        return "touched"

    services = await HostServices.open(harness, TestTool("touch", touch))
    spec = {
        "version": 1,
        "toolPolicy": {"allow": ["touch"]},
        "actions": {"go": {"kind": "tool.call", "tool": "touch", "confirm": "never"}},
    }
    await call_canvas(services, "upsert", canvasId="c", spec=spec)
    assert (await services.run("go")).status == "asked"
    await services.library.accept(THE_OWNER, "c", 1)
    assert (await services.run("go")).result == "touched"
    await call_canvas(services, "upsert", canvasId="c", spec={**spec, "title": "another one"})
    assert (await services.run("go")).status == "asked", "the new spec is not accepted"
    with pytest.raises(RevisionConflict):
        await services.library.accept(THE_OWNER, "c", 2)
    await services.close()


@rule("CV-49", "SB-02")
async def test_canvas_of_an_agent_works_in_the_folder_of_the_session_that_created_it(
    services: HostServices,
) -> None:
    await call_canvas(
        services, "upsert", ToolContext(THE_OWNER, "agent:main:mine"), canvasId="c", title="Made"
    )
    await call_canvas(services, "upsert", ToolContext(THE_OWNER, "agent:main:other"), canvasId="c", spec=SPEC)
    assert (await services.library.get(THE_OWNER, "c")).canvas.session_key == "agent:main:mine"


@rule("RS-59")
async def test_page_written_by_an_agent_ends_the_acceptance(harness: RunHarness) -> None:
    """A page runs actions in the name of its viewer."""

    async def touch(_: Mapping[str, Any]) -> Any:
        return "touched"

    services = await HostServices.open(harness, TestTool("touch", touch))
    action = {"kind": "tool.call", "tool": "touch", "confirm": "never"}
    await services.create({"toolPolicy": {"allow": ["touch"]}, "actions": {"go": action}})
    agent = Principal(THE_OWNER.account_id, "agent", kind=PrincipalKind.AGENT)
    page, path = b"<script>gsvCanvas.runAction('go')</script>", "assets/index.html"
    changes = [
        call_canvas(services, "upsert", canvasId="c", assets={path: page.decode()}),
        services.assets.put(agent, "c", "assets/more.js", page, None),
        services.assets.delete(agent, "c", "assets/more.js", None),
    ]
    for change in changes:
        revision = (await services.library.get(THE_OWNER, "c")).canvas.revision
        assert (await services.run("go")).result == "touched"
        await change
        assert (await services.run("go")).status == "asked"
        with pytest.raises(RevisionConflict):
            await services.library.accept(THE_OWNER, "c", revision)
        await services.assets.put(THE_OWNER, "c", "assets/mine.css", b"", None)
        assert not (await services.library.get(THE_OWNER, "c")).canvas.is_accepted, (
            "adding an asset does not accept the others"
        )
        await services.library.accept(THE_OWNER, "c", revision + 2)
    await call_canvas(services, "patchState", canvasId="c", patch=[{"op": "add", "path": "/n", "value": 7}])
    await services.assets.put(THE_OWNER, "c", path, b"<p>", None)
    assert (await services.run("go")).result == "touched"
    await services.close()


@rule("RS-59")
async def test_agent_can_neither_accept_nor_confirm(services: HostServices) -> None:
    await call_canvas(services, "upsert", canvasId="c", spec=SPEC)
    principal = (await _context_of_a_run(services)).principal
    with pytest.raises(Forbidden, match="Only a person"):
        await services.library.accept(principal, "c", 1)
    with pytest.raises(Forbidden, match="Only a person"):
        await services.actions.confirm(principal, "evt_01m7fvw83frvsq1ewfxws93q4z", approve=True)


async def _context_of_a_run(services: HostServices) -> ToolContext:
    await services.harness.start("noop")
    [claim] = await services.harness.runs.claim_queued(services.harness.worker().worker_id, 1, 60, 0)
    return ToolContext.of_run(claim)


@rule("RS-59", "CV-05")
@case("X4")
async def test_gsv_canvas_acts_as_an_agent_when_a_person_runs_the_action(
    harness: RunHarness,
) -> None:
    services = await HostServices.open(harness)
    inner = {"version": 1, "toolPolicy": {"allow": ["gsv__Sleep"]}, "actions": {}}
    upsert = {"operation": "upsert", "canvasId": "c", "spec": inner}
    spec = {
        "toolPolicy": {"allow": ["gsv__Canvas"]},
        "actions": {
            "widen": {"kind": "tool.call", "tool": "gsv__Canvas", "args": upsert, "confirm": "never"}
        },
    }
    await services.create(spec)
    await services.run("widen")
    assert not (await services.library.get(THE_OWNER, "c")).canvas.is_accepted
    await services.close()


@rule("CV-08")
async def test_canvases_and_logs_of_another_user_are_not_found(
    services: HostServices, harness: RunHarness
) -> None:
    await call_canvas(services, "upsert", canvasId="c", spec=SPEC)
    run_id = await harness.start("noop")
    other = ToolContext(person("mallory", "mallory"), "agent:main:main")
    with pytest.raises(NotFound):
        await call_canvas(services, "get", other, canvasId="c")
    for args in ({"canvasId": "c"}, {"runId": run_id}):
        with pytest.raises(NotFound):
            await services.tools.call("gsv__LogsGet", args, other)


# --- gsv__LogsGet -------------------------------------------------------------------------------------------


@rule("CV-49")
async def test_logs_of_a_run_canvas_or_session_are_read_as_lines(
    services: HostServices, harness: RunHarness
) -> None:
    first = await harness.start(script({"think": "hidden thought"}, {"say": "one"}), session="s")
    async with working(harness.worker()):
        await wait_until_ended(harness, first)
        second = await harness.start(script({"say": "two"}), session="s")
        await wait_until_ended(harness, second)
    of_run = await services.tools.call("gsv__LogsGet", {"runId": first}, PERSON)
    assert next(line.split(" ")[1] for line in of_run["lines"]) == "run.start"
    assert of_run["text"] == "\n".join(of_run["lines"])
    assert "hidden thought" not in of_run["text"], "internal events are not included"
    of_session = await services.tools.call("gsv__LogsGet", {"sessionKey": "agent:main:s"}, PERSON)
    assert of_session["text"].index('"one"') < of_session["text"].index('"two"')
    own = await services.tools.call("gsv__LogsGet", {"limit": 1}, ToolContext(THE_OWNER, "agent:main:s"))
    [last] = own["lines"]
    assert last.split(" ")[1] == "done"
    await call_canvas(services, "upsert", canvasId="c", spec=SPEC)
    assert "canvas.created" in (await services.tools.call("gsv__LogsGet", {"canvasId": "c"}, PERSON))["text"]
    with pytest.raises(BadInput, match="Only one of"):
        await services.tools.call("gsv__LogsGet", {"canvasId": "c", "runId": first}, PERSON)


@rule("RS-63")
async def test_unaccepted_canvas_reads_only_its_own_log_and_those_of_its_session(
    services: HostServices, harness: RunHarness
) -> None:
    async with working(harness.worker()):
        own_run = await harness.start(script({"say": "mine"}), session="s")
        other_run = await harness.start(script({"say": "secret"}), session="other")
        await wait_until_ended(harness, own_run)
        await wait_until_ended(harness, other_run)
    for name in ("own", "other"):
        await call_canvas(services, "upsert", canvasId=name, spec=SPEC)
    of_canvas = ToolContext(THE_OWNER, "agent:main:s", unaccepted_canvas=CanvasId("own"))
    readable: list[dict[str, str]] = [
        {},
        {"canvasId": "own"},
        {"runId": own_run},
        {"sessionKey": "agent:main:s"},
    ]
    for args in readable:
        assert (await services.tools.call("gsv__LogsGet", args, of_canvas))["lines"], args
    foreign: list[dict[str, str]] = [
        {"canvasId": "other"},
        {"canvasId": "no such canvas"},
        {"runId": other_run},
        {"runId": "run_of_nobody"},
        {"sessionKey": "agent:main:other"},
    ]
    for args in foreign:
        with pytest.raises(Forbidden, match="until a person accepts this canvas"):
            await services.tools.call("gsv__LogsGet", args, of_canvas)


async def test_binary_asset_is_sent_as_base64(services: HostServices, harness: RunHarness) -> None:
    assets = {
        "assets/index.html": "<img src=a.png>",
        "assets/a.png": {"base64": base64.b64encode(b"\x89PNG\xff").decode()},
    }
    assert (await call_canvas(services, "upsert", canvasId="c", assets=assets))["assets"] == [
        "assets/a.png",
        "assets/index.html",
    ]
    _, content, _ = await services.assets.read(THE_OWNER, "c", "assets/a.png")
    assert content == b"\x89PNG\xff"
    for wrong in ({"base64": "?"}, {"base64": 5}, {"text": "x"}, 5):
        with pytest.raises((BadInput, ToolFailed), match="assets"):
            await call_canvas(services, "upsert", canvasId="c", assets={"assets/a.png": wrong})
