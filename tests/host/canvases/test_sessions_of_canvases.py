"""The session in whose folder a canvas works: chosen when it is created, afterwards by a person. RS-72"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.canvas.canvas import to_ms
from easel.core.canvas.versions import Part
from easel.core.tool.context import ToolContext
from easel.errors import InputConflict
from easel.host.canvases.drafts import Draft
from tests.host.canvases.test_acceptance import AGENT, NODE, PAGE, PATH, SERVICE, SPEC, TOOL, WIDER, audited
from tests.host.conftest import TestTool
from tests.host.services import HostServices
from tests.requirements import rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from easel.core.canvas.canvas import CanvasSnapshot
    from easel.core.principal import Principal
    from tests.host.conftest import RunHarness

HOME, EVIL = "agent:main:home", "agent:main:evil"
PATCH: dict[str, Any] = {"state_patch": None, "spec": None, "title": None, "expected_revision": None}


class RecordSession(TestTool):
    """A tool that records the sessions in whose folders it worked."""

    def __init__(self) -> None:
        super().__init__(TOOL, self.use_nothing)
        self.sessions: list[str] = []

    async def use_nothing(self, args: Mapping[str, Any]) -> Any: ...

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        self.sessions.append(context.session_key)


@pytest.fixture
def tool() -> RecordSession:
    return RecordSession()


@pytest_asyncio.fixture
async def services(harness: RunHarness, tool: RecordSession) -> AsyncIterator[HostServices]:
    services = await HostServices.open(harness, tool)
    yield services
    await services.close()


async def upsert(services: HostServices, principal: Principal = THE_OWNER, **parts: Any) -> CanvasSnapshot:
    return await services.library.upsert(principal, Draft(canvas_id="c", **parts))


async def read(services: HostServices) -> CanvasSnapshot:
    return await services.library.get(THE_OWNER, "c")


async def send_from_another_chat(services: HostServices, **args: Any) -> dict[str, Any]:
    """Write the canvas with the agents' tool, in a run of the session `evil`."""
    context = ToolContext(THE_OWNER, EVIL)
    return await services.tools.call("gsv__Canvas", {"operation": "upsert", "canvasId": "c", **args}, context)


# --- an agent does not move a canvas ------------------------------------------------------------------------


@rule("RS-72", "RS-59")
async def test_same_content_from_another_chat_changes_nothing_and_warns(services: HostServices) -> None:
    created = await upsert(services, spec=SPEC, assets=PAGE, owner_session_key=HOME)
    page = {path: content.decode() for path, content in PAGE.items()}
    answer = await send_from_another_chat(services, spec=SPEC, assets=page)
    assert await read(services) == created
    assert len(await services.log()) == 1
    [warning] = answer["warnings"]
    assert HOME in warning
    assert "only a person can change that" in warning


@rule("RS-72", "RS-59")
async def test_new_title_from_another_chat_breaks_no_button(
    services: HostServices, tool: RecordSession
) -> None:
    await upsert(services, spec=SPEC, owner_session_key=HOME)
    await send_from_another_chat(services, spec=SPEC, title="Deploy to production")
    await services.run("go")
    assert ((await read(services)).is_accepted, tool.sessions) == (True, [HOME])


@rule("RS-72", "RS-68")
@pytest.mark.parametrize("writer", [AGENT, SERVICE, NODE], ids=lambda writer: writer.kind.value)
async def test_only_a_person_moves_a_canvas(services: HostServices, writer: Principal) -> None:
    await upsert(services, spec=SPEC, owner_session_key=HOME)
    for session in (EVIL, "main"):
        await upsert(services, writer, owner_session_key=session)
        await services.library.patch(writer, "c", owner_session_key=session, **PATCH)
    assert ((await read(services)).canvas.session_key, (await read(services)).canvas.revision) == (HOME, 1)
    await services.library.patch(THE_OWNER, "c", owner_session_key="main", **PATCH)
    moved = await read(services)
    assert (moved.canvas.session_key, moved.is_accepted) == ("agent:main:main", True)
    assert [event["changedPaths"] for _, event in await services.log("canvas.updated")] == [["$session"]]
    [record] = await audited(services, "canvas.owner.changed")
    assert record["details"] == {"from": HOME, "to": "agent:main:main"}


ACCEPTED_AGAIN = {
    "restore": lambda services: services.versions.restore(THE_OWNER, "c", 1),
    "upsert": lambda services: upsert(services, spec=SPEC, assets=PAGE, owner_session_key=HOME),
    "patch": lambda services: services.library.patch(
        THE_OWNER, "c", **{**PATCH, "spec": SPEC, "owner_session_key": HOME}
    ),
    "accept": lambda services: services.library.accept(THE_OWNER, "c", 2),
}


@rule("RS-72", "RS-59", "RS-64")
@pytest.mark.parametrize("way", ACCEPTED_AGAIN)
async def test_accepted_again_after_an_agents_change_it_works_in_the_folder_that_was_accepted(
    services: HostServices, tool: RecordSession, way: str
) -> None:
    assets = {} if way == "patch" else PAGE  # a person's spec alone accepts no page
    await upsert(services, spec=SPEC, assets=assets, owner_session_key=HOME)
    await send_from_another_chat(services, spec=WIDER)
    assert not (await read(services)).is_accepted
    await ACCEPTED_AGAIN[way](services)
    await services.run("go")
    assert ((await read(services)).is_accepted, tool.sessions) == (True, [HOME])


@rule("RS-72", "RS-64")
@pytest.mark.parametrize("way", ["upsert", "patch"])
async def test_person_who_sends_no_session_does_not_accept_the_one_that_an_agent_chose(
    services: HostServices, way: str
) -> None:
    assets = {} if way == "patch" else PAGE
    await upsert(services, AGENT, spec=SPEC, assets=assets, owner_session_key=EVIL)
    if way == "upsert":
        await upsert(services, spec=SPEC, assets=PAGE)
    else:
        await services.library.patch(THE_OWNER, "c", **{**PATCH, "spec": SPEC})
    assert not (await read(services)).is_accepted


# --- the session is part of what is accepted, and of every version ------------------------------------------


@rule("RS-72", "RS-64")
async def test_session_that_moved_since_it_was_seen_is_not_accepted(services: HostServices) -> None:
    await upsert(services, AGENT, spec=SPEC, owner_session_key=EVIL)
    seen = await read(services)
    await upsert(services, owner_session_key=HOME)
    moved = (await read(services)).canvas
    assert moved.spec_revision > seen.canvas.revision
    assert moved.written_by == "agent main", "the person who is asked must know whose spec it is"


@rule("RS-72")
async def test_person_restores_the_session_of_a_version_with_it(services: HostServices) -> None:
    await upsert(services, spec=SPEC, owner_session_key=HOME)
    await upsert(services, owner_session_key=EVIL)
    current = await services.versions.current(THE_OWNER, "c")
    assert (current.number, current.session_key) == (2, EVIL)
    assert current.differences is not None
    assert current.differences.parts == [Part("ownerSessionKey", "changed")]
    restored = await services.versions.restore(AGENT, "c", 1)
    assert (restored.canvas.session_key, restored.is_accepted) == (EVIL, True), "not by an agent"
    restored = await services.versions.restore(THE_OWNER, "c", 1)
    assert (restored.canvas.session_key, restored.is_accepted) == (HOME, True)


@rule("RS-72", "RS-64")
async def test_restored_version_that_no_person_accepted_is_reviewed_with_its_session(
    services: HostServices,
) -> None:
    await upsert(services, AGENT, spec=SPEC, owner_session_key=EVIL)
    await upsert(services, spec=WIDER, assets={}, owner_session_key=HOME)
    assert (await read(services)).is_accepted
    restored = await services.versions.restore(THE_OWNER, "c", 1)
    assert (restored.canvas.session_key, restored.is_accepted) == (EVIL, False)
    [accepted] = await services.versions.list_versions(
        THE_OWNER, "c", before=None, limit=1, only_accepted=True
    )
    assert accepted.session_key == HOME, "the panel marks the change since then"


@rule("RS-72", "RS-64")
async def test_canvas_that_was_created_again_is_not_accepted_at_the_revision_that_was_seen(
    services: HostServices,
) -> None:
    await upsert(services, AGENT, spec=SPEC)
    seen = (await read(services)).canvas
    await services.library.delete(THE_OWNER, "c")
    await upsert(services, AGENT, spec=WIDER, owner_session_key=EVIL)
    again = (await read(services)).canvas
    with pytest.raises(InputConflict):
        await services.library.accept(THE_OWNER, "c", seen.revision, created_ms=to_ms(seen.created_at))
    assert not (await read(services)).is_accepted
    await services.library.accept(THE_OWNER, "c", again.revision, created_ms=to_ms(again.created_at))
    assert (await read(services)).is_accepted


# --- authors ------------------------------------------------------------------------------------------------


@rule("RS-72", "RS-68")
async def test_same_page_from_an_agent_keeps_the_author_and_leaves_no_blob(services: HostServices) -> None:
    created = await upsert(services, spec=SPEC, assets=PAGE)
    asset, revision = await services.assets.put(AGENT, "c", PATH, PAGE[PATH], None)
    assert (await read(services), revision, asset.size) == (created, 1, len(PAGE[PATH]))
    assert await services.blob_keys() == [created.assets[0].blob_key]


@rule("RS-72", "RS-64")
async def test_title_by_an_agent_shows_its_author_also_after_a_restore(services: HostServices) -> None:
    await upsert(services, spec=SPEC, title="Deploy")
    await upsert(services, AGENT, title="Preview, changes nothing")
    titled = (await read(services)).canvas
    assert (titled.written_by, titled.titled_by, titled.is_accepted) == ("person owner", "agent main", True)
    await upsert(services, spec=WIDER, title="Deploy again")
    assert (await read(services)).canvas.titled_by == "person owner"
    restored = (await services.versions.restore(THE_OWNER, "c", 1)).canvas
    assert (restored.title, restored.titled_by) == ("Preview, changes nothing", "agent main")
