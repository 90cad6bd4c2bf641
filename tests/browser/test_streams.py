"""The subscriptions of the home page on the network: three separate streams, each shared by all tabs."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, WebSocketRoute, expect

import easel
from easel.core.stream.envelope import EVENT_TYPES, Stream
from tests.browser.console import (
    COUNT_FOREVER,
    TIMEOUT_SECONDS,
    ApiClient,
    answer,
    check_ticks,
    click_example,
    expect_ended,
    expect_more_ticks,
    open_session,
    script,
    send_message,
    status,
    turn,
)
from tests.browser.wire import Wire
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPj/HwADBwIAMCbHYQAAAABJRU5ErkJggg=="
)
UI = Path(easel.__file__).parent / "ui"
WITHOUT_WORKER = "delete globalThis.SharedWorker"


@pytest_asyncio.fixture(loop_scope="session")
async def wire(server: EaselProcess) -> AsyncIterator[Wire]:
    async with Wire(server.base_url) as opened:
        yield opened


def new_canvas(server: EaselProcess) -> str:
    canvas = f"c-{secrets.token_hex(3)}"
    with ApiClient(server) as outside:
        outside.post("/api/rpc", {"method": "canvas.create", "params": {"canvasId": canvas}})
    return canvas


async def open_all_three(page: Page, server: EaselProcess, wire: Wire) -> tuple[str, str]:
    """Open a page with a chat, an active run and a canvas."""
    canvas = new_canvas(server)
    session = await open_session(page, server, base_url=wire.base_url)
    await page.goto(f"{wire.base_url}/#session={session}&canvas={canvas}")
    await send_message(page, script({"say": "Hold on."}, {"wait_ms": 60_000}))
    await expect(answer(page)).to_have_text("Hold on.")
    await expect(page.locator("#run-link")).to_have_text("live")
    await expect(page.locator("#canvas-link")).to_have_text("live")
    return session, canvas


@asynccontextmanager
async def another_tab(context: BrowserContext) -> AsyncIterator[Page]:
    page = await context.new_page()
    yield page
    await page.close()


async def until(is_so: Callable[[], bool]) -> None:
    """Poll a condition outside of the browser without blocking the proxy of this loop."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not is_so():  # noqa: ASYNC110 - a server cannot call us
            await asyncio.sleep(0.05)


async def come_back_to(page: Page) -> None:
    """Focus a tab. (A headless browser sends no focus event.)"""
    await page.bring_to_front()
    await page.evaluate("dispatchEvent(new Event('focus'))")


# --- three streams ------------------------------------------------------------------------------------------


@rule("CC-03", "CC-07", "CC-30", "CC-31")
async def test_page_subscribes_to_chat_run_and_canvas_at_the_same_time(
    page: Page, server: EaselProcess, wire: Wire
) -> None:
    session, canvas = await open_all_three(page, server, wire)
    assert [one.target for one in wire.to("/ws/chat/") if one.is_open] == [f"/ws/chat/{session}"]
    assert len([one for one in wire.to("/sse/run/") if one.is_open]) == 1
    assert [one.target for one in wire.to("/sse/canvas/") if one.is_open] == [f"/sse/canvas/{canvas}"]
    with ApiClient(server) as outside:
        taken = outside.post(f"/api/canvases/{canvas}/snapshots", content=DOT)
    await expect(page.locator("#snapshot img")).to_have_attribute("src", taken["uri"])
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled")
    write = {"call": "gsv__WhiteboardWrite", "args": {"key": "a", "value": 1}}
    await send_message(page, script({"think": "quietly"}, {"say": "Now"}, write, {"say": "done."}))
    await expect(answer(page)).to_have_text(["Now", "done."])
    await expect(page.locator("#whiteboard tbody tr")).to_have_count(1)

    for path, stream in (
        ("/ws/chat/", Stream.NARRATIVE),
        ("/sse/run/", Stream.STATE),
        ("/sse/canvas/", Stream.VISUALS),
    ):
        types = {event["type"] for one in wire.to(path) for event in one.events()}
        assert types, path
        assert {EVENT_TYPES[name].stream for name in types} == {stream}
    for one in (*wire.to("/ws/chat/"), *wire.to("/api/sessions/")):
        assert taken["artifact_id"].encode() not in one.bytes, "a snapshot is nowhere in the chat"


@case("E4")
async def test_reconnect_resumes_from_cursors_without_duplicates(
    page: Page, server: EaselProcess, wire: Wire
) -> None:
    canvas = new_canvas(server)
    session = await open_session(page, server, base_url=wire.base_url)
    await page.goto(f"{wire.base_url}/#session={session}&canvas={canvas}")
    write = {"call": "gsv__WhiteboardWrite", "args": {"key": "a", "value": 1}}
    await send_message(page, script(write, COUNT_FOREVER))
    await expect(answer(page)).to_contain_text("tick 3\n")
    await expect(page.locator("#whiteboard tbody tr")).to_contain_text("v1")
    await expect(page.locator("#canvas-link")).to_have_text("live")
    before = {
        path: next(one for one in wire.to(path) if one.is_open)
        for path in ("/ws/chat/", "/sse/run/", "/sse/canvas/")
    }
    wire.cut()
    await until(lambda: all(wire.to(path)[-1] is not broken for path, broken in before.items()))
    await expect_more_ticks(page)
    with ApiClient(server) as outside:
        [run] = outside.get(f"/api/runs?session_id={session}")["runs"]
        outside.post(
            f"/api/runs/{run['run_id']}/whiteboard", {"key": "a", "value": 2, "source_node_id": "tester"}
        )
    await expect(page.locator("#whiteboard tbody tr")).to_contain_text("v2")
    await expect(page.locator("#canvas-link")).to_have_text("live")
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled")
    check_ticks(await answer(page).text_content())
    for path, broken in before.items():
        mended = wire.to(path)[-1]
        cursor = int(parse_qs(urlsplit(mended.target).query)["last_event_id"][0])
        assert cursor in broken.positions(), path
        assert all(event["seq"] > cursor for event in mended.events()), path


# --- what is internal ---------------------------------------------------------------------------------------


def thinking(thought: str) -> str:
    """Return a message that makes the model think this text; its first letter is escaped, so the message
    lacks it.
    """
    return json.dumps(
        {"script": [{"think": "?", "visibility": "public"}, {"say": "I have thought."}]}
    ).replace('"?"', f'"\\u{ord(thought[0]):04x}{thought[1:]}"')


@rule("CC-12")
@case("P3")
async def test_thoughts_are_sent_only_with_debug(page: Page, server: EaselProcess, wire: Wire) -> None:
    thought, later = f"Unspoken-{secrets.token_hex(4)}", f"Quiet-{secrets.token_hex(4)}"
    session = await open_session(page, server, base_url=wire.base_url)
    await send_message(page, thinking(thought))
    await expect_ended(page)
    await page.reload()
    await expect(answer(page)).to_have_text("I have thought.")
    assert thought not in await page.content()
    for one in wire.answers:
        assert thought.encode() not in one.bytes, f"{one.target} brought a thought"
        assert b'"visibility":"internal"' not in one.bytes

    async with another_tab(page.context) as other:
        await other.goto(f"{wire.base_url}/#session={session}")
        await expect(answer(other)).to_have_text("I have thought.")
        await come_back_to(page)
        await page.get_by_role("switch", name="Debug").check()
        shown = turn(page).locator(".thought")
        await expect(shown).to_contain_text("internal")
        await expect(shown.locator(".text")).to_have_text(thought)
        await expect(answer(page)).to_have_text("I have thought.")
        bringers = [one.target for one in wire.answers if thought.encode() in one.bytes]
        assert bringers == [f"/ws/chat/{session}?debug=1"]
        await come_back_to(other)
        await send_message(other, thinking(later))
        await expect(turn(page).locator(".thought")).to_contain_text(later)
        await expect(turn(other, 1)).to_have_attribute("data-state", "completed")
        content = await other.content()
        assert thought not in content, "the switch is one tab's own"
        assert later not in content

    await page.reload()
    await expect(turn(page).locator(".thought")).to_contain_text(later)
    await page.get_by_role("switch", name="Debug").uncheck()
    await expect(page.locator(".thought")).to_have_count(0)
    await expect(answer(page)).to_have_text("I have thought.")
    content = await page.content()
    assert thought not in content
    assert later not in content


@rule("CC-12")
async def test_system_content_is_never_shown(page: Page, server: EaselProcess) -> None:
    def envelope(seq: int, visibility: str) -> str:
        data = {
            "message_id": "msg_01m7f7efgdmygf8zqjxpzn759a",
            "text": f"{visibility} words",
            "visibility": visibility,
        }
        return json.dumps(
            {"seq": seq, "type": "message.delta", "ts": "2026-01-01T00:00:00.000Z", "data": data}
        )

    def meddle(route: WebSocketRoute) -> None:
        route.connect_to_server()
        for number, visibility in enumerate(("system", "internal", "unheard-of", "public"), 1):
            route.send(envelope(number, visibility))

    await page.add_init_script(WITHOUT_WORKER)  # only a page's own sockets can be meddled with
    await page.route_web_socket("**/ws/chat/**", meddle)
    await open_session(page, server)
    await expect(answer(page)).to_have_text("public words")
    await page.get_by_role("switch", name="Debug").check()
    await expect(answer(page)).to_have_text("internal wordspublic words")
    content = await page.content()
    assert "system words" not in content
    assert "unheard-of words" not in content


# --- many tabs ----------------------------------------------------------------------------------------------


@rule("RS-55", "CC-30")
async def test_tabs_share_one_connection_per_stream(page: Page, server: EaselProcess, wire: Wire) -> None:
    session, _ = await open_all_three(page, server, wire)
    with ApiClient(server) as outside:
        before = {"session": 1, "run": 1, "canvas": 1}
        await until(lambda: outside.watched() == before)  # those of other tests' windows are gone
        async with another_tab(page.context) as elsewhere:
            await open_session(elsewhere, server, base_url=wire.base_url)
            await until(lambda: outside.watched() == {**before, "session": 2})
        await until(lambda: outside.watched() == before)  # what only the closed tab watched, nobody does
        async with another_tab(page.context) as second, another_tab(page.context) as third:
            for other in (second, third):
                await other.goto(page.url)
                await expect(answer(other)).to_have_text("Hold on.")
                await expect(status(other)).to_have_text("running")
                await expect(other.locator("#canvas-link")).to_have_text("live")
            assert outside.watched() == before
            for path in ("/ws/chat/", "/sse/run/", "/sse/canvas/"):
                assert len([one for one in wire.to(path) if one.is_open]) == 1, path
            await send_message(third, script({"say": "From the third."}))
            await come_back_to(page)
            await page.get_by_role("button", name="Stop", exact=True).click()
            for one in (page, second, third):
                await expect(answer(one)).to_have_text("From the third.")
                await expect_ended(one, "cancelled", 0)
            await page.close()
            await come_back_to(second)
            await send_message(second, script({"say": "The first has gone."}))
            await expect(answer(third)).to_have_text("The first has gone.")
            assert len(wire.to(f"/ws/chat/{session}")) == 1
        await until(lambda: not any(outside.watched().values()))


@rule("RS-55")
async def test_many_tabs_leave_connections_for_requests(page: Page, server: EaselProcess, wire: Wire) -> None:
    pages: list[Page] = []
    for number in range(3):
        one = await page.context.new_page() if number else page
        pages.append(one)
        canvas = new_canvas(server)
        session = await open_session(one, server, base_url=wire.base_url)
        await one.goto(f"{wire.base_url}/#session={session}&canvas={canvas}")
        await click_example(one, "Wait a minute")
        await expect(status(one)).to_have_text("running")
    # Of six that are wanted: a browser has no more connections to a server than six.
    await until(lambda: len([one for one in wire.to("/sse/") if one.is_open]) == 4)
    await expect(page.locator("#run-link")).to_contain_text("paused")
    await come_back_to(page)
    await expect(page.locator("#run-link")).to_have_text("live")
    for one in pages:  # none of them is stuck
        await come_back_to(one)
        await one.get_by_role("button", name="Stop", exact=True).click()
        await expect_ended(one, "cancelled")
        await expect(status(one)).to_have_text("cancelled")
        await expect(one.locator("#session-list [aria-current=true] .running")).to_have_count(0)


@rule("CC-30")
async def test_page_works_without_a_shared_worker(page: Page, server: EaselProcess, wire: Wire) -> None:
    await page.add_init_script(WITHOUT_WORKER)
    canvas = new_canvas(server)
    session = await open_session(page, server, base_url=wire.base_url)
    await page.goto(f"{wire.base_url}/#session={session}&canvas={canvas}")
    await click_example(page, "Use some tools")
    await expect_ended(page)
    await expect(page.locator("#whiteboard tbody tr")).to_have_count(1)
    await expect(page.locator("#canvas-link")).to_have_text("live")
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    await page.reload()
    await expect(answer(page).last).to_have_text("Done: the time is on both boards of the run.")
    assert len(sockets) == 1, "this time it is the page's own"


@rule("RX-34")
@pytest.mark.parametrize("reader", ["EventSource", "EventLink"])
async def test_reader_resumes_after_a_cursor_without_an_event(page: Page, reader: str) -> None:
    """A heartbeat with an `id` and no data moves the cursor and makes no event."""
    cursors: list[str] = []

    async def serve(reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        head = (await reading.readuntil(b"\r\n\r\n")).decode()
        kind, body = "text/html", ""
        if head.startswith("GET /stream"):
            found = re.search(r"(?i)(?:last_event_id=|last-event-id: )(\d+)", head)
            cursors.append(found[1] if found else "")
            kind, body = "text/event-stream", "retry: 1\n\nid: 7\n: still here\n\n"
        elif head.startswith("GET /ui/"):
            kind, body = "text/javascript", (UI / head.split()[1].removeprefix("/ui/")).read_text()
        writing.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}".encode())
        await writing.drain()
        writing.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        await page.goto(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/")
        await page.evaluate(
            """async (reader) => {
              window.seen = [];
              if (reader === "EventSource") {
                window.source = new EventSource("/stream");
                source.onmessage = () => seen.push("event");
              } else {
                const { EventLink } = await import("/ui/links.js");
                new EventLink("/stream", (message) => seen.push(message.type)).open();
              }
            }""",
            reader,
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(cursors) < 2:
                await page.wait_for_timeout(20)
        seen = await page.evaluate("seen")
        await page.goto("about:blank")
    assert cursors[:2] == ["", "7"]
    assert "event" not in seen
