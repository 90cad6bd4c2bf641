"""Versions of canvases: a restore gives exactly what was there, as a write of the one who restores."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from easel.core.canvas.versions import Part
from easel.errors import BadInput, CorruptData, Forbidden, NotFound, RevisionConflict, TooLarge
from easel.host.canvases.assets import AssetLimits
from easel.host.canvases.drafts import Draft
from easel.host.canvases.versions import CanvasVersions
from tests.host.canvases.test_acceptance import AGENT, PAGE, PATH, SPEC, TOOL, WIDER, audited, redeclare, work
from tests.host.conftest import TestTool
from tests.host.services import HostServices
from tests.requirements import rule
from tests.support.length import examples
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.core.principal import Principal
    from tests.host.conftest import RunHarness

OTHER_PAGE = {PATH: b"<p>Other</p>"}


@pytest.fixture
def tool() -> TestTool:
    return TestTool(TOOL, work)


@pytest_asyncio.fixture
async def services(harness: RunHarness, tool: TestTool) -> AsyncIterator[HostServices]:
    services = await HostServices.open(harness, tool)
    yield services
    await services.close()


async def upsert(services: HostServices, principal: Principal = THE_OWNER, **parts: Any) -> None:
    await services.library.upsert(principal, Draft(canvas_id="c", **parts))


# --- what a restore gives -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Content:
    title: str
    spec: dict[str, Any]
    files: dict[str, bytes]


class Machine:
    """One canvas under random changes, and a model of all its versions."""

    def __init__(self, services: HostServices, canvas_id: str, seed: int) -> None:
        self.services, self.canvas_id, self.random = services, canvas_id, random.Random(seed)
        self.earlier: list[Content] = []
        self.writer = THE_OWNER
        self.present = Content(canvas_id, {"version": 1, "mode": "html"}, {})

    async def start(self) -> None:
        await self.services.library.create(THE_OWNER, Draft(canvas_id=self.canvas_id))

    def set(self, **parts: Any) -> None:
        """Set the present content of the model."""
        before, self.present = self.present, replace(self.present, **parts)
        if (before.spec, before.files) != (self.present.spec, self.present.files):
            self.earlier.append(before)

    async def step(self) -> None:
        change = self.random.choice((self.put, self.put, self.delete, self.patch, self.upsert, self.restore))
        self.writer = self.random.choice((THE_OWNER, AGENT))  # versions of both kinds are stored differently
        await change()

    async def put(self) -> None:
        path, content = f"assets/{self.random.choice('abc')}", self.random.choice((b"1", b"2", b"3"))
        await self.services.assets.put(self.writer, self.canvas_id, path, content, None)
        self.set(files={**self.present.files, path: content})

    async def delete(self) -> None:
        if self.present.files:
            path = self.random.choice(sorted(self.present.files))
            await self.services.assets.delete(self.writer, self.canvas_id, path, None)
            self.set(files={name: body for name, body in self.present.files.items() if name != path})

    async def patch(self) -> None:
        spec = {"version": 1, "description": self.random.choice("xyz")}
        title = self.random.choice((None, "One", "Two"))
        state_patch = [{"op": "add", "path": "/n", "value": self.random.random()}]
        await self.services.library.patch(
            self.writer,
            self.canvas_id,
            state_patch=state_patch,
            spec=spec,
            title=title,
            expected_revision=None,
        )
        self.set(spec=spec, title=title or self.present.title)

    async def upsert(self) -> None:
        spec = {"version": 1, "description": self.random.choice("xyz")}
        files = {f"assets/{name}": self.random.choice((b"1", b"2")) for name in self.random.sample("abc", 2)}
        await self.services.library.upsert(
            self.writer, Draft(canvas_id=self.canvas_id, spec=spec, assets=files)
        )
        self.set(spec=spec, files=files)

    async def restore(self) -> None:
        if self.earlier:
            number = self.random.randint(1, len(self.earlier))
            await self.services.versions.restore(self.writer, self.canvas_id, number)
            wanted = self.earlier[number - 1]
            self.set(title=wanted.title, spec=wanted.spec, files=wanted.files)

    async def read(self) -> Content:
        canvas = (await self.services.library.get(THE_OWNER, self.canvas_id)).canvas
        files = {
            path: (await self.services.assets.read(THE_OWNER, self.canvas_id, path))[1]
            for path in sorted(self.present.files)
        }
        return Content(canvas.title, dict(canvas.spec), files)


async def test_restore_gives_exactly_the_content_of_the_version(services: HostServices) -> None:
    for seed in range(examples(4)):
        machine = Machine(services, f"c{seed}", seed)
        await machine.start()
        for _ in range(20):
            await machine.step()
            assert await machine.read() == machine.present
        for number in range(1, len(machine.earlier) + 1):
            found = await services.versions.get(THE_OWNER, machine.canvas_id, number)
            wanted = machine.earlier[number - 1]
            assert (found.version.title, found.spec) == (wanted.title, wanted.spec)
            files = {asset.path: await services.blobs.get(asset.blob_key) for asset in found.assets}
            assert files == wanted.files
        current = await services.versions.current(THE_OWNER, machine.canvas_id)
        assert current.number == len(machine.earlier) + 1
        assert await services.assets.sweep(grace_seconds=-10) == 0, "every blob is in use"
        await services.library.delete(THE_OWNER, machine.canvas_id)
    assert await services.blob_keys() == []


async def test_restore_makes_a_version_with_the_restored_number_and_keeps_the_state(
    services: HostServices,
) -> None:
    await services.create({"state": {"n": 1}, "description": "first"})
    await upsert(services, spec={"version": 1, "description": "second"}, state={"n": 2})
    restored = await services.versions.restore(THE_OWNER, "c", 1)
    assert (restored.canvas.spec["description"], restored.canvas.state) == ("first", {"n": 2})
    current = await services.versions.current(THE_OWNER, "c")
    assert current.differences is not None
    assert current.differences.restored == 1
    assert current.differences.parts == [Part("spec.description", "changed"), Part("spec.state", "added")]
    second = (await services.versions.get(THE_OWNER, "c", 2)).spec
    assert second["description"] == "second"
    [*_, (kind, event)] = await services.log()
    assert (kind, event["changedPaths"], event["revision"]) == ("canvas.updated", ["$spec"], 3)


@rule("RS-68")
async def test_restore_is_audited_with_the_changes(services: HostServices) -> None:
    await upsert(services, spec=SPEC, assets=PAGE)
    await upsert(services, spec=WIDER, assets=OTHER_PAGE)
    await services.versions.restore(THE_OWNER, "c", 1)
    [record] = await audited(services, "canvas.restored")
    assert (record["subject"], record["details"]) == ("c", {"version": 1, "revision": 3})
    assert (await audited(services, "canvas.spec.changed"))[-1]["details"]["actions"] == {"changed": ["go"]}
    assert (await audited(services, "canvas.asset.changed"))[-1]["details"]["path"] == PATH


async def test_restore_of_the_present_content_changes_nothing(services: HostServices) -> None:
    await upsert(services, spec=SPEC)
    await upsert(services, spec=WIDER)
    await services.versions.restore(THE_OWNER, "c", 1)
    again = await services.versions.restore(THE_OWNER, "c", 1)
    assert again.canvas.revision == 3
    assert len(await audited(services, "canvas.restored")) == 1


# --- what a restore refuses ---------------------------------------------------------------------------------


@rule("CV-45")
async def test_restore_with_another_revision_changes_nothing(services: HostServices) -> None:
    await upsert(services, spec=SPEC)
    await upsert(services, spec=WIDER)
    with pytest.raises(RevisionConflict) as refused:
        await services.versions.restore(THE_OWNER, "c", 1, expected_revision=1)
    assert refused.value.details["currentRevision"] == 2
    assert (await services.library.get(THE_OWNER, "c")).canvas.revision == 2
    assert (await services.versions.restore(THE_OWNER, "c", 1, 2)).canvas.revision == 3


async def test_unknown_version_or_canvas_is_not_found(services: HostServices) -> None:
    await upsert(services, spec=SPEC)
    with pytest.raises(NotFound, match="version 2 of the canvas c"):
        await services.versions.restore(THE_OWNER, "c", 2)
    with pytest.raises(BadInput, match="Version 1 is the present one"):
        await services.versions.restore(THE_OWNER, "c", 1)
    with pytest.raises(NotFound, match="canvas"):
        await services.versions.get(THE_OWNER, "none", 1)
    with pytest.raises(NotFound, match="canvas"):
        await services.versions.current(THE_OWNER, "none")


async def test_version_that_is_no_longer_valid_is_refused(services: HostServices, tool: TestTool) -> None:
    shell = {**SPEC, "actions": {"go": {**GO_WITH_TEXT}}}
    await upsert(services, spec=shell)
    await upsert(services, spec=SPEC)
    schema = {"type": "object", "properties": {"text": {"type": "string", "x-shell": True}}}
    redeclare(services, tool, schema=schema)
    with pytest.raises(BadInput, match="go"):
        await services.versions.restore(THE_OWNER, "c", 1)


GO_WITH_TEXT = {"kind": "tool.call", "tool": TOOL, "args": {"text": "eval {{input.x}}"}, "confirm": "never"}


async def test_restore_with_a_missing_blob_changes_nothing(services: HostServices) -> None:
    await upsert(services, spec=SPEC, assets=PAGE)
    await upsert(services, assets=OTHER_PAGE)
    [asset] = (await services.versions.get(THE_OWNER, "c", 1)).assets
    await services.blobs.delete(asset.blob_key)
    with pytest.raises(CorruptData, match=PATH):
        await services.versions.restore(THE_OWNER, "c", 1)
    assert (await services.assets.read(THE_OWNER, "c", PATH))[1] == OTHER_PAGE[PATH]


async def test_restore_is_decided_again_after_a_concurrent_change(
    services: HostServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob may be replaced by another one of the same content, and deleted, after a version was read."""
    await upsert(services, spec=SPEC, assets=PAGE)
    await upsert(services, spec=WIDER)
    await upsert(services, assets=PAGE)  # the same content under a new key
    read, rest = CanvasVersions.get, [OTHER_PAGE[PATH], PAGE[PATH]]

    async def read_and_replace(self: CanvasVersions, *version: Any) -> Any:
        found = await read(self, *version)
        if rest:
            await services.assets.put(THE_OWNER, "c", PATH, rest.pop(), None)
        return found

    monkeypatch.setattr(CanvasVersions, "get", read_and_replace)
    await services.versions.restore(THE_OWNER, "c", 1)
    assert rest == []
    assert (await services.assets.read(THE_OWNER, "c", PATH))[1] == PAGE[PATH]


async def test_restore_succeeds_while_the_state_keeps_changing(
    services: HostServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upsert(services, spec=SPEC, assets=PAGE)
    await upsert(services, assets=OTHER_PAGE)
    read = CanvasVersions.get

    async def read_and_change_state(self: CanvasVersions, *version: Any) -> Any:
        found = await read(self, *version)
        patch = [{"op": "add", "path": "/n", "value": found.canvas_revision}]
        await services.library.patch(
            THE_OWNER, "c", state_patch=patch, spec=None, title=None, expected_revision=None
        )
        return found

    monkeypatch.setattr(CanvasVersions, "get", read_and_change_state)
    restored = await services.versions.restore(THE_OWNER, "c", 1)
    assert (restored.canvas.revision, restored.canvas.state["n"]) == (4, 2)
    assert (await services.assets.read(THE_OWNER, "c", PATH))[1] == PAGE[PATH]


async def test_version_above_todays_limits_of_assets_is_refused(services: HostServices) -> None:
    await upsert(services, spec=SPEC, assets={PATH: b"x" * 100, "assets/a.css": b"a"})
    await upsert(services, assets=OTHER_PAGE)
    services.assets._limits = AssetLimits(50, 10)
    with pytest.raises(TooLarge, match="EASEL_MAX_ASSET_BYTES"):
        await services.versions.restore(THE_OWNER, "c", 1)
    services.assets._limits = AssetLimits(10_000, 1)
    with pytest.raises(BadInput, match="at most 1 assets"):
        await services.versions.restore(THE_OWNER, "c", 1)
    assert (await services.assets.read(THE_OWNER, "c", PATH))[1] == OTHER_PAGE[PATH]


# --- whose content it is ------------------------------------------------------------------------------------


@rule("RS-59", "RS-68")
async def test_persons_restore_of_an_accepted_version_is_accepted(services: HostServices) -> None:
    await upsert(services, spec=SPEC, assets=PAGE)
    await upsert(services, AGENT, spec=WIDER, assets=OTHER_PAGE)
    restored = await services.versions.restore(THE_OWNER, "c", 1)
    assert (restored.is_accepted, restored.canvas.written_by) == (True, "person owner")


@rule("RS-64")
async def test_persons_restore_of_an_unaccepted_version_must_be_reviewed(services: HostServices) -> None:
    await upsert(services, AGENT, spec=WIDER, assets=OTHER_PAGE)
    await upsert(services, spec=SPEC, assets=PAGE)
    restored = await services.versions.restore(THE_OWNER, "c", 1)
    assert (restored.is_accepted, restored.canvas.written_by) == (False, "agent main")


@rule("RS-59", "RS-68")
async def test_agents_restore_is_not_accepted(services: HostServices) -> None:
    await upsert(services, spec=SPEC, assets=PAGE)
    await upsert(services, spec=WIDER, assets=PAGE)
    restored = await services.versions.restore(AGENT, "c", 1)
    assert (restored.is_accepted, restored.canvas.written_by) == (False, "agent main")


@rule("RS-59")
async def test_agent_restores_only_tools_that_it_may_call(services: HostServices) -> None:
    beyond = {**SPEC, "toolPolicy": {"allow": [TOOL, "other__Tool"]}}
    await upsert(services, spec=beyond)
    await upsert(services, spec=SPEC)
    with pytest.raises(Forbidden):
        await services.versions.restore(AGENT, "c", 1)


@rule("RS-68")
async def test_tool_that_weakened_since_the_version_was_accepted_ends_its_acceptance(
    services: HostServices, tool: TestTool
) -> None:
    """The spec in between does not have the tool, so the canvas does not remember it."""
    await upsert(services, spec=SPEC)
    await upsert(services, spec={"version": 1})
    redeclare(services, tool, read_only=True)
    restored = await services.versions.restore(THE_OWNER, "c", 1)
    checked = await services.library.check_tools(THE_OWNER, restored)
    assert (list(checked.weakened), checked.is_accepted) == ([TOOL], False)
    accepted = await services.library.accept(THE_OWNER, "c", restored.canvas.revision)
    assert accepted.is_accepted


async def test_restored_refresh_job_is_scheduled_again(services: HostServices) -> None:
    patch = {"kind": "state.patch", "patch": [{"op": "add", "path": "/n", "value": 1}]}
    job = {"id": "tick", "everyMs": 1_000, "action": "set"}
    with_job = {"version": 1, "actions": {"set": patch}, "refresh": [job]}
    await upsert(services, spec=with_job)
    await upsert(services, spec={"version": 1})
    actions = services.harness.database.executions
    assert await actions.next_refresh(unwatched=True) is None
    await services.versions.restore(THE_OWNER, "c", 1)
    assert await actions.next_refresh(unwatched=True) is not None
