"""The chat in a browser: send a message, watch the answer grow, stop it, queue messages, reload."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import link_of
from tests.browser.console import (
    COUNT_FOREVER,
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
from tests.requirements import case, rule
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

HOSTILE = (
    """<img src=x onerror="alert(1)"><script>alert(2)</script>"><svg
    onload=alert(3)>{{7*7}}</td></table>javascript:alert(4)
    """
    """ ![x](http://127.0.0.1:9/?q=secret) \x1b[31mred\x1b]8;;http://127.0.0.1:9\x07 \u202egnp.exe\u202c שלום
    &lt;b&gt;
    """
)


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[EaselProcess]:
    """Start a server without sessions."""
    with Launcher(tmp_path) as launcher:
        (started,) = launcher.ready(launcher.up())
        yield started


async def test_printed_link_opens_a_page_that_starts_a_run_with_one_click(
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
async def test_message_and_answer_arrive_over_the_chat(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(page, script({"say": "Hello, you."}))
    await expect(turn(page).locator(".question .text")).to_have_text(script({"say": "Hello, you."}))
    await expect(answer(page)).to_have_text("Hello, you.")
    await expect_ended(page)
    await send_message(page, script({"say": "And again."}))
    await expect(answer(page)).to_have_text("And again.")
    await expect(page.locator("#turns .turn")).to_have_count(2)
    await expect(turn(page).locator(".answer time")).to_have_attribute(
        "title", re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$")
    )


async def test_answer_is_shown_while_it_grows(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(page, script(COUNT_FOREVER))
    await expect(answer(page)).to_contain_text("tick 2")
    await expect(turn(page)).to_have_attribute("data-state", "running")
    await expect_more_ticks(page)
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled")
    check_ticks(await answer(page).text_content())
    await send_message(page, script({"ticks": 30, "every_ms": 10}, {"say": "Done."}))
    await expect(page.locator("#turns .turn")).to_have_count(2)
    await expect_ended(page)
    await expect(answer(page)).to_have_text("".join(f"tick {n}\n" for n in range(1, 31)) + "Done.")


async def test_long_answer_with_an_offloaded_text_is_shown_completely(
    page: Page, server: EaselProcess
) -> None:
    await open_session(page, server)
    long = "".join(f"Line {n} of a long answer, with ümlauts.\n" for n in range(300))
    await send_message(page, script({"say": long}))
    await expect_ended(page)
    await expect(answer(page)).to_have_text(long)
    await expect(turn(page).locator(".question .text")).to_have_text(script({"say": long}))
    await page.reload()
    await expect(answer(page)).to_have_text(long)
    await expect(turn(page).locator(".question .text")).to_have_text(script({"say": long}))


async def test_refusal_of_a_document_tool_is_shown_with_its_code(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(
        page, script({"call": "canvas_check_out"}, {"call": "gsv__Echo", "args": {"value": {"ok": False}}})
    )
    await expect_ended(page)
    await expect(turn(page).locator(".tool").first).to_contain_text("refused · NOT_FOUND: ")
    await expect(turn(page).locator(".tool").last).to_contain_text("done · ")


async def test_tool_call_details_open_and_offloaded_values_load_on_demand(
    page: Page, server: EaselProcess
) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await open_session(page, server)
    heavy = "0123456789 some words " * 500
    await send_message(
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
    assert not [url for url in requests if "/api/artifacts/" in url], "nothing is fetched unasked"
    result = tool.locator(".detail > .offloaded")
    kept_at = await result.get_by_role("link", name="open").get_attribute("href") or ""
    await result.get_by_role("button", name="show").click()
    await expect(result.locator("pre")).to_have_text(heavy)
    assert [url for url in requests if "/api/artifacts/" in url] == [f"{server.base_url}{kept_at}"]


@rule("RX-12", "RX-27")
async def test_stop_cancels_the_run_and_keeps_its_text(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    stop = page.get_by_role("button", name="Stop", exact=True)
    await expect(stop).to_be_disabled()
    await click_example(page, "Wait a minute")
    await expect(answer(page)).to_have_text("Stop me.")
    await expect(status(page)).to_have_text("running")
    await stop.click()
    await expect_ended(page, "cancelled")
    await expect(status(page)).to_have_text("cancelled")
    await expect(answer(page)).to_have_text("Stop me.")
    await expect(stop).to_be_disabled()


async def test_messages_during_a_run_are_queued_in_order(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(page, script({"say": "I hold the turn."}, {"wait_ms": 60_000}))
    await expect(answer(page)).to_have_text("I hold the turn.")
    for name in ("first", "second", "third"):
        await send_message(page, script({"say": f"the {name}"}))
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
async def test_reload_during_a_run_continues_its_answer(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(page, script({"say": "Look."}, {"call": "gsv__Clock", "args": {}}, COUNT_FOREVER))
    await expect(answer(page).last).to_contain_text("tick 3")
    await page.reload()
    await expect(turn(page)).to_have_attribute("data-state", "running")
    await expect(answer(page).last).to_contain_text("tick 3\n")
    await expect_more_ticks(page)
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled")
    [look, ticks] = await answer(page).all_text_contents()
    assert look == "Look."
    check_ticks(ticks)
    await expect(turn(page).locator(".tool")).to_have_count(1)
    await expect(page.locator("#turns .turn")).to_have_count(1)


async def test_link_to_a_session_shows_its_messages_and_tool_calls(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(
        page, script({"say": "Remember me."}, {"call": "gsv__Echo", "args": {"value": "kept"}})
    )
    await expect_ended(page)
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await expect(answer(page)).to_have_text("Remember me.")
    await expect(turn(page).locator(".tool")).to_contain_text("kept")
    await expect(status(page)).to_have_text("completed")


async def test_long_thread_shows_newest_messages_and_loads_earlier_ones(
    page: Page, server: EaselProcess
) -> None:
    session = "long-thread"
    with ApiClient(server) as outside:
        for number in range(34):
            outside.post(
                "/api/runs", {"session_id": session, "message": script({"say": f"answer {number}."})}
            )
        outside.wait_until_idle(session)
    await open_session(page, server, session)
    await expect(answer(page)).to_have_text("answer 33.")
    assert 15 <= await page.locator("#turns .turn").count() <= 30, "of the newest 30 messages"
    await page.get_by_role("button", name="Earlier messages").click()
    await expect(page.locator("#turns .turn")).to_have_count(34)
    await expect(page.get_by_role("button", name="Earlier messages")).to_be_hidden()
    assert await page.locator("#turns .answer .text").all_text_contents() == [
        f"answer {n}." for n in range(34)
    ]


async def test_failed_run_shows_its_reason(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await click_example(page, "Fail")
    await expect_ended(page, "failed")
    await expect(turn(page).locator(".note")).to_contain_text("as requested")
    await expect(answer(page)).to_have_text("This run will fail.")
    await expect(page.locator("#run-problem")).to_contain_text("as requested")


@case("P5")
async def test_hostile_text_is_shown_as_text(page: Page, server: EaselProcess) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await open_session(page, server)
    board = {"key": "k<b>", "value": HOSTILE}
    await send_message(
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
    await send_message(page, HOSTILE)
    await expect(turn(page).locator(".question .text")).to_have_text(HOSTILE)
    await expect(turn(page).locator(".question .text")).to_have_css(
        "unicode-bidi", "plaintext"
    )  # it turns nothing around it
    assert await page.locator("img, svg, main script, main b").count() == 0
    assert all(url.startswith(server.base_url) for url in requests)


async def test_refused_message_stays_on_the_page_with_its_reason(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    refused = page.locator("#turns .turn[data-state='unsent refused']")
    await send_message(page, "one\0two")
    await expect(refused).to_contain_text("NUL characters")
    await send_message(page, script({"say": "It goes on."}))
    await expect(page.locator("#turns .answer > .parts > .text")).to_have_text("It goes on.")
    await refused.get_by_role("button", name="discard").click()
    await expect(refused).to_have_count(0)


async def test_switching_sessions_during_a_run_does_not_mix_their_messages(
    page: Page, server: EaselProcess
) -> None:
    talkative = await open_session(page, server)
    await send_message(page, script(COUNT_FOREVER))
    await expect(answer(page)).to_contain_text("tick 2")
    await page.get_by_role("button", name="New", exact=True).click()
    await expect(page.locator("#welcome")).to_be_visible()
    await send_message(page, script({"say": "Just this."}))
    await expect(answer(page)).to_have_text("Just this.")
    await page.locator(f"#session-list button[title='{talkative}']").click()
    await expect(answer(page)).to_contain_text("tick 5")
    await expect(page.locator("#turns")).not_to_contain_text("Just this.")
    await page.go_back()
    await expect(answer(page)).to_have_text("Just this.")
    await page.go_forward()
    await page.get_by_role("button", name="Stop", exact=True).click()
    await expect_ended(page, "cancelled")


async def test_enter_sends_and_shift_enter_starts_a_new_line(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await page.get_by_label("Message", exact=True).focus()
    await page.keyboard.type("noop")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("twice")
    await expect(page.locator("#turns .turn")).to_have_count(0)
    await page.keyboard.press("Enter")
    await expect(turn(page).locator(".question .text")).to_have_text("noop\ntwice")
    await expect(page.get_by_label("Message", exact=True)).to_have_value("")


async def test_chat_can_be_used_by_keyboard(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)

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


# --- turns, made of events ----------------------------------------------------------------------------------

SAID = """async (events) => {
    const { Thread, visibleItems, textOf } = await import("/ui/thread.js");
    const thread = new Thread();
    const data = ([type, ts, more]) => ({ type, ts, data: more });
    events.forEach((event, place) => thread.addEvent({ seq: place + 1, ...data(event) }));
    const part = (answer) => (item) => {
        if (item.pieces) return textOf(item);
        return item.kind === "final" ? answer.text : `[${item.tool} ${item.result ?? ""}]`;
    };
    const parts = (answer) => (answer ? visibleItems(answer).map(part(answer)) : []);
    return thread.inOrder().map(({ runId, answer }) => [runId, ...parts(answer)]);
}"""


def user_message(run: str) -> tuple[str, str, dict[str, str]]:
    return "message.completed", "0", {"role": "user", "run_id": f"run_{run}", "text": "?"}


def delta(run: str, at: str, text: str, **more: int) -> tuple[str, str, dict[str, Any]]:
    return "message.delta", at, {"message_id": f"msg_{run}", "text": text, **more}


def tool(kind: str, at: str, **more: str) -> tuple[str, str, dict[str, str]]:
    return f"tool.{kind}", at, {"call_id": "call_1", "tool": "T", **more}


def final_message(run: str, text: object) -> tuple[str, str, dict[str, object]]:
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
    # says, events, turns
    (
        "a text in pieces is one",
        [user_message("A"), delta("A", "1", "a"), delta("A", "1", "b")],
        [["run_A", "ab"]],
    ),
    (
        "a call stands where it was made",
        [user_message("A"), delta("A", "1", "a"), *CALL, delta("A", "4", "b")],
        [["run_A", "a", "[T 4]", "b"]],
    ),
    (
        "the next attempt repeats the unfinished step, known by its number",
        [
            user_message("A"),
            delta("A", "1", "a", attempt=1),
            *CALL,
            delta("A", "4", "half", attempt=1),
            delta("A", "4", "who", attempt=2),
            delta("A", "4", "le", attempt=2),
            delta("A", "4", "whole again", attempt=3),
        ],
        [["run_A", "a", "[T 4]", "whole again"]],
    ),
    (
        "a step whose answer broke off is repeated, known by its try",
        [
            user_message("A"),
            delta("A", "1", "a", attempt=1),
            *CALL,
            delta("A", "4", "half", attempt=1),
            delta("A", "4", "", attempt=1, **{"try": 2}),
            delta("A", "4", "whole", attempt=1, **{"try": 2}),
            tool("call", "5", call_id="call_2"),
            delta("A", "6", "next", attempt=1),
            delta("A", "6", "again", attempt=1, **{"try": 2}),
        ],
        [["run_A", "a", "[T 4]", "whole", "[T ]", "again"]],
    ),
    (
        "the first step too",
        [user_message("A"), delta("A", "1", "half", attempt=1), delta("A", "1", "whole", attempt=2)],
        [["run_A", "whole"]],
    ),
    (
        "a finished step is not repeated",
        [user_message("A"), delta("A", "1", "a", attempt=1), *CALL, delta("A", "4", "b", attempt=2)],
        [["run_A", "a", "[T 4]", "b"]],
    ),
    (
        "a call that is made again is one line",
        [user_message("A"), tool("call", "2"), *CALL],
        [["run_A", "[T 4]"]],
    ),
    (
        "a run that calls before it speaks is known by what follows: the one before it never began",
        [user_message("A"), user_message("B"), *CALL, delta("B", "4", "b")],
        [["run_A"], ["run_B", "[T 4]", "b"]],
    ),
    (
        "or by its end",
        [user_message("A"), user_message("B"), *CALL, final_message("B", "")],
        [["run_A"], ["run_B", "[T 4]"]],
    ),
    (
        "the message is right where the pieces are not",
        [user_message("A"), delta("A", "1", "x"), *CALL, final_message("A", "y")],
        [["run_A", "[T 4]", "y"]],
    ),
    (
        "who waits stands after who is answered",
        [user_message("A"), user_message("B"), delta("A", "1", "a"), final_message("A", "a")],
        [["run_A", "a"], ["run_B"]],
    ),
]


async def test_thread_builds_turns_from_events(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    for says, events, turns in TURNS:
        assert await page.evaluate(SAID, events) == turns, says
