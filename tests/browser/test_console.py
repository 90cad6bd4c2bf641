"""The home page around the chat: sessions, the state of a run, its boards, and a canvas."""

from __future__ import annotations

import base64
import re
import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from easel.edges.methods import METHODS
from tests.browser.console import (
    ApiClient,
    answer,
    expect_ended,
    open_session,
    script,
    send_message,
    status,
    turn,
)
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

RED_DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/"
    "w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg=="
)
BLUE_DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPj/HwADBwIAMCbHYQAAAABJRU5ErkJggg=="
)


# --- sessions -----------------------------------------------------------------------------------------------


async def test_sessions_are_searched_renamed_and_deleted(page: Page, server: EaselProcess) -> None:
    name = f"Zebra {secrets.token_hex(3)}"
    session = await open_session(page, server)
    await send_message(page, f"{name} stripes")
    await expect_ended(page)
    rows = page.locator("#session-list li")
    await expect(rows.first).to_contain_text(f"{name} stripes")
    await expect(page.locator("#title")).to_have_text(f"{name} stripes")

    search = page.get_by_label("Search sessions")
    await search.fill("nothing is called like this")
    await expect(page.locator("#no-sessions")).to_contain_text("No session has this")
    await search.fill(name.lower())
    await expect(rows).to_have_count(1)

    await page.get_by_role("button", name="Rename").click()
    await expect(page.get_by_label("New title")).to_be_focused()
    await page.get_by_label("New title").fill(f"{name} <b>horses</b>")
    await page.keyboard.press("Enter")
    await expect(rows.first).to_contain_text(f"{name} <b>horses</b>")
    await expect(page.locator("#title")).to_have_text(f"{name} <b>horses</b>")
    await expect(
        page.get_by_role("button", name="Rename")
    ).to_be_focused()  # who has finished goes on where they were
    await page.keyboard.press("Enter")
    await page.keyboard.press("Escape")
    await expect(page.locator("#title")).to_be_visible()
    await expect(page.get_by_role("button", name="Rename")).to_be_focused()

    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("button", name="Keep", exact=True).click()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Keep", exact=True)).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.locator("#delete")).to_be_focused()
    await expect(rows).to_have_count(1)
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.locator("#delete-for-good").click()
    await expect(rows).to_have_count(0)
    await expect(page.locator("#title")).not_to_contain_text(name)
    await expect(page.locator("#chat-problem")).to_contain_text("was deleted")
    with ApiClient(server) as outside:
        assert session not in [one["session_id"] for one in outside.get("/api/sessions")["sessions"]]


async def test_click_on_a_session_survives_a_redraw_of_the_list(page: Page, server: EaselProcess) -> None:
    first = await open_session(page, server)
    await send_message(page, script({"say": "First."}))
    await expect_ended(page)
    await open_session(page, server)
    await send_message(page, script({"say": "Second."}))
    await expect_ended(page)
    row = page.locator(f"#session-list button[title='{first}']")
    await row.hover()
    await page.mouse.down()
    with ApiClient(server) as outside:
        outside.post("/api/sessions", {"session_id": f"s-{secrets.token_hex(4)}", "title": "Drawn anew"})
    await page.evaluate("dispatchEvent(new Event('focus'))")
    await expect(page.locator("#session-list")).to_contain_text("Drawn anew")
    box = await row.bounding_box()
    assert box
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.mouse.up()
    await expect(row).to_have_attribute("aria-current", "true")


async def test_incomplete_response_is_reported_and_requested_again(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(page, script({"say": "First."}))
    await expect_ended(page)
    await page.route(
        "**/api/sessions?*",
        lambda route: route.fulfill(status=200, content_type="application/json", body='{"sess'),
    )
    await page.evaluate("dispatchEvent(new Event('focus'))")
    await expect(page.locator("#sessions-problem")).to_have_text(
        "The connection broke before the response was complete."
    )
    await page.unroute("**/api/sessions?*")
    await page.evaluate("dispatchEvent(new Event('focus'))")
    await expect(page.locator("#sessions-problem")).to_be_empty()
    await expect(page.locator("#session-list button[aria-current='true']")).to_be_visible()


async def test_new_session_reuses_an_empty_one(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(page, "noop")
    await expect_ended(page)
    for _ in range(2):
        await page.get_by_role("button", name="New", exact=True).click()
        await expect(page.locator("#welcome")).to_be_visible()
        await expect(page.locator("#title")).to_have_text("New session")
    await expect(page.locator("#session-list li", has_text="New session")).to_have_count(1)
    await send_message(page, "A title comes from what is said first")
    await expect(page.locator("#title")).to_have_text("A title comes from what is said first")


async def test_session_deleted_elsewhere_is_left_with_a_message(page: Page, server: EaselProcess) -> None:
    session = await open_session(page, server)
    await send_message(page, script({"say": "Here today."}))
    await expect_ended(page)
    with ApiClient(server) as outside:
        outside.delete(f"/api/sessions/{session}")
    await expect(page.locator("#chat-problem")).to_contain_text(f"The session {session} was deleted")
    await expect(page.locator("#turns")).not_to_contain_text("Here today.")
    await expect(page.locator("#link")).to_have_text("connected")


# --- the run's state ----------------------------------------------------------------------------------------


@rule("CC-09")
async def test_boards_are_tables_that_update_live(page: Page, server: EaselProcess) -> None:
    session = await open_session(page, server)
    await send_message(page, script({"say": "Write on me."}, {"wait_ms": 60_000}))
    await expect(status(page)).to_have_text("running")
    await expect(page.locator("#run-attempt")).to_have_text("attempt 1 of 3")
    await expect(page.locator("#run-link")).to_have_text("live")
    heavy = "words and words " * 400
    with ApiClient(server) as outside:
        [run] = outside.get(f"/api/runs?session_id={session}")["runs"]
        about = f"/api/runs/{run['run_id']}"

        def write(board: str, key: str, value: object, **more: str) -> None:
            outside.post(f"{about}/{board}", {"key": key, "value": value, "source_node_id": "tester", **more})

        rows = page.locator("#whiteboard tbody tr")
        write("whiteboard", "goal", {"what": "see it"})
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text('{"what":"see it"}')
        write("whiteboard", "goal", "seen")
        await expect(rows.locator("pre")).to_have_text("seen")
        await expect(rows).to_contain_text("v2")
        write("whiteboard", "long", heavy)
        await expect(rows).to_have_count(2)
        await rows.nth(1).get_by_role("button", name="show").click()
        await expect(rows.nth(1).locator("pre")).to_have_text(heavy)
        handed = page.locator("#blackboard tbody tr")
        write("blackboard", "goal", 1, edge_id="a-b")
        write("blackboard", "goal", 2, edge_id="b-c")
        await expect(handed).to_have_count(2)
        await expect(handed.nth(1)).to_contain_text("b-c")
    by = re.compile(r"^written by person owner in tester at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$")
    await expect(rows.first.locator("[title]")).to_have_attribute("title", by)
    await page.reload()
    await expect(rows.first.locator("pre")).to_have_text("seen")
    await expect(handed).to_have_count(2)
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect(status(page)).to_have_text("cancelled")
    await expect(handed).to_have_count(2)


async def test_earlier_run_can_be_selected_and_left(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    for number in (1, 2):
        await send_message(
            page, script({"call": "gsv__WhiteboardWrite", "args": {"key": "number", "value": number}})
        )
        await expect(page.locator("#turns .turn")).to_have_count(number)
        await expect_ended(page)
    value = page.locator("#whiteboard td pre")
    await expect(value).to_have_text("2")
    await turn(page, 0).get_by_role("button", name="run", exact=True).click()
    await expect(value).to_have_text("1")
    await page.reload()
    await expect(value).to_have_text("1")
    await page.get_by_role("button", name="Back to the latest").click()
    await expect(value).to_have_text("2")


async def test_unknown_run_in_the_address_is_reported(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await page.goto(f"{server.base_url}/#session=main&run=run_00000000000000000000000000")
    await expect(page.locator("#run-problem")).not_to_be_empty()
    await expect(page.locator("#run-link")).to_contain_text("run_00000000000000000000000000")


# --- the canvas ---------------------------------------------------------------------------------------------


@rule("CC-07", "CC-24")
async def test_canvas_is_created_and_its_newest_snapshot_is_shown(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    canvas = f"c-{secrets.token_hex(3)}"
    await page.get_by_text("Pictures of a canvas").click()
    await page.get_by_label("Canvas id").fill(canvas)
    await page.get_by_role("button", name="Show", exact=True).click()
    await expect(page.locator("#canvas-missing")).to_contain_text(f"There is no canvas {canvas} yet")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(other.locator("#canvas-missing")).to_be_visible()
    await page.bring_to_front()
    await page.get_by_role("button", name="Create it").click()
    await expect(page.locator("#canvas-link")).to_have_text("live")
    await expect(other.locator("#canvas-link")).to_have_text("live")
    await other.close()
    await expect(page.locator("#canvas-title")).to_have_attribute("href", f"/canvas/main/{canvas}")
    await expect(page.locator("#no-snapshot")).to_be_visible()
    picture = page.locator("#snapshot img")
    with ApiClient(server) as outside:
        first = outside.post(f"/api/canvases/{canvas}/snapshots", content=RED_DOT)
        await expect(picture).to_have_attribute("src", first["uri"])
        second = outside.post(f"/api/canvases/{canvas}/snapshots", content=BLUE_DOT)
        await expect(picture).to_have_attribute("src", second["uri"])
    await expect(picture).to_have_js_property("naturalWidth", 1)
    await page.reload()
    await expect(picture).to_have_attribute("src", second["uri"])
    await page.set_input_files("#picture", {"name": "dot.png", "mimeType": "image/png", "buffer": RED_DOT})
    await expect(picture).to_have_attribute("src", first["uri"])
    await expect(picture).to_have_js_property("naturalWidth", 5)
    await page.set_input_files(
        "#picture", {"name": "x.png", "mimeType": "image/png", "buffer": b"<svg onload=alert(1)>"}
    )
    await expect(page.locator("#canvas-problem")).to_contain_text("picture")


# --- the page -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width, height", [(360, 640), (800, 600)])
async def test_narrow_window_reaches_all_parts(
    page: Page, server: EaselProcess, width: int, height: int
) -> None:
    await page.set_viewport_size({"width": width, "height": height})
    await open_session(page, server)
    board = {
        "call": "gsv__BlackboardWrite",
        "args": {"edge_id": "e" * 100, "key": "k" * 100, "value": "v" * 500},
    }
    await send_message(
        page, script({"say": "x" * 500}, {"call": "gsv__Echo", "args": {"value": "y" * 500}}, board)
    )
    await expect_ended(page)

    async def fits(*names: str) -> None:
        overflow = await page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0, f"{overflow} px wider than the window"
        for name in names:
            button = page.get_by_role("button", name=name, exact=True)
            await expect(button).to_be_in_viewport(ratio=1)

    await expect(answer(page)).to_be_in_viewport()
    await fits("Send", "Stop", "Sign out", "Rename", "Delete", "Chat")
    await page.get_by_role("button", name="Canvases and run").click()
    await expect(page.locator("#places-head")).to_be_in_viewport()
    await status(page).scroll_into_view_if_needed()
    await fits("Chat")
    if width < 700:
        await page.get_by_role("button", name="Sessions", exact=True).click()
    await fits("New")
    await page.locator("#session-list button").first.click()
    await expect(page.get_by_label("Message", exact=True)).to_be_in_viewport()


async def test_api_page_lists_every_operation(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await page.get_by_role("link", name="API").click()
    await expect(page.get_by_role("heading", name="POST /api/runs", exact=True)).to_be_visible()
    described = await page.evaluate("fetch('/openapi.json').then((answer) => answer.json())")
    count = sum(len(methods) for methods in described["paths"].values())
    await expect(page.locator("section")).to_have_count(count)
    await expect(page.locator("#problem")).to_be_empty()
    shown = await page.locator("main").inner_text()
    assert "undefined" not in shown
    assert "[object" not in shown
    assert "`" not in shown
    for name in METHODS:
        await expect(page.locator("#method-list").get_by_role("cell", name=name, exact=True)).to_be_visible()
    await page.get_by_label("Search operations").fill("get blackboard")
    await expect(page.locator("section:visible")).to_have_count(1)
    await expect(page.locator("section:visible")).to_contain_text(
        "string, optional Only this edge of the blackboard"
    )
