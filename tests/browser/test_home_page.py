"""The home page as a person uses it: start a run, watch it, cancel it, come back to it."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import link_of
from tests.requirements import case, rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = """<img src=x onerror="alert(1)"><script>alert(2)</script>"><svg onload=alert(3)>{{7*7}}</td></table>javascript:alert(4)"""


def script(*steps: dict[str, object]) -> str:
    return json.dumps({"script": list(steps)})


async def start(page: Page, message: str, session: str | None = None) -> None:
    """A run of a session of its own, unless one is named: no test waits behind what another left."""
    await page.get_by_label("Session").fill(session or f"s-{secrets.token_hex(4)}")
    await page.get_by_label("Message").fill(message)
    await page.get_by_role("button", name="Run", exact=True).click()


async def press(page: Page, example: str) -> None:
    """One of the examples."""
    await page.get_by_label("Session").fill(f"s-{secrets.token_hex(4)}")
    await page.get_by_role("button", name=example, exact=True).click()
    await page.get_by_role("button", name="Run", exact=True).click()


async def test_the_printed_link_leads_to_a_first_run_in_two_clicks(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    assert page.url == f"{server.base_url}/", "the token has left the address"
    await page.get_by_role("button", name="Use a tool").click()
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator("#run-status")).to_have_text("completed")
    await expect(page.locator("#answer")).to_have_text("Let me look at the clock.\n\nThere it is.")
    result = page.locator("#log tr", has=page.get_by_text("tool.result", exact=True))
    await expect(result).to_contain_text('"now":"20')
    await expect(page.locator("#log tr").last).to_contain_text("done")
    await expect(page.locator("#runs li").first).to_contain_text("completed")


@rule("RX-12", "RX-27")
async def test_a_waiting_run_can_be_cancelled(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await press(page, "Wait a minute")
    await expect(page.locator("#answer")).to_have_text("Cancel me.")
    await expect(page.locator("#run-status")).to_have_text("running")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.locator("#run-status")).to_have_text("cancelled")
    await expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_disabled()
    await expect(page.locator("#runs li").first).to_contain_text("cancelled")


async def test_a_queued_run_can_be_cancelled_and_never_starts(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await start(page, script({"say": "I hold the turn."}, {"wait_ms": 60_000}), session="queue")
    await expect(page.locator("#answer")).to_have_text("I hold the turn.")
    holder = await page.locator("#run-id").text_content()
    await start(page, script({"say": "never said"}), session="queue")
    await expect(page.locator("#run-id")).not_to_have_text(holder or "")
    await expect(page.locator("#run-status")).to_have_text("queued")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.locator("#run-status")).to_have_text("cancelled")
    await expect(page.locator("#answer")).to_be_empty()
    await page.locator("#runs button", has_text="I hold the turn").first.click()
    await expect(page.locator("#run-id")).to_have_text(holder or "")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.locator("#run-status")).to_have_text("cancelled")


@case("E4")
@rule("RX-48")
async def test_a_reload_in_the_middle_of_a_run_sees_it_go_on(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await start(page, script({"ticks": 12, "every_ms": 150}, {"say": "Done."}))
    await expect(page.locator("#answer")).to_contain_text("tick 3")
    await page.reload()
    await expect(page.locator("#run-status")).to_have_text("running")
    await expect(page.locator("#answer")).to_contain_text("tick 1\n")
    await expect(page.locator("#run-status")).to_have_text("completed")
    await expect(page.locator("#answer")).to_have_text("".join(f"tick {n}\n" for n in range(1, 13)) + "Done.")
    numbers = [int(text) for text in await page.locator("#log tr td:first-child").all_text_contents()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_the_link_to_a_run_that_has_ended_shows_all_of_it(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await start(page, script({"say": "Remember me."}))
    await expect(page.locator("#run-status")).to_have_text("completed")
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await expect(page.locator("#answer")).to_have_text("Remember me.")
    await expect(page.locator("#run-status")).to_have_text("completed")
    await expect(page.locator("#stream")).to_be_empty()


async def test_a_failing_run_shows_its_reason(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await press(page, "Fail")
    await expect(page.locator("#run-status")).to_have_text("failed")
    await expect(page.locator("#run-problem")).to_contain_text("as you asked")
    await expect(page.locator("#answer")).to_have_text("This will not end well.")
    await expect(page.locator("#runs li").first).to_contain_text("failed")


@case("P5")
async def test_hostile_text_is_shown_as_text_everywhere(page: Page, server: EaselProcess) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(link_of(server))
    message = script({"say": HOSTILE}, {"call": "gsv__Echo", "args": {"value": HOSTILE}}, {"fail": HOSTILE})
    await start(page, message)
    await expect(page.locator("#run-status")).to_have_text("failed")
    await expect(page.locator("#answer")).to_have_text(HOSTILE)
    await expect(page.locator("#run-problem")).to_contain_text(HOSTILE)
    await start(page, HOSTILE)
    await expect(page.locator("#runs .what").first).to_have_text(HOSTILE)
    assert await page.locator("img, svg, #runs script, #answer script").count() == 0
    assert all(url.startswith(server.base_url) for url in asked)


async def test_what_the_server_refuses_is_said_beside_the_form(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await start(page, "hello", session="no spaces please")
    await expect(page.locator("#problem")).to_contain_text("session_id")
    await start(page, "hello", session="better")
    await expect(page.locator("#problem")).to_be_empty()
    await expect(page.locator("#run-status")).to_have_text("completed")


async def test_an_address_with_an_unknown_run_says_so(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await page.goto(f"{server.base_url}/#run_00000000000000000000000000")
    await page.reload()
    await expect(page.locator("#run-problem")).not_to_be_empty()


async def test_another_run_may_be_chosen_while_one_is_live_and_their_words_do_not_mix(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await start(page, script({"ticks": 100, "every_ms": 50}), session="talkative")
    await expect(page.locator("#answer")).to_contain_text("tick 2")
    await start(page, script({"say": "Just this."}), session="quiet")
    await expect(page.locator("#run-status")).to_have_text("completed")
    await expect(page.locator("#answer")).to_have_text("Just this.")
    await page.locator("#runs button", has_text="ticks").first.click()
    await expect(page.locator("#answer")).to_contain_text("tick 5")
    await expect(page.locator("#answer")).not_to_contain_text("Just this.")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.locator("#run-status")).to_have_text("cancelled")


async def test_everything_can_be_done_by_keyboard_alone(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    for _ in range(20):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.textContent") == "Wait a minute":
            break
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "message"
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Run"
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "one sees where one is"
    await page.keyboard.press("Enter")
    await expect(page.locator("#run-status")).to_have_text("running")
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.id") == "cancel":
            break
    await page.keyboard.press("Space")
    await expect(page.locator("#run-status")).to_have_text("cancelled")


@pytest.mark.parametrize("width, height", [(360, 640), (800, 600)])
async def test_in_a_narrow_window_everything_is_within_reach(page: Page, server: EaselProcess, width: int, height: int) -> None:
    await page.set_viewport_size({"width": width, "height": height})
    await page.goto(link_of(server))
    await start(page, script({"say": "x" * 500}, {"call": "gsv__Echo", "args": {"value": "y" * 500}}))
    await expect(page.locator("#run-status")).to_have_text("completed")
    overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, f"{overflow} px wider than the window"
    for name in ("Run", "Cancel", "Sign out", "Use a tool"):
        box = await page.get_by_role("button", name=name, exact=True).bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


async def test_in_a_narrow_window_a_started_run_comes_into_view(page: Page, server: EaselProcess) -> None:
    await page.set_viewport_size({"width": 360, "height": 640})
    await page.goto(link_of(server))
    await start(page, script({"say": "Look here."}))
    await expect(page.locator("#run-status")).to_have_text("completed")
    await expect(page.locator("#run-status")).to_be_in_viewport()


async def test_the_api_page_shows_every_operation(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await page.get_by_role("link", name="API").click()
    await expect(page.get_by_role("heading", name="POST /api/runs", exact=True)).to_be_visible()
    described = await page.evaluate("fetch('/openapi.json').then((answer) => answer.json())")
    count = sum(len(methods) for methods in described["paths"].values())
    await expect(page.locator("section")).to_have_count(count)
    await expect(page.locator("#problem")).to_be_empty()
    assert "undefined" not in await page.locator("main").inner_text()
    assert "[object" not in await page.locator("main").inner_text()
