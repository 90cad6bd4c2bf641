"""A start that was decided before the lock of its canvas, while the canvas changes in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from easel.core.action.execution import ExecutionStatus
from easel.host.canvases.drafts import Draft
from tests.requirements import rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from tests.host.services import HostServices


def spec_of(value: str) -> dict[str, Any]:
    call = {"kind": "tool.call", "tool": "gsv__Echo", "args": {"value": value}, "confirm": "never"}
    policy = {"allow": ["gsv__Echo"]}
    return {"version": 1, "toolPolicy": policy, "actions": {"go": {**call, "saveAs": "said"}}}


SPEC = spec_of("{{state.name}}")


async def change_the_state(services: HostServices) -> None:
    patch = [{"op": "replace", "path": "/name", "value": "new"}]
    await services.library.patch(
        THE_OWNER, "c", state_patch=patch, spec=None, title=None, expected_revision=None
    )


async def change_the_spec(services: HostServices) -> None:
    await services.library.upsert(THE_OWNER, Draft(canvas_id="c", spec=spec_of("new")))


async def create_it_again(services: HostServices) -> None:
    await services.library.delete(THE_OWNER, "c")
    await services.library.create(THE_OWNER, Draft(canvas_id="c", spec=SPEC, state={"name": "new"}))


async def press(services: HostServices, change: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Press the button, with a change between the read of the canvas and the transaction."""
    canvases = services.harness.database.canvases
    read, changes = canvases.get, [change]

    async def get(*ids: Any) -> Any:
        snapshot = await read(*ids)
        if changes:
            await changes.pop()(services)
        return snapshot

    with monkeypatch.context() as patched:
        patched.setattr(canvases, "get", get)
        return await services.run("go")


@rule("CV-39", "RS-72")
@pytest.mark.parametrize("change", [change_the_state, change_the_spec, create_it_again])
async def test_start_is_decided_on_the_canvas_that_is_locked(
    services: HostServices, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await services.library.create(THE_OWNER, Draft(canvas_id="c", spec=SPEC, state={"name": "old"}))
    result = await press(services, change, monkeypatch)
    assert (result.status, result.result) == (ExecutionStatus.COMPLETED, "new")
