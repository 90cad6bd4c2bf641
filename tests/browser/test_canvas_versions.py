"""The list of versions below a canvas: who, when and what changed, and a restore after a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.canvas import MINIMAL_PAGE, CanvasApi, loaded_frame, open_canvas

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SPEC: dict[str, Any] = {"version": 1, "state": {"n": 1}}


async def test_person_sees_versions_and_restores_one_after_a_question(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE, SPEC)
    path = "assets/index.html"
    api.rpc("canvas.asset.put", canvasId=name, path=path, text="<p id=new>A new page</p>")
    await open_canvas(page, server, name)
    rows = page.locator("#versions-list li")
    await expect(rows).to_have_count(0)
    await page.locator("#versions summary").click()
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("Version 2 (present), written by a person (owner)")
    await expect(rows.first).to_contain_text(
        "assets/index.html changed. Works in the folder of agent:main:main."
    )
    await expect(rows.last).to_contain_text("First known version.")

    api.rpc("canvas.patch", canvasId=name, spec={**SPEC, "description": "<b>new</b>"})
    await expect(rows).to_have_count(3)  # the open list is read again
    await expect(rows.first).to_contain_text("spec.description added.")

    await page.get_by_role("button", name="Restore version 1").click()
    await page.get_by_role("button", name="Keep the present version").click()
    assert api.rpc("canvas.get", canvasId=name)["revision"] == 3
    await page.get_by_role("button", name="Restore version 1").click()
    await page.get_by_role("button", name="Restore it").click()
    await expect(rows).to_have_count(4)
    await expect(rows.first).to_contain_text("Restored version 1: ")
    frame = await loaded_frame(page)
    await expect(frame.locator("#new")).to_have_count(0)
    restored = api.rpc("canvas.get", canvasId=name)
    assert (restored["spec"], restored["accepted"]) == (SPEC, True)


async def test_person_sees_the_content_of_a_version_before_it_is_restored(
    page: Page, server: EaselProcess, api: CanvasApi
) -> None:
    name = api.make("<p>Old\u202e</p><script>window.ran = true</script>", {**SPEC, "description": "old spec"})
    api.rpc("canvas.patch", canvasId=name, spec=SPEC)
    api.put(name, "assets/index.html", "<p>New</p>")
    await open_canvas(page, server, name)
    await page.locator("#versions summary").click()
    await page.get_by_role("button", name="Restore version 1").click()
    row = page.locator("#versions-list li").last
    await expect(row.locator("pre")).to_contain_text('"description": "old spec"')
    await row.get_by_role("button", name="Show assets/index.html").click()
    await expect(row.locator("pre").last).to_have_text(
        "<p>Old⟨U+202E⟩</p><script>window.ran = true</script>", use_inner_text=True
    )
    await expect(row.get_by_role("button", name="Restore it")).to_be_visible()
    assert api.rpc("canvas.get", canvasId=name)["revision"] == 3


async def test_reason_of_a_refused_restore_is_shown(page: Page, server: EaselProcess, api: CanvasApi) -> None:
    name = api.make(MINIMAL_PAGE, SPEC)
    api.rpc("canvas.patch", canvasId=name, spec={**SPEC, "description": "new"})
    await open_canvas(page, server, name)
    await page.locator("#versions summary").click()
    await page.get_by_role("button", name="Restore version 1").click()
    await page.evaluate("""() => {
      const send = WebSocket.prototype.send;
      WebSocket.prototype.send = function(text) {
        return send.call(this, text.replace('"version":1,', '"version":9,'));
      };
    }""")
    await page.get_by_role("button", name="Restore it").click()
    await expect(page.locator("#versions-problem")).to_contain_text("version")
    assert api.rpc("canvas.get", canvasId=name)["revision"] == 2
