"""Sign-in and sign-out in a browser: the form, the cookie, and other sites."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.canvas import CanvasApi, loaded_frame, open_canvas
from tests.browser.conftest import link_of
from tests.browser.console import TIMEOUT_SECONDS, ApiClient
from tests.requirements import case
from tests.support.waiting import wait_for_sync

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_sign_in_form_refuses_a_wrong_token(page: Page, server: EaselProcess) -> None:
    await page.goto(server.base_url)
    token = page.get_by_label("Token")
    await expect(token).to_be_focused()
    await token.fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    await page.get_by_label("Token").fill(server.token)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    assert server.token not in page.url
    assert server.token not in await page.content()


async def test_sign_out_ends_access(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.goto(server.base_url)
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("heading", name="Sessions")).to_have_count(0)


async def test_script_cannot_read_the_cookie(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    assert await page.evaluate("document.cookie") == ""
    (cookie,) = await page.context.cookies()
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Lax")
    assert await page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})") == "{}"


async def test_wrong_link_shows_the_form_without_the_token(page: Page, server: EaselProcess) -> None:
    await page.goto(f"{server.base_url}/?token=%3Cscript%3Ealert(1)%3C/script%3E")
    await expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    assert "alert(1)" not in await page.content()


async def test_page_with_an_expired_cookie_asks_to_sign_in(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await expect(page.locator("#link")).to_have_text("connected")
    await page.context.clear_cookies()
    await page.get_by_role("button", name="New", exact=True).click()
    await expect(page.locator("#signed-out")).to_contain_text("Sign in")
    await page.locator("#signed-out").get_by_role("link").click()
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_sign_out_in_one_tab_closes_the_streams_of_all(page: Page, server: EaselProcess) -> None:
    await page.goto(link_of(server))
    await expect(page.locator("#link")).to_have_text("connected")
    other = await page.context.new_page()
    await other.goto(server.base_url)
    await expect(other.locator("#link")).to_have_text("connected")
    await page.bring_to_front()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await expect(other.locator("#signed-out")).to_be_visible()
    await expect(other.locator("#link")).to_have_text("You are signed out.")
    with ApiClient(server) as outside:
        await asyncio.to_thread(
            wait_for_sync,
            lambda: not any(outside.watched().values()),
            within=TIMEOUT_SECONDS,
            what="the server has no stream of theirs",
        )


@case("O9")
async def test_sign_out_closes_canvases_and_views_of_all_tabs(page: Page, server: EaselProcess) -> None:
    with CanvasApi(server) as api:
        name = api.make()
    canvas = await page.context.new_page()
    await open_canvas(canvas, server, name)
    view = (await loaded_frame(canvas)).url
    await page.goto(server.base_url)
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await expect(canvas.locator("#signed-out")).to_be_visible()
    await expect(canvas.locator("#stage iframe")).to_have_count(
        0
    )  # nothing of it is left for whoever comes next
    assert (await page.request.get(view)).status == 404


@case("O7", "U8")
async def test_other_site_cannot_frame_or_use_the_sign_in(browser: Browser, server: EaselProcess) -> None:
    """A page of another origin (another port) in a browser that is signed in here."""
    context = await browser.new_context()
    here = await context.new_page()
    await here.goto(link_of(server))
    other = server.base_url.replace("127.0.0.1", "localhost")
    there = await context.new_page()
    await there.route(
        "**/elsewhere",
        lambda route: route.fulfill(body="<!doctype html><title>elsewhere</title>", content_type="text/html"),
    )
    await there.goto(f"{other}/elsewhere")
    all_runs = "fetch('/api/runs').then((answer) => answer.json())"
    before = await here.evaluate(all_runs)
    outcome = await there.evaluate(
        """async (target) => {
            const outcomes = [];
            for (const how of [{}, {method: "POST", body: '{"session_id":"s","message":"noop"}'}]) {
                for (const mode of ["cors", "no-cors"]) {
                    try {
                        const options = {...how, mode, credentials: "include"};
                        const answer = await fetch(`${target}/api/runs`, options);
                        outcomes.push(answer.type === "opaque" ? "opaque" : answer.status);
                    } catch (problem) { outcomes.push("refused"); }
                }
            }
            return outcomes;
        }""",
        server.base_url,
    )
    assert set(outcome) <= {"refused", "opaque"}, "nothing of an answer can be read"
    assert await here.evaluate(all_runs) == before, "and nothing was started"
    await there.evaluate(
        "(target) => { const frame = document.createElement('iframe'); frame.src = target; "
        "document.body.append(frame); }",
        server.base_url,
    )
    await asyncio.to_thread(
        wait_for_sync,
        lambda: there.frames[-1].url.startswith("chrome-error:"),
        within=TIMEOUT_SECONDS,
        what="the frame shows nothing of it",
    )
    await expect(there.frame_locator("iframe").get_by_text("Sessions")).to_have_count(0)
    await context.close()


async def test_invitation_is_accepted_by_its_link_which_the_page_forgets(
    page: Page, server: EaselProcess
) -> None:
    with ApiClient(server) as outside:
        invited = outside.post("/api/people", {"name": "invited-person"})["invitation_url"]
    code = invited.partition("#")[2]
    seen: list[str] = []
    page.on("request", lambda request: seen.append(f"{request.url} {request.headers}"))
    await page.goto(invited.replace("http://localhost", "http://127.0.0.1"))
    await expect(page.get_by_label("Name", exact=True)).to_have_value("invited-person")
    await expect(page.get_by_label("Code of the invitation")).to_be_hidden()
    assert code not in page.url
    await page.get_by_label("Your name as others see it").fill("Ada Lovelace")
    await page.get_by_label("Password").fill("password1234")
    await page.get_by_role("button", name="Set the password").click()
    await expect(page.get_by_role("alert")).to_contain_text("guessed first")
    await page.get_by_label("Password").fill("small otters swim")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    assert code not in str(seen)
    await page.context.clear_cookies()
    await page.goto(server.base_url)
    await page.get_by_label("Name").fill("invited-person")
    await page.get_by_label("Password").fill("small otters swim")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
