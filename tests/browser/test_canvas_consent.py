"""What a person is asked for, against their haste: each question has its own pause, and what is accepted is what was shown."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from easel.core.principal import THE_OWNER, PrincipalKind
from easel.host.canvases.drafts import Draft
from tests.browser.canvas import COCKPIT, MINIMAL, Desk, promised, show, the_frame
from tests.edges.http.live import LiveEasel, new_session
from tests.requirements import case, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.async_api import Frame

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PAUSE_MS = 700  # of canvas_consent.js
AGENT = replace(THE_OWNER, name="agent", kind=PrincipalKind.AGENT)
ECHO = {"kind": "tool.call", "tool": "gsv__Echo"}
TWO: dict[str, Any] = {
    **{name: part for name, part in COCKPIT.items() if name != "bindings"},
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
def desk(easel: LiveEasel) -> Iterator[Desk]:
    with Desk(easel) as at:
        yield at


# --- consent ----------------------------------------------------------------------------------------------------------


async def no_time_passes(page: Page) -> None:
    """From now on what was a moment ago stays so, however slow the machine is. Timers go on."""
    await page.evaluate("(() => { const now = performance.now(); performance.now = () => now })()")


async def both_asked(page: Page, easel: LiveEasel, desk: Desk) -> tuple[str, Frame]:
    """Its page has asked twice: the first is before the person's eyes, and the second behind it."""
    name = desk.make(MINIMAL, TWO)
    await show(page, easel, name)
    frame = await the_frame(page)
    await frame.evaluate("void (window.first = gsvCanvas.runAction('first'))")
    await expect(page.locator("#consent-call")).to_contain_text("the first")
    await frame.evaluate("void (window.second = gsvCanvas.runAction('second'))")
    await desk.until(lambda: len(desk.records(name)) == 2, "the second question")
    await expect(page.locator("#waiting")).to_be_hidden()
    return name, frame


@rule("CV-05", "CV-22")
@case("X6")
async def test_a_question_that_somebody_else_s_press_brings_is_shown_whole(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    """The event that brings it is light: of a long value it says only that it is long, and nobody agrees to that."""
    long = "echo harmless\n" * 300 + "rm -rf everything"
    name = desk.make(
        MINIMAL,
        {**TWO, "actions": {"write": {**ECHO, "args": {"value": "{{input.text}}"}, "confirm": "always"}}},
    )
    await show(page, easel, name)
    desk.rpc("canvas.action", canvasId=name, actionId="write", input={"text": long})
    await page.get_by_role("button", name="Review").click()
    call = page.locator("#consent-call")
    await expect(call).to_contain_text("rm -rf everything")
    await expect(call).to_contain_text(f"301 lines, {len(long)} characters: scroll to see all of it.")
    await expect(call).not_to_contain_text("sha256")
    await page.locator("#consent-refuse").click()
    await expect(page.locator("#consent")).to_be_hidden()
    await expect(page.locator("#waiting")).to_be_hidden()


@rule("CV-22")
async def test_on_a_phone_what_is_asked_comes_into_sight_first_and_the_answers_stay_there(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    await page.set_viewport_size({"width": 375, "height": 600})
    long = {f"part{number}": "echo word\n" * 20 for number in range(4)}
    name = desk.make(
        MINIMAL,
        {
            **TWO,
            "actions": {
                "write": {**ECHO, "args": {"value": long}, "confirm": "always", "title": "Write it all"}
            },
        },
    )
    await show(page, easel, name)
    await (await the_frame(page)).evaluate("void gsvCanvas.runAction('write')")
    await expect(page.locator("#consent-title")).to_be_in_viewport(ratio=1)
    for answer in ("Refuse", "Approve"):
        await expect(page.get_by_role("button", name=answer)).to_be_in_viewport(ratio=1)
    await expect(page.locator("#consent-refuse")).to_be_focused()
    assert await page.evaluate("document.getElementById('consent').scrollTop") == 0
    # The pause is over, and all of it is not seen. (The page's own timers keep their order, however late they are.)
    await page.evaluate("(ms) => new Promise((resolve) => setTimeout(resolve, ms))", PAUSE_MS + 300)
    await expect(page.locator("#consent-more")).to_be_in_viewport(ratio=1)
    await expect(page.locator("#consent-approve")).to_be_disabled()
    await page.evaluate("document.getElementById('consent').scrollTo(0, 1e6)")
    await expect(page.locator("#consent-approve")).to_be_enabled()
    await expect(page.locator("#consent-more")).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(page.locator("#consent")).to_be_hidden()


@rule("CV-05")
async def test_the_pause_of_a_question_is_its_own(page: Page, easel: LiveEasel, desk: Desk) -> None:
    """The time that a person looked at one question is no time that they looked at the next.

    All of it is seen, and the second question put off, inside of the page: its timers keep their order however late they are.
    """
    await page.add_init_script("""
        window.enabled = []; window.shown = [];
        addEventListener("DOMContentLoaded", () => {
          const approve = document.getElementById("consent-approve"), call = document.getElementById("consent-call");
          if (!approve) return; // the page in the frame
          let shownAt = 0, shows = 0;
          const dialog = document.getElementById("consent"), show = dialog.showModal;
          dialog.showModal = () => { // before its pause begins
            shownAt = performance.now();
            // A press at the last moment of one question's pause: the next question is shown, and that pause must not end for it.
            if (++shows === 2) setTimeout(() => { dialog.dispatchEvent(new Event("cancel", {cancelable: true})) }, 600);
            show.call(dialog);
          };
          new MutationObserver(() => shown.push(approve.disabled)).observe(call, {childList: true});
          new MutationObserver(() => { if (!approve.disabled) enabled.push([call.textContent, performance.now() - shownAt]) })
            .observe(approve, {attributes: true, attributeFilter: ["disabled"]});
        })""")
    await both_asked(page, easel, desk)
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
async def test_after_a_refusal_nothing_that_was_queued_is_put_before_a_persons_eyes(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    name, frame = await both_asked(page, easel, desk)
    shows = """() => { window.shows = 0; const dialog = document.getElementById("consent"), show = dialog.showModal;
        dialog.showModal = function () { window.shows += 1; show.call(dialog) } }"""
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
    await desk.until(lambda: desk.state(name).get("said"), "the second action")


@rule("CV-05", "CV-22")
async def test_what_a_page_has_asked_too_often_is_refused_with_one_press(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    """A page can fill all places of its canvas; whoever looks at it does not have to empty them one by one."""
    name = desk.make(MINIMAL, TWO)
    await show(page, easel, name)
    for _ in range(20):
        desk.rpc("canvas.action", canvasId=name, actionId="first")
    await expect(page.locator("#waiting")).to_contain_text("… and 15 more.")
    await page.get_by_role("button", name="Refuse all 20").click()
    await expect(page.locator("#waiting")).to_be_hidden()
    assert {one["status"] for one in desk.records(name)} == {"refused"}
    frame = await the_frame(page)
    await frame.evaluate("void gsvCanvas.runAction('second')")
    await expect(page.locator("#consent-call")).to_contain_text("the second")


@rule("CV-05")
async def test_a_question_that_the_browser_closed_by_itself_is_left_for_later(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    """After one Escape a browser may close the next dialog without asking its page."""
    name, frame = await both_asked(page, easel, desk)
    await page.evaluate("document.getElementById('consent').close()")
    assert (await frame.evaluate("first"))["status"] == "needs_confirmation"
    await expect(page.locator("#waiting")).to_contain_text("first waits for your consent")
    await page.get_by_role("button", name="Review").last.click()
    await page.get_by_role("button", name="Refuse").click()
    await desk.until(lambda: "refused" in [one["status"] for one in desk.records(name)], "the refusal")


@rule("CV-05", "CV-22")
async def test_who_has_decided_by_keyboard_goes_on_where_they_were(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    name = desk.make("<!doctype html><button>Other</button><button data-gsv-action=first>First</button>", TWO)
    frame = await show(page, easel, name)
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
    await expect(page.locator("#waiting")).to_contain_text(
        "you had just closed another one"
    )
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
    await desk.until(lambda: {one["status"] for one in desk.records(name)} == {"refused"}, "both refusals")


@rule("CV-05")
async def test_a_page_that_asks_without_a_press_is_said_to_do_so(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    """Only the browser knows, and no page can say otherwise. (To this one all that a test does is a press, so it is told for it.)"""
    await page.add_init_script(
        "Object.defineProperty(navigator, 'userActivation', {value: {isActive: false}})"
    )
    asks = "<!doctype html><script>gsvCanvas.subscribe(() => { window.asked ??= gsvCanvas.runAction('first') })</script>"
    await show(page, easel, desk.make(asks, TWO))
    await expect(page.locator("#consent-why")).to_have_text(
        "The page of this canvas requests this without a click or key press of yours."
    )
    await page.get_by_role("button", name="Refuse").click()


# --- accepting what an agent wrote --------------------------------------------------------------------------------------

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
    """As an agent does; the revision."""
    draft = Draft(canvas_id=name, spec=spec, owner_session_key="agent:main:author")
    return easel.do(easel.instances[0].services.canvases.upsert(AGENT, draft)).canvas.revision


def accepts_sent(page: Page) -> list[int]:
    """Filled with the revision of every `canvas.accept` that this window sends."""
    sent: list[int] = []

    def hear(payload: str | bytes) -> None:
        if '"canvas.accept"' in str(payload):
            sent.append(json.loads(payload)["params"]["revision"])

    page.on("websocket", lambda socket: socket.on("framesent", hear))
    return sent


@rule("RS-59")
async def test_the_panel_names_what_is_accepted(page: Page, easel: LiveEasel) -> None:
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
    await show(page, easel, name)
    await expect(page.get_by_role("button", name="Accept it")).to_be_in_viewport(
        ratio=1
    )  # without a scroll, however long the spec is
    await page.get_by_text("What it would allow").click()
    says = page.locator("#accept-details")
    for told in (
        "gsv__Echo, gsv__Clock",
        "tell, to this canvas’s own session, agent:main:author",
        "other, to agent:main:ops",
    ):
        await expect(says).to_contain_text(told)
    await expect(says).to_contain_text("look (gsv__Clock), every 60 s")
    await expect(says).to_contain_text("https://example.org")
    runs = says.locator("dt", has_text="Runs on a timer").locator("xpath=following-sibling::dd[1]")
    await expect(runs).not_to_contain_text("every 5 s")


@rule("RS-59")
async def test_what_was_shown_is_accepted_and_not_what_came_meanwhile(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    name = new_session()
    sent = accepts_sent(page)
    write(easel, name, WRITTEN)
    await show(page, easel, name)
    accept = page.get_by_role("button", name="Accept it")
    await expect(accept).to_be_enabled()
    # The agent writes another spec, and the press is on its way: in the very moment in which the panel shows the new one.
    await page.evaluate("""void (window.pressed = new Promise((resolve) => new MutationObserver((_, observer) => {
        observer.disconnect(); const button = document.getElementById("accept-now"); resolve(button.disabled); button.click();
      }).observe(document.getElementById("accept-details"), {childList: true})))""")
    other = {**WRITTEN, "toolPolicy": {"allow": ["gsv__Echo", "gsv__Clock", "gsv__Sleep"]}}
    await asyncio.to_thread(write, easel, name, other)
    assert await promised(page, "pressed") is True, "a pause, as before a consent"
    assert sent == []
    assert desk.rpc("canvas.get", canvasId=name)["accepted"] is False
    await expect(accept).to_be_enabled()
    seen = desk.rpc("canvas.get", canvasId=name)["revision"]
    await accept.click()
    await expect(page.locator("#accept")).to_be_hidden()
    assert sent == [seen]


@rule("RS-59")
@pytest.mark.parametrize(
    "allows",
    [["gsv__Sleep", "gsv__Clock"], WRITTEN["toolPolicy"]["allow"]],
    ids=["another spec", "another page alone"],
)
async def test_what_has_not_reached_the_page_is_not_accepted(
    page: Page, easel: LiveEasel, desk: Desk, allows: list[str]
) -> None:
    name = new_session()
    sent = accepts_sent(page)
    shown = write(easel, name, WRITTEN)
    await show(page, easel, name)
    accept = page.get_by_role("button", name="Accept it")
    await expect(accept).to_be_enabled()
    other = {**WRITTEN, "toolPolicy": {"allow": allows}}
    # Past the stories, which would tell whoever watches.
    encoded = json.dumps(other)
    easel.sql(
        f"update canvases set spec = '{encoded}', revision = revision + 1, spec_revision = revision + 1 where canvas_id = '{name}'"
    )
    await accept.click()
    await expect(page.locator("#accept-problem")).to_contain_text("read the canvas again")
    await expect(page.locator("#revision")).to_have_text(
        f"revision {shown + 1}"
    )  # it has read what there is now
    assert sent == [shown]
    await page.get_by_text("What it would allow").click()
    await expect(page.locator("#accept-details")).to_contain_text(allows[0])
    assert desk.rpc("canvas.get", canvasId=name)["accepted"] is False
    await accept.click()  # it waits until the button can be pressed
    await expect(page.locator("#accept")).to_be_hidden()
    assert sent == [shown, shown + 1]


@rule("RS-59")
async def test_a_page_that_an_agent_writes_has_to_be_seen_too(page: Page, easel: LiveEasel) -> None:
    name = new_session()
    sent = accepts_sent(page)
    write(easel, name, WRITTEN)
    await show(page, easel, name)
    accept = page.get_by_role("button", name="Accept it")
    await expect(accept).to_be_enabled()
    await page.evaluate("""void (window.rests = new Promise((resolve) => new MutationObserver(() =>
        resolve(document.getElementById("accept-now").disabled)).observe(document.getElementById("accept-now"), {attributes: true})))""")
    put = easel.instances[0].services.assets.put(AGENT, name, "assets/index.html", b"<h1>Another</h1>", None)
    _, revision = await asyncio.to_thread(easel.do, put)
    assert await promised(page, "rests") is True
    await accept.click()
    await expect(page.locator("#accept")).to_be_hidden()
    assert sent == [revision]


@rule("RS-59")
async def test_a_state_that_changes_all_the_time_keeps_nobody_from_accepting(
    page: Page, easel: LiveEasel, desk: Desk
) -> None:
    name = new_session()
    write(easel, name, WRITTEN)
    await show(page, easel, name)
    accept = page.get_by_role("button", name="Accept it")
    await expect(accept).to_be_enabled()
    for number in range(5):
        desk.patch(name, "/n", number)
        await expect(page.locator("#revision")).to_have_text(f"revision {number + 2}")
        assert await accept.is_enabled()
    await accept.click()
    await expect(page.locator("#accept")).to_be_hidden()
