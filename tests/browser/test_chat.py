"""The chat as a person uses it: ask, watch the answer grow, stop it, wait in line, come back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import link_of
from tests.browser.console import (
    COUNTING,
    Outside,
    answer,
    enter,
    expect_counted,
    expect_ended,
    expect_more,
    press,
    say,
    script,
    status,
    turn,
)
from tests.requirements import case, rule
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = (
    """<img src=x onerror="alert(1)"><script>alert(2)</script>"><svg onload=alert(3)>{{7*7}}</td></table>javascript:alert(4)"""
    """ ![x](http://127.0.0.1:9/?q=secret) \x1b[31mred\x1b]8;;http://127.0.0.1:9\x07 \u202egnp.exe\u202c שלום &lt;b&gt;"""
)


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[EaselProcess]:
    """In which nobody has said anything yet."""
    with Launcher(tmp_path) as launcher:
        (started,) = launcher.ready(launcher.up())
        yield started


async def test_the_printed_link_leads_to_a_first_run_with_one_press(
    page: Page, new_server: EaselProcess
) -> None:
    server = new_server
    await page.goto(link_of(server))
    await expect(page.locator("#welcome")).to_be_visible()
    assert page.url.startswith(f"{server.base_url}/#"), "the token has left the address"
    assert server.token not in page.url
    await page.locator("#first-example button").click()
    await expect_ended(page)
    await expect(answer(page)).to_have_text(
        [
            "I will read the clock.",
            "I write the time to the whiteboard, and pass it on over the blackboard.",
            "Done: the time is on both boards of the run.",
        ]
    )
    clock = turn(page).locator(".tool").first
    await expect(clock).to_contain_text("gsv__Clock")
    await expect(clock).to_contain_text('"now":"20')
    await expect(status(page)).to_have_text("completed")
    await expect(page.locator("#whiteboard tbody tr")).to_have_count(1)
    await expect(page.locator("#blackboard tbody tr")).to_contain_text("clock-reader")
    await expect(page.locator("#session-list li").first).to_contain_text("Use some tools")
    await expect(page.locator("#welcome")).to_be_hidden()


@rule("CC-03")
async def test_a_question_and_its_answer_come_over_the_chat(page: Page, server: EaselProcess) -> None:
    await enter(page, server)
    await say(page, script({"say": "Hello, you."}))
    await expect(turn(page).locator(".question .text")).to_have_text(script({"say": "Hello, you."}))
    await expect(answer(page)).to_have_text("Hello, you.")
    await expect_ended(page)
    await say(page, script({"say": "And again."}))
    await expect(answer(page)).to_have_text("And again.")
    await expect(page.locator("#turns .turn")).to_have_count(2)
    await expect(turn(page).locator(".answer time")).to_have_attribute(
        "title", re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$")
    )


async def test_an_answer_grows_while_it_is_given(page: Page, server: EaselProcess) -> None:
    await enter(page, server)
    await say(page, script(COUNTING))
    await expect(answer(page)).to_contain_text("tick 2")
    await expect(turn(page)).to_have_attribute("data-state", "running")
    await expect_more(page)
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled")
    expect_counted(await answer(page).text_content())
    await say(page, script({"ticks": 30, "every_ms": 10}, {"say": "Done."}))
    await expect(page.locator("#turns .turn")).to_have_count(2)
    await expect_ended(page)
    await expect(answer(page)).to_have_text("".join(f"tick {n}\n" for n in range(1, 31)) + "Done.")


async def test_a_long_answer_is_shown_whole_although_its_event_only_refers_to_it(
    page: Page, server: EaselProcess
) -> None:
    await enter(page, server)
    long = "".join(f"Line {n} of a long answer, with ümlauts.\n" for n in range(300))
    await say(page, script({"say": long}))
    await expect_ended(page)
    await expect(answer(page)).to_have_text(long)
    await expect(turn(page).locator(".question .text")).to_have_text(script({"say": long}))
    await page.reload()
    await expect(answer(page)).to_have_text(long)
    await expect(turn(page).locator(".question .text")).to_have_text(script({"say": long}))


async def test_what_a_tool_was_given_and_gave_can_be_folded_open_and_what_was_moved_is_loaded_on_demand(
    page: Page, server: EaselProcess
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await enter(page, server)
    heavy = "0123456789 some words " * 500
    await say(
        page,
        script(
            {"call": "gsv__Echo", "args": {"value": {"redacted": True, "note": "mine"}}},
            {"call": "gsv__Echo", "args": {"value": heavy}},
        ),
    )
    await expect_ended(page)
    forged, tool = turn(page).locator(".tool").nth(0), turn(page).locator(".tool").nth(1)
    await forged.locator("summary").click()
    await expect(forged.locator("pre").last).to_contain_text('"redacted":true')
    await expect(forged.locator("pre").last).to_contain_text('"note":"mine"')
    await expect(turn(page).locator(".question .text")).to_contain_text("0123456789")
    await tool.locator("summary").click()
    before = [url for url in asked if "/api/artifacts/" in url]
    assert len(before) == 1, (
        "the question itself, which is a message; nothing else is fetched before somebody asks"
    )
    result = tool.locator(".detail > .offloaded")
    kept_at = await result.get_by_role("link", name="open").get_attribute("href") or ""
    await result.get_by_role("button", name="show").click()
    await expect(result.locator("pre")).to_have_text(heavy)
    assert [url for url in asked if "/api/artifacts/" in url] == [*before, f"{server.base_url}{kept_at}"]


@rule("RX-12", "RX-27")
async def test_stop_ends_the_run_and_keeps_what_was_said(page: Page, server: EaselProcess) -> None:
    await enter(page, server)
    stop = page.get_by_role("button", name="Stop", exact=True)
    await expect(stop).to_be_disabled()
    await press(page, "Wait a minute")
    await expect(answer(page)).to_have_text("Stop me.")
    await expect(status(page)).to_have_text("running")
    await stop.click()
    await expect_ended(page, "cancelled")
    await expect(status(page)).to_have_text("cancelled")
    await expect(answer(page)).to_have_text("Stop me.")
    await expect(stop).to_be_disabled()


async def test_messages_sent_while_a_run_is_active_wait_in_line_and_get_their_turn_in_order(
    page: Page, server: EaselProcess
) -> None:
    await enter(page, server)
    await say(page, script({"say": "I hold the turn."}, {"wait_ms": 60_000}))
    await expect(answer(page)).to_have_text("I hold the turn.")
    for name in ("first", "second", "third"):
        await say(page, script({"say": f"the {name}"}))
    notes = page.locator("#turns .turn[data-state=queued] .note")
    await expect(notes).to_contain_text(["next in line", "2nd in line", "3rd in line"])
    await turn(page, 2).get_by_role("button", name="cancel").click()
    await expect_ended(page, "cancelled", 2)
    await expect(notes).to_contain_text(["next in line", "2nd in line"])
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled", 0)
    await expect_ended(page, "completed", 3)
    await expect(answer(page, 1)).to_have_text("the first")
    await expect(answer(page, 2)).to_have_count(0)
    await expect(answer(page, 3)).to_have_text("the third")
    await page.reload()
    await expect(turn(page, 2)).to_contain_text("cancelled")
    await expect(page.locator("#turns .answer > .parts > .text")).to_have_text(
        ["I hold the turn.", "the first", "the third"]
    )


@case("E4")
@rule("RX-48")
async def test_a_reload_in_the_middle_of_a_run_sees_it_go_on(page: Page, server: EaselProcess) -> None:
    await enter(page, server)
    await say(page, script({"say": "Look."}, {"call": "gsv__Clock", "args": {}}, COUNTING))
    await expect(answer(page).last).to_contain_text("tick 3")
    await page.reload()
    await expect(turn(page)).to_have_attribute("data-state", "running")
    await expect(answer(page).last).to_contain_text("tick 3\n")
    await expect_more(page)
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled")
    [look, ticks] = await answer(page).all_text_contents()
    assert look == "Look."
    expect_counted(ticks)
    await expect(turn(page).locator(".tool")).to_have_count(1)
    await expect(page.locator("#turns .turn")).to_have_count(1)


async def test_the_link_to_a_session_shows_all_of_it_tools_too(page: Page, server: EaselProcess) -> None:
    await enter(page, server)
    await say(page, script({"say": "Remember me."}, {"call": "gsv__Echo", "args": {"value": "kept"}}))
    await expect_ended(page)
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await expect(answer(page)).to_have_text("Remember me.")
    await expect(turn(page).locator(".tool")).to_contain_text("kept")
    await expect(status(page)).to_have_text("completed")


async def test_a_long_thread_begins_with_its_newest_messages_and_shows_earlier_ones_when_asked(
    page: Page, server: EaselProcess
) -> None:
    session = "long-thread"
    with Outside(server) as outside:
        for number in range(34):
            outside.post(
                "/api/runs", {"session_id": session, "message": script({"say": f"answer {number}."})}
            )
        outside.wait_until_idle(session)
    await enter(page, server, session)
    await expect(answer(page)).to_have_text("answer 33.")
    assert 15 <= await page.locator("#turns .turn").count() <= 30, "of the newest 30 messages"
    await page.get_by_role("button", name="Earlier messages").click()
    await expect(page.locator("#turns .turn")).to_have_count(34)
    await expect(page.get_by_role("button", name="Earlier messages")).to_be_hidden()
    assert await page.locator("#turns .answer .text").all_text_contents() == [
        f"answer {n}." for n in range(34)
    ]


async def test_a_failing_run_shows_its_reason(page: Page, server: EaselProcess) -> None:
    await enter(page, server)
    await press(page, "Fail")
    await expect_ended(page, "failed")
    await expect(turn(page).locator(".note")).to_contain_text("as requested")
    await expect(answer(page)).to_have_text("This run will fail.")
    await expect(page.locator("#run-problem")).to_contain_text("as requested")


@case("P5")
async def test_hostile_text_is_shown_as_text_everywhere(page: Page, server: EaselProcess) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await enter(page, server)
    board = {"key": "k<b>", "value": HOSTILE}
    await say(
        page,
        script(
            {"say": HOSTILE},
            {"call": "gsv__Echo", "args": {"value": HOSTILE}},
            {"call": "gsv__WhiteboardWrite", "args": board},
            {"fail": HOSTILE},
        ),
    )
    await expect_ended(page, "failed")
    await expect(answer(page)).to_have_text(HOSTILE)
    await expect(turn(page).locator(".note .status")).to_contain_text(HOSTILE)
    await expect(page.locator("#run-problem")).to_contain_text(HOSTILE)
    tool = turn(page).locator(".tool").first
    await tool.locator("summary").click()
    await expect(tool.locator("pre").last).to_have_text(HOSTILE)
    await expect(page.locator("#whiteboard td pre")).to_have_text(HOSTILE)
    await say(page, HOSTILE)
    await expect(turn(page).locator(".question .text")).to_have_text(HOSTILE)
    await expect(turn(page).locator(".question .text")).to_have_css(
        "unicode-bidi", "plaintext"
    )  # it turns nothing around it
    assert await page.locator("img, svg, main script, main b").count() == 0
    assert all(url.startswith(server.base_url) for url in asked)


async def test_what_the_server_refuses_stays_on_the_page_with_the_reason(
    page: Page, server: EaselProcess
) -> None:
    await enter(page, server)
    await say(page, "x" * 300_000)
    refused = page.locator("#turns .turn[data-state='unsent refused']")
    await expect(refused).to_contain_text("larger than the limit")
    await say(page, script({"say": "It goes on."}))
    await expect(page.locator("#turns .answer > .parts > .text")).to_have_text("It goes on.")
    await refused.get_by_role("button", name="discard").click()
    await expect(refused).to_have_count(0)


async def test_another_session_may_be_chosen_while_one_is_live_and_their_words_do_not_mix(
    page: Page, server: EaselProcess
) -> None:
    talkative = await enter(page, server)
    await say(page, script(COUNTING))
    await expect(answer(page)).to_contain_text("tick 2")
    await page.get_by_role("button", name="New", exact=True).click()
    await expect(page.locator("#welcome")).to_be_visible()
    await say(page, script({"say": "Just this."}))
    await expect(answer(page)).to_have_text("Just this.")
    await page.locator(f"#session-list button[title='{talkative}']").click()
    await expect(answer(page)).to_contain_text("tick 5")
    await expect(page.locator("#turns")).not_to_contain_text("Just this.")
    await page.go_back()
    await expect(answer(page)).to_have_text("Just this.")
    await page.go_forward()
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled")


async def test_enter_sends_and_shift_enter_makes_a_new_line(page: Page, server: EaselProcess) -> None:
    await enter(page, server)
    await page.get_by_label("Message", exact=True).focus()
    await page.keyboard.type("noop")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("twice")
    await expect(page.locator("#turns .turn")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(turn(page).locator(".question .text")).to_have_text("noop\ntwice")
    await expect(page.get_by_label("Message", exact=True)).to_have_value("")


async def test_everything_can_be_done_by_keyboard_alone(page: Page, server: EaselProcess) -> None:
    await enter(page, server)

    async def reach(what: str) -> None:
        for _ in range(60):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.textContent") == what:
                break
        assert await page.evaluate("document.activeElement.textContent") == what
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", "one sees where one is"

    await reach("Wait a minute")
    await page.keyboard.press("Enter")
    await expect(answer(page)).to_have_text("Stop me.")
    assert await page.evaluate("document.activeElement.id") == "message", "and one can go on typing"
    await expect(page.get_by_role("button", name="Stop", exact=True)).to_be_enabled()
    await reach("Stop")
    await page.keyboard.press("Space")
    await expect_ended(page, "cancelled")


# --- turns, made of events --------------------------------------------------------------------------------------------

SAID = """async ([events, restarts]) => {
    const { Thread, visibleItems, textOf } = await import("/ui/thread.js");
    const thread = new Thread();
    const data = ([type, ts, more]) => ({ type, ts, data: more });
    events.forEach((event, place) => {
        thread.addEvent({ seq: place + 1, ...data(event) });
        for (const [after, run, ts] of restarts) if (after === place + 1) thread.restart(run, ts);
    });
    const part = (answer) => (item) => (item.pieces ? textOf(item) : item.kind === "final" ? answer.text : `[${item.tool} ${item.result ?? ""}]`);
    return thread.inOrder().map(({ runId, answer }) => [runId, ...(answer ? visibleItems(answer).map(part(answer)) : [])]);
}"""


def asked(run: str) -> tuple[str, str, dict[str, str]]:
    return "message.completed", "0", {"role": "user", "run_id": f"run_{run}", "text": "?"}


def delta(run: str, at: str, text: str) -> tuple[str, str, dict[str, str]]:
    return "message.delta", at, {"message_id": f"msg_{run}", "text": text}


def tool(kind: str, at: str, **more: str) -> tuple[str, str, dict[str, str]]:
    return f"tool.{kind}", at, {"call_id": "call_1", "tool": "T", **more}


def answered(run: str, text: object) -> tuple[str, str, dict[str, object]]:
    return (
        "message.completed",
        "9",
        {
            "role": "assistant",
            "run_id": f"run_{run}",
            "message_id": f"msg_{run}",
            "text": text,
            "status": "completed",
        },
    )


CALL = [tool("call", "2"), tool("result", "3", result="4")]
TURNS = [
    # says, events, (after how many of them the page hears of which run's restart, and when that was), turns
    ("a text in pieces is one", [asked("A"), delta("A", "1", "a"), delta("A", "1", "b")], [], [["run_A", "ab"]]),
    ("a call stands where it was made", [asked("A"), delta("A", "1", "a"), *CALL, delta("A", "4", "b")], [], [["run_A", "a", "[T 4]", "b"]]),
    (
        "what a lost worker had not finished is shown once",
        [asked("A"), delta("A", "1", "a"), *CALL, delta("A", "4", "half"), delta("A", "6", "whole")],
        [(5, "run_A", "5")],
        [["run_A", "a", "[T 4]", "whole"]],
    ),
    (
        "also if the restart is heard of first",
        [asked("A"), delta("A", "1", "a"), *CALL, delta("A", "4", "half"), delta("A", "6", "whole")],
        [(1, "run_A", "5")],
        [["run_A", "a", "[T 4]", "whole"]],
    ),
    (
        "or last",
        [asked("A"), delta("A", "1", "a"), *CALL, delta("A", "4", "half"), delta("A", "6", "whole")],
        [(6, "run_A", "5")],
        [["run_A", "a", "[T 4]", "whole"]],
    ),
    ("until the next attempt speaks the old words stay", [asked("A"), delta("A", "1", "half")], [(2, "run_A", "5")], [["run_A", "half"]]),
    ("a call that is made again is one line", [asked("A"), tool("call", "2"), *CALL], [], [["run_A", "[T 4]"]]),
    (
        "a run that calls before it speaks is known by what follows: the one before it never began",
        [asked("A"), asked("B"), *CALL, delta("B", "4", "b")],
        [],
        [["run_A"], ["run_B", "[T 4]", "b"]],
    ),
    ("or by its end", [asked("A"), asked("B"), *CALL, answered("B", "")], [], [["run_A"], ["run_B", "[T 4]"]]),
    ("the message is right where the pieces are not", [asked("A"), delta("A", "1", "x"), *CALL, answered("A", "y")], [], [["run_A", "[T 4]", "y"]]),
    ("who waits stands after who is answered", [asked("A"), asked("B"), delta("A", "1", "a"), answered("A", "a")], [], [["run_A", "a"], ["run_B"]]),
]  # fmt: skip


async def test_turns_are_made_of_the_events_of_a_thread(page: Page, server: EaselProcess) -> None:
    await enter(page, server)
    for says, events, restarts, turns in TURNS:
        assert await page.evaluate(SAID, [events, restarts]) == turns, says
