"""The accept panel of a canvas whose tool claims less effect than before. RS-68"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from easel.core.tool.definition import ToolDefinition
from tests.browser.canvas import MINIMAL_PAGE, CanvasApi, loaded_frame, open_canvas, read_to_the_end
from tests.edges.http.live import LiveEasel
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from easel.core.tool.context import ToolContext

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SPEC: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["test__Act"]},
    "actions": {"go": {"kind": "tool.call", "tool": "test__Act", "args": {}, "confirm": "never"}},
}


class Act:
    definition = ToolDefinition("test__Act", "Acts.", {"type": "object"})

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        return "done"


@pytest.fixture
def tool() -> Act:
    return Act()


@pytest.fixture
def easel(tmp_path_factory: pytest.TempPathFactory, tool: Act) -> Iterator[LiveEasel]:
    with LiveEasel(tmp_path_factory.mktemp("easel"), with_worker=False, tools=[tool]) as live:
        yield live


@rule("RS-68", "RS-64")
async def test_panel_says_why_a_weakened_canvas_must_be_accepted_again(
    page: Page, easel: LiveEasel, tool: Act
) -> None:
    with CanvasApi(easel) as api:
        name = api.make(MINIMAL_PAGE, SPEC)
        await open_canvas(page, easel, name)
        frame = await loaded_frame(page)
        await expect(page.locator("#accept")).to_be_hidden()
        tool.definition = replace(tool.definition, read_only=True)
        easel.instances[0].services.tools.add([tool])
        await frame.evaluate("void gsvCanvas.runAction('go')")
        await expect(page.locator("#consent")).to_be_visible()
        panel = page.locator("#accept")
        await expect(panel).to_contain_text("test__Act now declares that it is read-only.")
        await expect(page.locator("#accept-intro")).to_be_hidden()
        await page.get_by_role("button", name="Refuse").click()
        await read_to_the_end(page)
        await page.get_by_role("button", name="Accept it").click()
        await expect(panel).to_be_hidden()
        assert api.rpc("canvas.get", canvasId=name)["accepted"] is True
