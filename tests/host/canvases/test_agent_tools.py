"""An agent makes canvases with one tool, and reaches no further through them than by itself. CV-49, RS-59"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.principal import THE_OWNER, Principal, PrincipalKind
from easel.core.run.status import Status
from easel.core.tool.context import ToolContext
from easel.errors import BadInput, Forbidden, NotFound, RevisionConflict, ToolFailed
from easel.ids import UserId
from tests.host.actions.refresh_jobs import fired, polling
from tests.host.conftest import TestTool
from tests.host.runs.workers import at_work, ended, script
from tests.host.services import HostServices
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.host.conftest import Bench

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
async def services(bench: Bench) -> AsyncIterator[HostServices]:
    services = HostServices(bench)
    yield services
    await services.close()


async def canvas(services: HostServices, operation: str, context: ToolContext = PERSON, **args: Any) -> Any:
    return await services.tools.call("gsv__Canvas", {"operation": operation, **args}, context)


@rule("CV-49")
async def test_with_this_tool_alone_an_agent_makes_a_canvas_with_state_and_actions_in_a_run(
    services: HostServices, bench: Bench
) -> None:
    page = '<h1 data-gsv-text="state.n"></h1>'
    asked = {
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
    run_id = await bench.start(
        script(
            {"call": "gsv__Canvas", "args": asked},
            {"call": "gsv__Canvas", "args": patch},
            {"call": "gsv__Canvas", "args": {"operation": "open", "canvasId": "c"}},
            {"say": "done"},
        ),
        session="planning",
    )
    tools = [services.tools._tools["gsv__Canvas"]]
    async with at_work(bench.worker(*tools)):
        assert (await ended(bench, run_id)).status is Status.COMPLETED
    snapshot = await services.library.get(THE_OWNER, "c")
    assert snapshot.canvas.title == "Mine"
    assert snapshot.canvas.session_key == "agent:main:planning", (
        "it belongs to the session in which it was made"
    )
    assert snapshot.canvas.state == {"n": 7}
    assert [asset.path for asset in snapshot.assets] == ["assets/index.html"]
    assert not snapshot.canvas.is_accepted
    assert [view.client_id for view in snapshot.live_views] == ["agent:main:planning"]
    assert (await services.run("say")).result == "7"


@rule("CV-49")
async def test_get_list_open_and_close_say_what_there_is(services: HostServices) -> None:
    made = await canvas(services, "upsert", canvasId="c", spec=SPEC)
    assert (made["canvasId"], made["revision"], made["viewUrl"], made["warnings"]) == (
        "c",
        1,
        "/canvas/main/c",
        [],
    )
    got = await canvas(services, "get", canvasId="c")
    assert (got["state"], got["spec"], got["accepted"]) == ({"n": 0}, SPEC, False)
    assert (await canvas(services, "list"))["canvases"] == [
        {"canvasId": "c", "agentId": "main", "title": "c", "revision": 1}
    ]
    opened = await canvas(services, "open", canvasId="c")
    assert (await canvas(services, "close", canvasId="c", viewId=opened["viewId"]))["closed"] == [
        opened["viewId"]
    ]
    assert (await canvas(services, "get", canvasId="c"))["views"] == 0


@rule("CV-49")
async def test_an_agent_sees_which_of_its_jobs_fail_and_why(bench: Bench) -> None:
    async def breaks(_: Mapping[str, Any]) -> Any:
        raise ToolFailed(tool="poke", reason="nobody is at home")

    services = HostServices(bench, TestTool("poke", breaks, read_only=True))
    await services.create(polling({"kind": "tool.call", "tool": "poke"}, tools=("poke",)))
    assert "failing" not in await canvas(services, "get", canvasId="c")
    bench.clock.ahead += 60
    await fired(services)
    [job] = (await canvas(services, "get", canvasId="c"))["failing"]
    assert (job["refreshId"], job["actionId"], job["failures"]) == ("poll", "look", 1)
    assert "nobody is at home" in job["error"]["message"]
    await services.close()


@pytest.mark.parametrize(
    "args, error",
    [
        ({"operation": "get", "canvasId": "nowhere"}, NotFound),
        ({"operation": "patchState", "canvasId": "c"}, BadInput),
        ({"operation": "patchState", "canvasId": "c", "patch": [{"op": "move", "path": "/n"}]}, BadInput),
        ({"operation": "upsert", "canvasId": "c", "spec": {"version": 2}}, BadInput),
        ({"operation": "upsert", "canvasId": "c", "expectedRevision": 9}, RevisionConflict),
        ({"operation": "delete", "canvasId": "c"}, ToolFailed),
        ({"operation": "get"}, ToolFailed),
        ({"operation": "confirm", "canvasId": "c"}, ToolFailed),
    ],
)
@rule("CV-49")
async def test_what_cannot_be_done_is_told_by_its_error(
    services: HostServices, args: Mapping[str, Any], error: type[Exception]
) -> None:
    await canvas(services, "upsert", canvasId="c", spec=SPEC)
    with pytest.raises(error):
        await services.tools.call("gsv__Canvas", args, PERSON)
    assert (await canvas(services, "get", canvasId="c"))["revision"] == 1


@rule("RS-59")
async def test_an_agent_s_spec_may_allow_only_what_the_agent_may_call(services: HostServices) -> None:
    reaching = {**SPEC, "toolPolicy": {"allow": ["gsv__Echo", "prod__Bash"]}}
    with pytest.raises(Forbidden, match="prod__Bash"):
        await canvas(services, "upsert", canvasId="c", spec=reaching)
    with pytest.raises(NotFound):
        await services.library.get(THE_OWNER, "c")


@rule("RS-59")
async def test_never_of_an_agent_counts_as_auto_until_a_person_accepts_that_spec(bench: Bench) -> None:
    async def touch(_: Mapping[str, Any]) -> Any:
        return "touched"

    services = HostServices(bench, TestTool("touch", touch))
    spec = {
        "version": 1,
        "toolPolicy": {"allow": ["touch"]},
        "actions": {"go": {"kind": "tool.call", "tool": "touch", "confirm": "never"}},
    }
    await canvas(services, "upsert", canvasId="c", spec=spec)
    assert (await services.run("go")).status == "asked"
    await services.library.accept(THE_OWNER, "c", 1)
    assert (await services.run("go")).result == "touched"
    await canvas(services, "upsert", canvasId="c", spec={**spec, "title": "another one"})
    assert (await services.run("go")).status == "asked", "what was accepted is not what is there now"
    with pytest.raises(RevisionConflict):
        await services.library.accept(THE_OWNER, "c", 2)
    await services.close()


@rule("RS-59", "SB-02", "RS-13")
@case("X6")
async def test_who_writes_a_spec_has_it_work_in_its_own_folder_and_takes_nothing_over_that_was_asked_before(
    bench: Bench,
) -> None:
    """Neither by a title nor by a spec does an agent get at another session's files, or put its own in the place of what was shown."""
    worked_in: list[str] = []

    class Where(TestTool):
        async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
            worked_in.append(context.session_key)

    async def nothing(_: Mapping[str, Any]) -> Any: ...

    services = HostServices(bench, Where("where", nothing))
    spec = {
        "toolPolicy": {"allow": ["where"]},
        "actions": {"go": {"kind": "tool.call", "tool": "where", "confirm": "always"}},
    }
    await services.create(spec)
    evil = ToolContext(THE_OWNER, "agent:main:evil")
    asked = await services.run("go")
    assert asked.resolved["sessionKey"] == "agent:main:main"
    await canvas(services, "upsert", evil, canvasId="c", title="Mine now")
    assert (await services.library.get(THE_OWNER, "c")).canvas.session_key == "agent:main:main"
    await canvas(services, "upsert", evil, canvasId="c", spec={"version": 1, **spec})
    assert (await services.library.get(THE_OWNER, "c")).canvas.session_key == "agent:main:evil"
    await services.actions.confirm(THE_OWNER, asked.event_id, approve=True)
    asked = await services.run("go")
    await services.actions.confirm(THE_OWNER, asked.event_id, approve=True)
    assert worked_in == ["agent:main:main", "agent:main:evil"]
    await canvas(services, "upsert", evil, canvasId="new", title="Made")
    assert (await services.library.get(THE_OWNER, "new")).canvas.session_key == "agent:main:evil"
    await services.close()


@rule("RS-59")
async def test_a_page_that_an_agent_writes_is_not_the_one_that_a_person_stands_for(bench: Bench) -> None:
    """It presses buttons in the name of whoever looks at it."""

    async def touch(_: Mapping[str, Any]) -> Any:
        return "touched"

    services = HostServices(bench, TestTool("touch", touch))
    action = {"kind": "tool.call", "tool": "touch", "confirm": "never"}
    await services.create({"toolPolicy": {"allow": ["touch"]}, "actions": {"go": action}})
    agent = Principal(THE_OWNER.user_id, "agent", kind=PrincipalKind.AGENT)
    page, path = b"<script>gsvCanvas.runAction('go')</script>", "assets/index.html"
    ways = [
        canvas(services, "upsert", canvasId="c", assets={path: page.decode()}),
        services.assets.put(agent, "c", "assets/more.js", page, None),
        services.assets.delete(agent, "c", "assets/more.js", None),
    ]
    for way in ways:
        seen = (await services.library.get(THE_OWNER, "c")).canvas.revision
        assert (await services.run("go")).result == "touched"
        await way
        assert (await services.run("go")).status == "asked"
        with pytest.raises(RevisionConflict):
            await services.library.accept(THE_OWNER, "c", seen)
        await services.assets.put(THE_OWNER, "c", "assets/mine.css", b"", None)
        assert not (await services.library.get(THE_OWNER, "c")).canvas.is_accepted, (
            "who adds something has not accepted the rest"
        )
        await services.library.accept(THE_OWNER, "c", seen + 2)
    await canvas(services, "patchState", canvasId="c", patch=[{"op": "add", "path": "/n", "value": 7}])
    await services.assets.put(THE_OWNER, "c", path, b"<p>", None)
    assert (await services.run("go")).result == "touched"
    await services.close()


@rule("RS-59")
async def test_an_agent_can_neither_accept_nor_confirm(services: HostServices) -> None:
    await canvas(services, "upsert", canvasId="c", spec=SPEC)
    principal = (await _agent_of_a_run(services)).principal
    with pytest.raises(Forbidden, match="Only a person"):
        await services.library.accept(principal, "c", 1)
    with pytest.raises(Forbidden, match="Only a person"):
        await services.actions.confirm(principal, "evt_01m7fvw83frvsq1ewfxws93q4z", approve=True)


async def _agent_of_a_run(services: HostServices) -> ToolContext:
    await services.bench.start("noop")
    [claim] = await services.bench.runs.claim_queued(services.bench.worker().worker_id, 1, 60, 0)
    return ToolContext.of_run(claim)


@rule("RS-59", "CV-05")
@case("X4")
async def test_a_button_that_calls_gsv_canvas_writes_as_an_agent_does_even_when_a_person_presses_it(
    bench: Bench,
) -> None:
    services = HostServices(bench)
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
async def test_another_user_s_canvases_and_logs_are_not_there(services: HostServices, bench: Bench) -> None:
    await canvas(services, "upsert", canvasId="c", spec=SPEC)
    run_id = await bench.start("noop")
    other = ToolContext(Principal(UserId("mallory"), "mallory"), "agent:main:main")
    with pytest.raises(NotFound):
        await canvas(services, "get", other, canvasId="c")
    for named in ({"canvasId": "c"}, {"runId": run_id}):
        with pytest.raises(NotFound):
            await services.tools.call("gsv__LogsGet", named, other)


# --- gsv__LogsGet -----------------------------------------------------------------------------------------------------


@rule("CV-49")
async def test_logs_are_read_as_lines_of_a_run_a_canvas_or_a_session_newest_last(
    services: HostServices, bench: Bench
) -> None:
    first = await bench.start(script({"think": "hidden thought"}, {"say": "one"}), session="s")
    async with at_work(bench.worker()):
        await ended(bench, first)
        second = await bench.start(script({"say": "two"}), session="s")
        await ended(bench, second)
    of_run = await services.tools.call("gsv__LogsGet", {"runId": first}, PERSON)
    assert next(line.split(" ")[1] for line in of_run["lines"]) == "run.start"
    assert of_run["text"] == "\n".join(of_run["lines"])
    assert "hidden thought" not in of_run["text"], "what is internal stays so"
    of_session = await services.tools.call("gsv__LogsGet", {"sessionKey": "agent:main:s"}, PERSON)
    assert of_session["text"].index('"one"') < of_session["text"].index('"two"')
    own = await services.tools.call("gsv__LogsGet", {"limit": 1}, ToolContext(THE_OWNER, "agent:main:s"))
    [last] = own["lines"]
    assert last.split(" ")[1] == "done"
    await canvas(services, "upsert", canvasId="c", spec=SPEC)
    assert "canvas.created" in (await services.tools.call("gsv__LogsGet", {"canvasId": "c"}, PERSON))["text"]
    with pytest.raises(BadInput, match="Name one log"):
        await services.tools.call("gsv__LogsGet", {"canvasId": "c", "runId": first}, PERSON)


async def test_an_agent_adds_what_is_no_text_as_base64(services: HostServices, bench: Bench) -> None:
    assets = {
        "assets/index.html": "<img src=a.png>",
        "assets/a.png": {"base64": base64.b64encode(b"\x89PNG\xff").decode()},
    }
    assert (await canvas(services, "upsert", canvasId="c", assets=assets))["assets"] == [
        "assets/a.png",
        "assets/index.html",
    ]
    _, content, _ = await services.assets.read(THE_OWNER, "c", "assets/a.png")
    assert content == b"\x89PNG\xff"
    for wrong in ({"base64": "?"}, {"base64": 5}, {"text": "x"}, 5):
        with pytest.raises((BadInput, ToolFailed), match="assets"):
            await canvas(services, "upsert", canvasId="c", assets={"assets/a.png": wrong})
