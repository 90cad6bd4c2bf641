"""The page of a canvas while its server crashes, restarts, is restored or is idle."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from easel.core.canvas.canvas import Change
from easel.core.canvas.events import CanvasEvents
from easel.host.canvases.log_retention import CanvasLogRetention
from easel.ids import OWNER, CanvasId
from tests.browser.canvas import (
    MINIMAL_PAGE,
    CanvasApi,
    canvas_frame,
    expect_idle,
    expect_saved,
    loaded_frame,
    open_canvas,
)
from tests.browser.wire import Wire
from tests.edges.http.live import LiveEasel
from tests.requirements import rule
from tests.support.principals import THE_OWNER
from tests.support.processes import Launcher

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AWAY = "The server cannot be reached. Reconnecting…"


async def started(launcher: Launcher, dead: EaselProcess | None = None) -> EaselProcess:
    server = launcher.again(dead) if dead else launcher.up()
    await asyncio.to_thread(server.wait_ready)
    return server


@rule("CV-46", "CV-50")
async def test_page_reconnects_after_a_crash_and_shows_missed_changes(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        with CanvasApi(server) as api:
            name = api.make(MINIMAL_PAGE)
            frame = await open_canvas(page, server, name)
            await page.evaluate("window.stays = true")
            await frame.get_by_text("Refresh Logs").click()
            await expect(frame.locator("pre")).to_have_text("journal of api")
            await expect_idle(frame.get_by_text("Refresh Logs"))
        server.kill()
        await expect(page.locator("#link")).to_have_text(AWAY)
        await frame.get_by_text(
            "Refresh Logs"
        ).click()  # an action is not kept for later: somebody would have forgotten it by then
        await expect(page.locator("#notes-list")).to_contain_text(
            "no connection to the server; nothing was run"
        )
        await page.locator("#notes summary").click()
        await page.get_by_role("button", name="Clear").click()
        await frame.locator("input").fill("typed while it was away")
        await frame.get_by_text(
            "Refresh Logs"
        ).click()  # nor is it while something that was typed waits for the server
        await expect(page.locator("#notes-list")).to_contain_text(
            "no connection to the server; nothing was run"
        )
        await expect(frame.get_by_text("Refresh Logs")).not_to_have_attribute("aria-busy", "true")
        server = await started(launcher, server)
        with CanvasApi(server) as api:
            api.patch(name, "/service", "back")
            await page.locator("#try-now").dispatch_event(
                "click"
            )  # it may have come back by itself, and the button be gone
            await expect(page.locator("#link")).to_have_text("connected")
            await expect(frame.locator("h1")).to_have_text("back")
            await api.until(lambda: api.state(name)["version"] == "typed while it was away", "what was typed")
            assert len(api.records(name)) == 1
            assert await page.evaluate("window.stays"), "without a reload"
            await expect_saved(frame)
            await page.reload()
            await expect(canvas_frame(page).locator("input")).to_have_value("typed while it was away")
            api.rpc("canvas.delete", canvasId=name)
            await expect(page.locator("#over")).to_have_text("This canvas was deleted.")
            await expect(page.locator("#stage iframe")).to_have_count(0)


@rule("CV-22", "CV-46")
@pytest.mark.parametrize("has_arrived", [True, False], ids=["it runs", "it has not arrived"])
async def test_outcome_of_an_approval_is_uncertain_until_the_server_reports_it(
    page: Page, tmp_path: Path, *, has_arrived: bool
) -> None:
    """The connection breaks before or after the approval arrives."""
    sleeps = {
        "kind": "tool.call",
        "tool": "gsv__Sleep",
        "args": {"ms": 3_000},
        "confirm": "always",
        "title": "Take a while",
    }
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        with CanvasApi(server) as api:
            name = api.make(None, {"toolPolicy": {"allow": ["gsv__Sleep"]}, "actions": {"nap": sleeps}})
            async with Wire(server.base_url) as wire:
                frame = await open_canvas(page, server, name, base_url=wire.base_url)

                async def break_off() -> None:
                    wire.take_down()
                    await expect(page.locator("#link")).to_have_text(AWAY)

                await frame.get_by_role("button", name="Take a while").click()
                await expect(page.locator("#consent-call")).to_contain_text("gsv__Sleep")
                await expect(page.locator("#consent-approve")).to_be_enabled()
                if has_arrived:
                    wire.hold_back()  # the answer must not arrive before the connection breaks
                else:
                    await break_off()
                await page.get_by_role("button", name="Approve").click()
                if has_arrived:
                    await api.until(
                        lambda: api.records(name)[0]["status"] in ("running", "completed"), "it runs"
                    )
                    await break_off()
                await expect(page.locator("#waiting")).to_contain_text(
                    "Take a while: the connection broke before the server responded"
                )
                await expect(page.locator("#notes")).to_be_hidden()
                wire.bring_back()
                await page.evaluate("dispatchEvent(new Event('focus'))")
                await expect(page.locator("#link")).to_have_text("connected")
                await expect(frame.locator("[data-outcome=nap]")).to_have_text("done")
                await expect(page.locator("#waiting")).to_be_hidden()
                await expect(page.locator("#notes")).to_be_hidden()
                assert [one["status"] for one in api.records(name)] == ["completed"], "once"


async def test_retried_call_on_a_closing_socket_uses_the_next_connection(page: Page, tmp_path: Path) -> None:
    """A closing socket accepts no request and has no close event yet."""
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        with CanvasApi(server) as api:
            await open_canvas(page, server, api.make(MINIMAL_PAGE))
            answer = """async () => {
                const { Gateway } = await import("/ui/canvas_gateway.js");
                const sockets = [];
                window.WebSocket = class {
                    static OPEN = 1;
                    readyState = 1;
                    constructor() { sockets.push(this); setTimeout(() => this.onopen()); }
                    close() {}
                    send(text) {
                        const payload = { by: sockets.indexOf(this) };
                        const answer = { type: "res", id: JSON.parse(text).id, ok: true, payload };
                        setTimeout(() => this.onmessage({ data: JSON.stringify(answer) }));
                    }
                };
                const gateway = new Gateway("test", { state() {}, async ready() {}, event() {} });
                gateway.open();
                await gateway.live();
                sockets[0].readyState = 2;
                return (await gateway.callWithRetry("tools.list", {})).by;
            }"""
            assert await page.evaluate(answer) == 1


@rule("RS-34")
async def test_page_with_an_expired_cursor_reads_the_canvas_again(page: Page, tmp_path: Path) -> None:
    """The events that it missed are deleted, and its cursor is older than the oldest event."""
    with (
        LiveEasel(tmp_path, with_worker=False, settings={"poll_seconds": 30.0}) as easel,
        CanvasApi(easel) as api,
    ):
        name = api.make(MINIMAL_PAGE)
        frame = await open_canvas(page, easel, name)
        await expect(frame.locator("h1")).to_have_text("api")
        services, canvases = easel.instances[0].services, easel.instances[0].opened.canvases

        async def forget() -> None:
            told = CanvasEvents(CanvasId(name), agent_id="main", event_id="evt_1")
            for n in range(3):  # past the services, which would notify subscribers
                state = {
                    **(await services.canvases.get(THE_OWNER, name)).canvas.state,
                    "service": f"missed {n}",
                }
                change = Change(events=[told.updated(n + 2, ["/service"])], state=state)
                await canvases.change(OWNER, CanvasId(name), lambda _, change=change: change)
            await CanvasLogRetention(canvases, -1).once()
            for viewer in list(services.canvas_tails._viewers):
                viewer.end()

        await asyncio.to_thread(easel.do, forget())
        await expect(frame.locator("h1")).to_have_text("missed 2")
        api.patch(name, "/service", "and on it goes")
        await expect(frame.locator("h1")).to_have_text("and on it goes")


async def test_assets_changed_during_an_outage_are_shown(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        with CanvasApi(server) as api:
            name = api.make(MINIMAL_PAGE)
            async with Wire(server.base_url) as wire:
                await open_canvas(page, server, name, base_url=wire.base_url)
                wire.take_down()
                await expect(page.locator("#link")).to_have_text(AWAY)
                api.put(name, "assets/index.html", "<!doctype html><h2 data-gsv-text=state.service></h2>")
                wire.bring_back()
                await page.evaluate("dispatchEvent(new Event('focus'))")
                await expect(canvas_frame(page).locator("h2")).to_have_text("api")


async def test_frame_that_failed_to_load_is_loaded_after_a_reconnect(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        with CanvasApi(server) as api:
            name = api.make(MINIMAL_PAGE)
            await page.route("**/gsv.js", lambda route: route.abort())
            await open_canvas(page, server, name)
            await expect(page.locator("#stage .left")).to_be_visible()
            server.kill()
            await expect(page.locator("#link")).to_have_text(AWAY)
            await page.unroute("**/gsv.js")
        await started(launcher, server)
        await page.evaluate("dispatchEvent(new Event('focus'))")
        await expect(canvas_frame(page).locator("h1")).to_have_text("api")
        await expect(page.locator("#stage .left")).to_have_count(0)


@rule("RS-34")
async def test_page_shows_the_state_of_a_restored_server(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        with CanvasApi(server) as api:
            name = api.make(MINIMAL_PAGE)
            await open_canvas(page, server, name)
        server.kill()
        await expect(page.locator("#link")).to_have_text(AWAY)
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        server = await started(launcher, server)
        await page.evaluate("dispatchEvent(new Event('focus'))")
        await expect(page.locator("#link")).to_have_text("connected")
        with CanvasApi(server) as api:
            for word in ("one", "two", "three"):
                api.patch(name, "/service", word)
        await expect(canvas_frame(page).locator("h1")).to_have_text("three")
        server.kill()
        await expect(page.locator("#link")).to_have_text(AWAY)
        shutil.rmtree(tmp_path / "data")
        shutil.move(tmp_path / "backup", tmp_path / "data")
        await started(launcher, server)
        await page.evaluate("dispatchEvent(new Event('focus'))")
        await expect(page.locator("#link")).to_have_text("connected")
        await expect(canvas_frame(page).locator("h1")).to_have_text("api")
        await expect(page.locator("#revision")).to_have_text("revision 1")


async def test_signed_out_user_returns_to_the_canvas_after_sign_in(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        with CanvasApi(server) as api:
            name = api.make(MINIMAL_PAGE)
        await open_canvas(page, server, name)
        await page.context.clear_cookies()
        server.kill()
        server = await started(launcher, server)
        await page.evaluate("dispatchEvent(new Event('focus'))")
        await expect(page.locator("#signed-out")).to_be_visible()
        await page.get_by_role("link", name="Sign in").click()
        await page.get_by_label("Token").fill(server.token)
        await page.keyboard.press("Enter")
        await expect(canvas_frame(page).locator("h1")).to_have_text("api")


async def test_idle_page_sends_no_requests(page: Page, tmp_path: Path) -> None:
    with Launcher(tmp_path) as launcher:
        server = await started(launcher)
        with CanvasApi(server) as api:
            name = api.make(MINIMAL_PAGE)
            async with Wire(server.base_url) as wire:
                await open_canvas(page, server, name, base_url=wire.base_url)
                await loaded_frame(page)
                await expect(page.locator("#views")).to_have_text(
                    "1 viewer"
                )  # the last that it hears of its own coming
                asked = len(wire.answers)
                socket = wire.to("/ws")[0]
                heard = len(socket.bytes)
                await asyncio.sleep(2)
                assert len(wire.answers) == asked, "no polling"
                assert len(socket.bytes) - heard < 200, "and no more on the one socket than a sign of life"
                assert len(wire.to("/ws")) == 1
                api.patch(name, "/service", "web")
                await expect(canvas_frame(page).locator("h1")).to_have_text("web")
                assert len(wire.answers) == asked
