"""Base64 in the text of a model: shown as a reference, and loaded on demand."""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import Page, expect

from tests.browser.console import answer, expect_ended, open_session, script, send_message, turn
from tests.requirements import rule

if TYPE_CHECKING:
    from tests.support.processes import EaselProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

BASE64 = base64.b64encode(random.Random(10).randbytes(9_000)).decode()
SHOWN = """async ([events]) => {
    const { Thread, visibleItems, textOf } = await import("/ui/thread.js");
    const thread = new Thread();
    events.forEach(([type, data], place) => thread.addEvent({ seq: place + 1, type, ts: "1", data }));
    const part = (item) => {
        if (item.kind === "offloaded") return item.pieces[0].text.original_size;
        return item.pieces ? textOf(item) : item.kind;
    };
    return thread.inOrder().flatMap(({ answer }) => visibleItems(answer).map(part));
}"""


def delta(text: object) -> tuple[str, dict[str, object]]:
    return "message.delta", {"message_id": "msg_A", "text": text}


def marker(size: int) -> dict[str, object]:
    return {
        "redacted": True,
        "original_size": size,
        "sha256": "0" * 64,
        "uri": f"/api/artifacts/art_{'0' * 64}",
    }


def final_message(text: object) -> tuple[str, dict[str, object]]:
    return "message.completed", {
        "role": "assistant",
        "run_id": "run_A",
        "message_id": "msg_A",
        "text": text,
        "status": "completed",
    }


TOLD = [
    # says, events, what is shown
    (
        "a reference stands where it was said",
        [delta("a"), delta(marker(5_000)), delta("b")],
        ["a", 5_000, "b"],
    ),
    (
        "and stays if all adds up to the message",
        [delta("ä"), delta(marker(5_000)), final_message(marker(5_002))],
        ["ä", 5_000],
    ),
    (
        "the message counts if it does not",
        [delta("a"), delta(marker(5_000)), final_message(marker(7_000))],
        ["final"],
    ),
]


async def test_marker_between_deltas_is_shown_in_order(page: Page, server: EaselProcess) -> None:
    await open_session(page, server)
    for says, events, shown in TOLD:
        assert await page.evaluate(SHOWN, [events]) == shown, says


@rule("CC-23", "RS-35")
async def test_base64_of_a_model_is_shown_by_reference_in_every_tab(page: Page, server: EaselProcess) -> None:
    session = await open_session(page, server)
    await send_message(
        page, script({"say": "Here it is: "}, {"say": BASE64}, {"say": ", and that was all of it."})
    )
    await expect_ended(page)
    said = ["Here it is: ", "show 11.7 KB open", ", and that was all of it."]
    await expect(answer(page)).to_have_text(said)
    other = await page.context.new_page()  # is told what the worker kept for it
    await open_session(other, server, session)
    await expect(answer(other)).to_have_text(said)
    await expect(turn(other).locator(".answer")).not_to_contain_text("[object")
    await other.close()
    await answer(page).get_by_role("button", name="show 11.7 KB").click()
    await expect(answer(page).locator("pre.value")).to_have_text(BASE64)
