"""Base64 in the text of a message: shown as a reference, and loaded on demand. RS-62"""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from tests.browser.console import answer, expect_ended, open_session, script, send_message, turn
from tests.requirements import rule
from tests.support.encoded import say_in_pieces

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

BASE64 = base64.b64encode(random.Random(10).randbytes(9_000)).decode()
SHOWN = """async ([events]) => {
    const { attachmentsOf, textOf, Thread, visibleItems } = await import("/ui/thread.js");
    const { plainText } = await import("/ui/values.js");
    const thread = new Thread();
    events.forEach(([type, data], place) => thread.addEvent({ seq: place + 1, type, ts: "1", data }));
    const part = (item) => item.pieces ? plainText(textOf(item), attachmentsOf(item)) : item.kind;
    return thread.inOrder().flatMap(({ question, answer }) => [
        ...(question ? [plainText(question.text, question.attachments), question.isCut] : []),
        ...(answer ? visibleItems(answer).map(part) : []),
    ]);
}"""


REFERENCE = f"[[artifact:art_{'0' * 64}]]"


def delta(text: str, **members: object) -> tuple[str, dict[str, object]]:
    return "message.delta", {"message_id": "msg_A", "text": text, **members}


def marker(size: int) -> dict[str, object]:
    return {
        "redacted": True,
        "original_size": size,
        "sha256": "0" * 64,
        "uri": f"/api/artifacts/art_{'0' * 64}",
    }


def final_message(text: str, **members: object) -> tuple[str, dict[str, object]]:
    names = {"role": "assistant", "run_id": "run_A", "message_id": "msg_A", "status": "completed"}
    return "message.completed", {**names, "text": text, **members}


def of_user(event: tuple[str, dict[str, object]]) -> tuple[str, dict[str, object]]:
    return event[0], {**event[1], "message_id": "ask_A", "role": "user", "run_id": "run_A"}


ONE = {"attachments": [marker(5_120)]}
CASES = [
    # description, events, what is shown
    (
        "a reference with its marker is shown between the words",
        [delta("a "), delta(REFERENCE, **ONE), delta(" b")],
        ["a (5.0 KB) b"],
    ),
    ("a reference without its marker is text", [delta(f"a {REFERENCE}")], [f"a {REFERENCE}"]),
    (
        "the deltas stay if they add up to the message",
        [delta("ä "), delta(REFERENCE, **ONE), final_message(f"ä {REFERENCE}", **ONE)],
        ["ä (5.0 KB)"],
    ),
    (
        "the message counts if they do not",
        [delta("a "), delta(REFERENCE, **ONE), final_message(f"b {REFERENCE}", **ONE)],
        ["final"],
    ),
    (
        "the deltas of a cut message stay if they are complete",
        [delta("one "), delta("twö"), final_message("one", truncated=True, attachments=[marker(8)])],
        ["one twö"],
    ),
    (
        "a cut message counts if deltas are missing",
        [delta("one "), final_message("one", truncated=True, attachments=[marker(8)])],
        ["final"],
    ),
    (
        "a long question is joined from its deltas",
        [
            of_user(delta("one ")),
            of_user(delta("two")),
            of_user(final_message("on", truncated=True, attachments=[marker(7)])),
        ],
        ["one two", False],
    ),
    (
        "a long question without its first delta is its beginning",
        [of_user(delta("two")), of_user(final_message("on", truncated=True, attachments=[marker(7)]))],
        ["on", True],
    ),
]


@rule("RS-62")
async def test_texts_with_references_are_shown_in_order(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    for description, events, shown in CASES:
        assert await page.evaluate(SHOWN, [events]) == shown, description


@rule("CC-23", "RS-62")
async def test_base64_of_a_model_is_shown_by_reference_in_every_tab(page: Page, server: EaselProcess) -> None:
    session = await open_session(page, server)
    await send_message(
        page,
        script({"say": "Here it is: "}, *say_in_pieces(BASE64), {"say": ", and that was all of it."}),
    )
    await expect_ended(page)
    said = "Here it is: show 11.7 KB open, and that was all of it."
    await expect(answer(page)).to_have_text(said)
    other = await page.context.new_page()  # is told what the worker kept for it
    await open_session(other, server, session)
    await expect(answer(other)).to_have_text(said)
    await expect(turn(other).locator(".answer")).not_to_contain_text("[object")
    await other.close()
    await answer(page).get_by_role("button", name="show 11.7 KB").click()
    await expect(answer(page).locator("pre.value")).to_have_text(BASE64)


@rule("RS-62")
async def test_base64_of_a_person_is_shown_by_reference(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    await send_message(page, f"What is this? {BASE64} Thank you.")
    await expect_ended(page)
    question = turn(page).locator(".question .text")
    await expect(question).to_have_text("What is this? show 11.7 KB open Thank you.")
    await page.reload()
    await expect(question).to_have_text("What is this? show 11.7 KB open Thank you.")
    await question.get_by_role("button", name="show 11.7 KB").click()
    await expect(question.locator("pre.value")).to_have_text(BASE64)
