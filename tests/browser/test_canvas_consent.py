"""The consent dialog and the accept panel: each has its own pause, and only shown content is decided on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, WebSocketRoute, expect

from easel.core.principal import PrincipalKind
from easel.host.canvases.drafts import Draft
from tests.browser.canvas import (
    COCKPIT_SPEC,
    MINIMAL_PAGE,
    CanvasApi,
    evaluate_promise,
    loaded_frame,
    open_canvas,
    read_to_the_end,
)
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.async_api import Frame

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PAUSE_MS = 700  # of canvas_consent.js
AGENT = replace(THE_OWNER, name="agent", kind=PrincipalKind.AGENT, user_id=None)
ECHO = {"kind": "tool.call", "tool": "gsv__Echo"}
TWO: dict[str, Any] = {
    **{name: part for name, part in COCKPIT_SPEC.items() if name != "bindings"},
    "actions": {
        "first": {**ECHO, "args": {"value": "the first"}, "confirm": "always"},
        "second": {**ECHO, "args": {"value": "the second"}, "confirm": "always", "saveAs": "said"},
    },
}


@pytest.fixture(scope="module")
def easel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEasel]:
    with LiveEasel(tmp_path_factory.mktemp("easel"), with_worker=False) as live:
        yield live


@pytest.fixture
def api(easel: LiveEasel) -> Iterator[CanvasApi]:
    with CanvasApi(easel) as at:
        yield at


# --- consent ------------------------------------------------------------------------------------------------


async def no_time_passes(page: Page) -> None:
    """Stop the clock of the page, so that a slow machine does not end a pause. Timers continue."""
    await page.evaluate("(() => { const now = performance.now(); performance.now = () => now })()")


async def both_asked(page: Page, easel: LiveEasel, api: CanvasApi) -> tuple[str, Frame]:
    """Request two actions: the dialog shows the first, and the second is queued."""
    name = api.make(MINIMAL_PAGE, TWO)
    await open_canvas(page, easel, name)
    frame = await loaded_frame(page)
    await frame.evaluate("void (window.first = gsvCanvas.runAction('first'))")
    await expect(page.locator("#consent-call")).to_contain_text("the first")
    await frame.evaluate("void (window.second = gsvCanvas.runAction('second'))")
    await api.until(lambda: len(api.records(name)) == 2, "the second question")
    await expect(page.locator("#waiting")).to_be_hidden()
    return name, frame


@rule("CV-05", "CV-22")
@case("X6")
async def test_confirmation_of_another_user_shows_the_complete_call(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    """The event has only a marker for a long value; the dialog shows the value."""
    long = "echo harmless\n" * 300 + "rm -rf everything"
    name = api.make(
        MINIMAL_PAGE,
        {**TWO, "actions": {"write": {**ECHO, "args": {"value": "{{input.text}}"}, "confirm": "always"}}},
    )
    await open_canvas(page, easel, name)
    api.rpc("canvas.action", canvasId=name, actionId="write", input={"text": long})
    await page.get_by_role("button", name="Review").click()
    call = page.locator("#consent-call")
    await expect(call).to_contain_text("rm -rf everything")
    await expect(call).to_contain_text(f"301 lines, {len(long)} characters: scroll to see all of it.")
    await expect(call).not_to_contain_text("sha256")
    await page.locator("#consent-refuse").click()
    await expect(page.locator("#consent")).to_be_hidden()
    await expect(page.locator("#waiting")).to_be_hidden()


HIDDEN_TAIL = "echo harmless\n" * 80 + "echo HIDDEN-TAIL-RAN"


@rule("RS-64", "CV-22")
async def test_one_long_value_can_be_approved_only_after_its_end_was_visible(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    await page.set_viewport_size({"width": 1280, "height": 800})
    write = {**ECHO, "args": {"value": HIDDEN_TAIL}, "confirm": "always", "timeoutMs": 60_000}
    name = api.make(MINIMAL_PAGE, {**TWO, "actions": {"write": write}})
    await open_canvas(page, easel, name)
    await (await loaded_frame(page)).evaluate("void gsvCanvas.runAction('write')")
    await expect(page.locator("#consent-call")).to_contain_text("HIDDEN-TAIL-RAN")
    await page.evaluate("(ms) => new Promise((resolve) => setTimeout(resolve, ms))", PAUSE_MS + 300)
    await expect(page.locator("#consent-approve")).to_be_disabled()
    await expect(page.locator("#consent-more")).to_be_in_viewport(ratio=1)
    hidden = await page.evaluate(
        "[...document.querySelectorAll('#consent pre')].map((one) => one.scrollHeight - one.clientHeight)"
    )
    assert max(hidden) <= 1, "nothing is hidden inside a value"
    below = await page.evaluate(
        """[...document.querySelectorAll('#consent dd')].map((value) => (
          value.getBoundingClientRect().bottom - value.firstChild.getBoundingClientRect().bottom
        ))"""
    )
    assert max(below) < 15, "there is no empty line below a value"
    await page.evaluate("document.getElementById('consent').scrollTo(0, 300)")
    await expect(page.locator("#consent-approve")).to_be_disabled()
    await read_to_the_end(page, "consent", "consent-approve")
    await expect(page.locator("#consent-more")).to_be_hidden()


@rule("RS-64")
async def test_end_of_a_value_behind_the_buttons_is_not_visible(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    """On a phone the hint needs a line of its own, so that the buttons cover more than without it."""
    await page.set_viewport_size({"width": 390, "height": 700})
    write = {**ECHO, "args": {"value": HIDDEN_TAIL}, "confirm": "always"}
    name = api.make(MINIMAL_PAGE, {**TWO, "actions": {"write": write}})
    await open_canvas(page, easel, name)
    await (await loaded_frame(page)).evaluate("void gsvCanvas.runAction('write')")
    await expect(page.locator("#consent-call")).to_contain_text("HIDDEN-TAIL-RAN")
    await page.evaluate("(ms) => new Promise((resolve) => setTimeout(resolve, ms))", PAUSE_MS + 300)
    await page.evaluate(
        """async () => {
          const topOf = (one) => one.getBoundingClientRect().top;
          const [dialog, bar] = ["consent", "consent-bar"].map((id) => document.getElementById(id));
          const last = [...dialog.querySelectorAll(".value-end")].at(-1);
          dialog.scrollBy(0, topOf(last) - topOf(bar) - 20); // 20 px behind the upper edge of the bar
          await new Promise((resolve) => setTimeout(resolve, 300));
        }"""
    )
    await expect(page.locator("#consent-approve")).to_be_disabled()
    await read_to_the_end(page, "consent", "consent-approve")
    await page.locator("#consent-refuse").click()


@rule("RS-64")
async def test_dialog_names_the_canvas_its_author_the_machine_and_the_danger(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    name = api.make(MINIMAL_PAGE, {**TWO, "toolPolicy": {"allow": ["local__Bash", "gsv__Echo"]}})
    spec = {
        **TWO,
        "toolPolicy": {"allow": ["local__Write", "gsv__Echo"]},
        "actions": {
            "write": {"kind": "tool.call", "tool": "local__Write", "args": {"path": "a", "content": "b"}},
            "first": TWO["actions"]["first"],
        },
    }
    api.rpc("canvas.patch", canvasId=name, spec=spec, title="Deploy cockpit")
    await open_canvas(page, easel, name)
    api.rpc("canvas.action", canvasId=name, actionId="write")
    await page.get_by_role("button", name="Review").click()
    call = page.locator("#consent-call")
    await expect(call).to_contain_text(f"Deploy cockpit ({name})")
    await expect(call).to_contain_text("a person (owner)")
    await expect(call).to_contain_text("this server, in the folder of the session")
    await expect(page.locator("#consent-danger")).to_be_visible()
    await page.locator("#consent-refuse").click()
    await expect(page.locator("#consent")).to_be_hidden()


@rule("RS-64")
async def test_accept_panel_shows_the_command_of_each_action_that_will_not_ask(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    name = new_session()
    harmless = {
        f"a{number}": {**ECHO, "args": {"value": "x\n" * 20}, "confirm": "never"} for number in range(8)
    }
    tidy = {**ECHO, "args": {"command": "rm -rf /workspace/*"}, "confirm": "never", "title": "Tidy"}
    write(easel, name, {**WRITTEN, "actions": {**harmless, "tidy": tidy}, "refresh": []})
    await open_canvas(page, easel, name)
    panel = page.locator("#accept-details")
    await expect(panel).to_contain_text("Tidy will not ask")
    await expect(panel).to_contain_text("rm -rf /workspace/*")
    await page.evaluate("(ms) => new Promise((resolve) => setTimeout(resolve, ms))", PAUSE_MS + 300)
    await expect(page.locator("#accept-now")).to_be_disabled()
    await expect(page.locator("#accept-more")).to_be_in_viewport(ratio=1)
    await read_to_the_end(page)
    await expect(page.locator("#accept-more")).to_be_hidden()
    await page.get_by_role("button", name="Accept it").click()
    await expect(page.locator("#accept")).to_be_hidden()
    assert api.rpc("canvas.get", canvasId=name)["accepted"] is True


@rule("CV-22")
async def test_dialog_on_a_phone_starts_at_the_top_and_keeps_its_buttons_visible(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    await page.set_viewport_size({"width": 375, "height": 600})
    long = {f"part{number}": "echo word\n" * 20 for number in range(4)}
    name = api.make(
        MINIMAL_PAGE,
        {
            **TWO,
            "actions": {
                "write": {**ECHO, "args": {"value": long}, "confirm": "always", "title": "Write it all"}
            },
        },
    )
    await open_canvas(page, easel, name)
    await (await loaded_frame(page)).evaluate("void gsvCanvas.runAction('write')")
    await expect(page.locator("#consent-title")).to_be_in_viewport(ratio=1)
    for answer in ("Refuse", "Approve"):
        await expect(page.get_by_role("button", name=answer)).to_be_in_viewport(ratio=1)
    await expect(page.locator("#consent-refuse")).to_be_focused()
    assert await page.evaluate("document.getElementById('consent').scrollTop") == 0
    # The pause is over, and all of it is not seen. (The page's own timers keep their order, however late they
    # are.)
    await page.evaluate("(ms) => new Promise((resolve) => setTimeout(resolve, ms))", PAUSE_MS + 300)
    await expect(page.locator("#consent-more")).to_be_in_viewport(ratio=1)
    await expect(page.locator("#consent-approve")).to_be_disabled()
    await read_to_the_end(page, "consent", "consent-approve")
    await expect(page.locator("#consent-more")).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(page.locator("#consent")).to_be_hidden()


@rule("CV-05")
async def test_each_dialog_has_its_own_pause(page: Page, easel: LiveEasel, api: CanvasApi) -> None:
    """The time that a person looked at one question is no time that they looked at the next.

    All of it is seen, and the second question put off, inside of the page: its timers keep their order
    however late they are.
    """
    await page.add_init_script("""
        window.enabled = []; window.shown = [];
        addEventListener("DOMContentLoaded", () => {
          const approve = document.getElementById("consent-approve");
          const call = document.getElementById("consent-call");
          if (!approve) return; // the page in the frame
          let shownAt = 0, shows = 0;
          const dialog = document.getElementById("consent"), show = dialog.showModal;
          dialog.showModal = () => { // before its pause begins
            shownAt = performance.now();
            // A press at the last moment of one question's pause: the next question is shown, and that pause
            // must not end for it.
            const cancel = () => { dialog.dispatchEvent(new Event("cancel", {cancelable: true})) };
            if (++shows === 2) setTimeout(cancel, 600);
            show.call(dialog);
          };
          new MutationObserver(() => shown.push(approve.disabled)).observe(call, {childList: true});
          new MutationObserver(() => {
            if (!approve.disabled) enabled.push([call.textContent, performance.now() - shownAt]);
          }).observe(approve, {attributes: true, attributeFilter: ["disabled"]});
        })""")
    await both_asked(page, easel, api)
    approve = page.locator("#consent-approve")
    await expect(approve).to_be_enabled()
    await approve.click()
    await page.get_by_role("button", name="Review").click()
    await expect(page.locator("#consent-call")).to_contain_text("the second")
    await expect(approve).to_be_enabled()
    assert await page.evaluate("shown") == [True, True, True], "whatever is shown cannot be approved yet"
    waits = await page.evaluate("enabled")
    assert [how for how in waits if how[1] < 690] == []
    assert len(waits) == 2, "one for each question that was looked at long enough"


@rule("CV-05")
async def test_no_queued_dialog_opens_after_a_refusal(page: Page, easel: LiveEasel, api: CanvasApi) -> None:
    name, frame = await both_asked(page, easel, api)
    shows = """() => {
        window.shows = 0;
        const dialog = document.getElementById("consent"), show = dialog.showModal;
        dialog.showModal = function () { window.shows += 1; show.call(dialog) };
      }"""
    await page.evaluate(shows)
    await no_time_passes(page)
    await page.get_by_role("button", name="Refuse").click()
    assert (await frame.evaluate("first"))["status"] == "refused"
    assert (await frame.evaluate("second"))["status"] == "needs_confirmation", "its page is not left waiting"
    await expect(page.locator("#waiting")).to_contain_text("second waits for your consent")
    assert (await frame.evaluate("gsvCanvas.runAction('first')"))["status"] == "needs_confirmation"
    assert await page.evaluate("shows") == 0
    await page.get_by_role(
        "button", name="Review"
    ).first.click()  # whoever wants to see it does not have to wait
    await expect(page.locator("#consent-call")).to_contain_text("the second")
    await page.get_by_role("button", name="Approve").click()
    await api.until(lambda: api.state(name).get("said"), "the second action")


@rule("CV-05")
async def test_question_that_is_read_during_a_refusal_opens_no_dialog(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    """The complete call of the second question arrives after the first dialog was closed."""
    requests: list[dict[str, Any]] = []
    held: list[str | bytes] = []
    sockets: list[WebSocketRoute] = []

    def hold_the_second_read(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        sockets.append(socket)

        def send(message: str | bytes) -> None:
            requests.append(json.loads(message))
            server.send(message)

        def receive(message: str | bytes) -> None:
            actions = [at for at, one in enumerate(requests) if one.get("method") == "canvas.action"]
            after = requests[actions[1] :] if len(actions) > 1 else []
            reads = [one["id"] for one in after if one.get("method") == "canvas.confirmations"]
            is_read = json.loads(message).get("id") in reads
            (held.append if is_read else socket.send)(message)

        socket.on_message(send)
        server.on_message(receive)

    await page.route_web_socket("**/ws", hold_the_second_read)
    name, frame = await both_asked(page, easel, api)
    await api.until(lambda: held, "the second question is read")
    await no_time_passes(page)
    await page.get_by_role("button", name="Refuse").click()
    assert (await frame.evaluate("first"))["status"] == "refused"
    sockets[-1].send(held.pop())
    assert (await evaluate_promise(frame, "second"))["status"] == "needs_confirmation"
    await expect(page.locator("#consent")).to_be_hidden()
    await expect(page.locator("#waiting")).to_contain_text("you had just closed another one")
    assert [one["status"] for one in api.records(name)].count("refused") == 1


@rule("CV-05", "CV-22")
async def test_all_pending_confirmations_are_refused_with_one_click(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    """A page can fill the limit of pending confirmations of its canvas."""
    name = api.make(MINIMAL_PAGE, TWO)
    await open_canvas(page, easel, name)
    for _ in range(20):
        api.rpc("canvas.action", canvasId=name, actionId="first")
    await expect(page.locator("#waiting")).to_contain_text("… and 15 more.")
    await page.get_by_role("button", name="Refuse all 20").click()
    await expect(page.locator("#waiting")).to_be_hidden()
    assert {one["status"] for one in api.records(name)} == {"refused"}
    frame = await loaded_frame(page)
    await frame.evaluate("void gsvCanvas.runAction('second')")
    await expect(page.locator("#consent-call")).to_contain_text("the second")


@rule("CV-05")
async def test_dialog_closed_by_the_browser_leaves_the_confirmation_pending(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    """After one Escape a browser may close the next dialog without a cancel event."""
    name, frame = await both_asked(page, easel, api)
    await page.evaluate("document.getElementById('consent').close()")
    assert (await frame.evaluate("first"))["status"] == "needs_confirmation"
    await expect(page.locator("#waiting")).to_contain_text("first waits for your consent")
    await page.get_by_role("button", name="Review").last.click()
    await page.get_by_role("button", name="Refuse").click()
    await api.until(lambda: "refused" in [one["status"] for one in api.records(name)], "the refusal")


@rule("CV-05", "CV-22")
async def test_focus_returns_to_the_page_after_a_decision_by_keyboard(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    name = api.make("<!doctype html><button>Other</button><button data-gsv-action=first>First</button>", TWO)
    frame = await open_canvas(page, easel, name)
    button, why = frame.get_by_role("button", name="First"), page.locator("#consent-why")
    await button.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#consent-refuse")).to_be_focused()
    await expect(why).to_have_text(
        "You clicked or typed here a moment ago, and the page requests this. It needs your consent."
    )
    await no_time_passes(page)
    await page.keyboard.press("Escape")
    await expect(page.locator("#consent")).to_be_hidden()
    await expect(page.locator("#stage iframe")).to_be_focused()
    await expect(button).to_be_focused()
    await page.keyboard.press("Enter")  # so soon after an Escape it is not asked, and the line says why
    await expect(page.locator("#waiting")).to_contain_text("you had just closed another one")
    await expect(page.locator("#announcements")).to_contain_text("first waits for your consent.")
    look = page.get_by_role("button", name="Review")
    await look.first.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#consent-refuse")).to_be_focused()
    await expect(why).to_contain_text("owner requested this at ")
    await page.keyboard.press("Enter")
    await expect(look).to_have_count(1)
    await expect(look).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#consent-refuse")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#waiting")).to_be_hidden()
    await expect(page.locator("#stage iframe")).to_be_focused()
    await api.until(lambda: {one["status"] for one in api.records(name)} == {"refused"}, "both refusals")


@rule("CV-05")
async def test_dialog_names_a_request_without_user_activation(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    """The browser reports user activation, not the page. (All input of a test counts as activation.)"""
    await page.add_init_script(
        "Object.defineProperty(navigator, 'userActivation', {value: {isActive: false}})"
    )
    # A page can be ready before its shell is connected: then the request is repeated.
    asks = (
        "<!doctype html><script>const ask = () => gsvCanvas.runAction('first').catch((problem) => {"
        "if (/connection/.test(problem.message)) setTimeout(ask, 100) });"
        "gsvCanvas.subscribe(() => { window.asked ??= ask() })</script>"
    )
    await open_canvas(page, easel, api.make(asks, TWO))
    await expect(page.locator("#consent-why")).to_have_text(
        "The page of this canvas requests this without a click or key press of yours."
    )
    await page.get_by_role("button", name="Refuse").click()


# --- accepting what an agent wrote --------------------------------------------------------------------------

WRITTEN: dict[str, Any] = {
    "version": 1,
    "toolPolicy": {"allow": ["gsv__Echo", "gsv__Clock"], "connect": ["https://example.org"]},
    "state": {"n": 0},
    "actions": {
        "tell": {"kind": "session.send", "message": "hello"},
        "look": {"kind": "tool.call", "tool": "gsv__Clock", "confirm": "never"},
    },
    "refresh": [
        {"id": "a", "everyMs": 60_000, "action": "look"},
        {"id": "b", "everyMs": 5_000, "action": "look", "enabled": False},
    ],
}


def write(easel: LiveEasel, name: str, spec: dict[str, Any]) -> int:
    """Write the canvas as an agent does. Returns the revision."""
    draft = Draft(canvas_id=name, spec=spec, owner_session_key="agent:main:author")
    return easel.do(easel.instances[0].services.canvases.upsert(AGENT, draft)).canvas.revision


def accepts_sent(page: Page) -> list[int]:
    """Return a list that receives the revision of every `canvas.accept` of this page."""
    sent: list[int] = []

    def hear(payload: str | bytes) -> None:
        if '"canvas.accept"' in str(payload):
            sent.append(json.loads(payload)["params"]["revision"])

    page.on("websocket", lambda socket: socket.on("framesent", hear))
    return sent


@rule("RS-59")
async def test_accept_panel_lists_what_the_spec_allows(page: Page, easel: LiveEasel) -> None:
    name = new_session()
    elsewhere = {
        **WRITTEN,
        "actions": {
            **WRITTEN["actions"],
            "other": {"kind": "session.send", "sessionKey": "agent:main:ops", "message": "go"},
        },
    }
    write(easel, name, WRITTEN)
    # An agent cannot write this one; a restored backup of before may have it.
    encoded = json.dumps(elsewhere)
    easel.sql(f"update canvases set spec = '{encoded}' where canvas_id = '{name}'")
    await open_canvas(page, easel, name)
    await expect(page.get_by_role("button", name="Accept it")).to_be_in_viewport(
        ratio=1
    )  # without a scroll, however long the spec is
    panel = page.locator("#accept-details")
    for text in (
        "an agent (agent)",
        "gsv__Echo, gsv__Clock",
        "https://example.org",
        "tell will not ask",
        "To the sessionthis canvas’s own session, agent:main:author",
        "To the sessionagent:main:ops",
        "look will not ask; it only reads",
        "look, every 60 s",
    ):
        await expect(panel).to_contain_text(text)
    await expect(panel).not_to_contain_text("every 5 s")


@rule("RS-74")
async def test_accept_panel_names_the_hosts_and_the_fetches_that_will_not_ask(
    page: Page, easel: LiveEasel
) -> None:
    name, url = new_session(), "https://api.example.com/items"
    fetch = {"kind": "tool.call", "tool": "local__Fetch"}
    actions = {method: {**fetch, "args": {"method": method, "url": url}} for method in ("GET", "POST")}
    policy = {"allow": ["local__Fetch"], "hosts": ["api.example.com", "*.example.org"]}
    write(easel, name, {"toolPolicy": policy, "actions": actions})
    await open_canvas(page, easel, name)
    panel = page.locator("#accept-details")
    for text in ("api.example.com, *.example.org", "GET will not ask; it only reads", url):
        await expect(panel).to_contain_text(text)
    await expect(panel).not_to_contain_text("POST will not ask")


@rule("RS-72", "RS-64")
async def test_panel_and_question_show_folder_authors_and_every_member_of_an_action(
    page: Page, easel: LiveEasel, api: CanvasApi
) -> None:
    """A folder that has changed since the last acceptance is marked."""
    name = new_session()
    members = {"allowOptions": ["state.folder"], "missing": "empty", "saveAs": "done", "timeoutMs": 5_000}
    back_up = {**ECHO, "args": {"value": "tar cf x {{state.folder}}"}, "confirm": "never", **members}
    ask = {**back_up, "confirm": "always", "description": "Only a preview"}
    spec = {**WRITTEN, "actions": {"ask": ask}, "refresh": []}
    api.rpc("canvas.create", canvasId=name, spec=spec, ownerSessionKey="agent:main:home")
    agent = Draft(canvas_id=name, title="Preview, changes nothing")
    easel.do(easel.instances[0].services.canvases.upsert(AGENT, agent))
    await open_canvas(page, easel, name)
    api.rpc("canvas.action", canvasId=name, actionId="ask")
    await page.get_by_role("button", name="Review").click()
    question = page.locator("#consent-call")
    shown = (
        "Toolgsv__Echo",
        "A value may be an option of a programstate.folder",
        "Where a value is missingit goes on with an empty text",
        "Stores its result asdone",
        "Is stopped after5 s",
    )
    for text in (
        *shown,
        "Its title is byan agent (agent)",
        "Written bya person (owner)",
        "Says of itselfOnly a preview",
        "Works in the folder ofagent:main:home",
    ):
        await expect(question).to_contain_text(text)
    await page.locator("#consent-refuse").click()
    write(easel, name, {**spec, "actions": {"back_up": back_up}})
    panel = page.locator("#accept-details")
    await expect(panel).to_contain_text("Works in the folder ofagent:main:home")
    await expect(panel).not_to_contain_text("Changed since it was last accepted")
    api.rpc("canvas.patch", canvasId=name, ownerSessionKey="agent:main:elsewhere")
    for text in (
        *shown,
        "Written byan agent (agent)",
        "Works in the folder ofagent:main:elsewhere",
        "Changed since it was last accepted, fromagent:main:home",
        "back_up will not ask",
        "valuetar cf x {{state.folder}}",
    ):
        await expect(panel).to_contain_text(text)


@rule("RS-59")
async def test_only_the_shown_spec_is_accepted(page: Page, easel: LiveEasel, api: CanvasApi) -> None:
    name = new_session()
    sent = accepts_sent(page)
    write(easel, name, WRITTEN)
    await open_canvas(page, easel, name)
    accept = page.get_by_role("button", name="Accept it")
    await read_to_the_end(page)
    # The agent writes another spec, and the press is on its way: in the very moment in which the panel shows
    # the new one.
    await page.evaluate("""void (window.wasDisabled = new Promise((resolve) => {
        new MutationObserver((_, observer) => {
          observer.disconnect();
          const button = document.getElementById("accept-now");
          resolve(button.disabled);
          button.click();
        }).observe(document.getElementById("accept-details"), {childList: true});
      }))""")
    other = {**WRITTEN, "toolPolicy": {"allow": ["gsv__Echo", "gsv__Clock", "gsv__Sleep"]}}
    await asyncio.to_thread(write, easel, name, other)
    assert await evaluate_promise(page, "wasDisabled") is True, "a pause, as before a consent"
    assert sent == []
    assert api.rpc("canvas.get", canvasId=name)["accepted"] is False
    await read_to_the_end(page)
    seen = api.rpc("canvas.get", canvasId=name)["revision"]
    await accept.click()
    await expect(page.locator("#accept")).to_be_hidden()
    assert sent == [seen]


@rule("RS-59")
@pytest.mark.parametrize(
    "allows",
    [["gsv__Sleep", "gsv__Clock"], WRITTEN["toolPolicy"]["allow"]],
    ids=["another spec", "another page alone"],
)
async def test_unseen_change_is_not_accepted(
    page: Page, easel: LiveEasel, api: CanvasApi, allows: list[str]
) -> None:
    name = new_session()
    sent = accepts_sent(page)
    shown = write(easel, name, WRITTEN)
    await open_canvas(page, easel, name)
    accept = page.get_by_role("button", name="Accept it")
    await read_to_the_end(page)
    other = {**WRITTEN, "toolPolicy": {"allow": allows}}
    # Write past the services, which would notify subscribers.
    encoded = json.dumps(other)
    easel.sql(
        f"update canvases set spec = '{encoded}', revision = revision + 1, spec_revision = revision + 1 "
        f"where canvas_id = '{name}'"
    )
    await accept.click()
    await expect(page.locator("#accept-problem")).to_contain_text("read the canvas again")
    await expect(page.locator("#revision")).to_have_text(
        f"revision {shown + 1}"
    )  # it has read what there is now
    assert sent == [shown]
    await expect(page.locator("#accept-details")).to_contain_text(allows[0])
    assert api.rpc("canvas.get", canvasId=name)["accepted"] is False
    await read_to_the_end(page)
    await accept.click()
    await expect(page.locator("#accept")).to_be_hidden()
    assert sent == [shown, shown + 1]


@rule("RS-59")
async def test_page_of_an_agent_restarts_the_acceptance_pause(page: Page, easel: LiveEasel) -> None:
    name = new_session()
    sent = accepts_sent(page)
    write(easel, name, WRITTEN)
    await open_canvas(page, easel, name)
    accept = page.get_by_role("button", name="Accept it")
    await read_to_the_end(page)
    await page.evaluate("""void (window.rests = new Promise((resolve) => {
        const button = document.getElementById("accept-now");
        new MutationObserver(() => resolve(button.disabled)).observe(button, {attributes: true});
      }))""")
    put = easel.instances[0].services.assets.put(AGENT, name, "assets/index.html", b"<h1>Another</h1>", None)
    _, revision = await asyncio.to_thread(easel.do, put)
    assert await evaluate_promise(page, "rests") is True
    await read_to_the_end(page)
    await accept.click()
    await expect(page.locator("#accept")).to_be_hidden()
    assert sent == [revision]


@rule("RS-59")
async def test_changing_state_does_not_block_acceptance(page: Page, easel: LiveEasel, api: CanvasApi) -> None:
    name = new_session()
    write(easel, name, WRITTEN)
    await open_canvas(page, easel, name)
    accept = page.get_by_role("button", name="Accept it")
    await read_to_the_end(page)
    for number in range(5):
        api.patch(name, "/n", number)
        await expect(page.locator("#revision")).to_have_text(f"revision {number + 2}")
        assert await accept.is_enabled()
    await accept.click()
    await expect(page.locator("#accept")).to_be_hidden()
