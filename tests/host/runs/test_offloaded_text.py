"""Base64 that a model says is in no log, and whoever reads the log gets it whole by its reference."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.conversation import Text
from easel.core.run.deltas import DELTA_SECONDS
from easel.core.stream.base64_runs import holds_base64
from easel.core.stream.payload_limit import LIMIT, markers_in, restore_markers
from easel.ids import OWNER, SessionId
from tests.host.runs.workers import script, wait_until_ended, working
from tests.requirements import case, rule
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from easel.core.run.conversation import Conversation, Part
    from easel.core.tool.definition import ToolDefinition
    from easel.ids import RunId
    from tests.host.conftest import RunHarness

BASE64 = base64.b64encode(random.Random(9).randbytes(60_000)).decode()
BEFORE, BEHIND = "Here it is, as you asked: ", ", and that was all that there is of it."


def in_chunks(text: str, size: int) -> list[dict[str, Any]]:
    """As a model streams it."""
    return [
        step for at in range(0, len(text), size) for step in ({"say": text[at : at + size]}, {"wait_ms": 1})
    ]


SAID = {
    "at once": [{"say": BEFORE + BASE64 + BEHIND}],
    "in three": [{"say": BEFORE}, {"say": BASE64}, {"say": BEHIND}],
    "in chunks": [{"say": BEFORE}, *in_chunks(BASE64, 700), {"say": BEHIND}],
    "in small chunks": [{"say": BEFORE}, *in_chunks(BASE64[:5_000], 12), {"say": BEHIND}],
}


async def rows(harness: RunHarness, run_id: RunId) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]


async def whole(harness: RunHarness, value: Any) -> Any:
    return restore_markers(
        value, {name: await harness.artifacts.read(OWNER, name) for name in markers_in(value)}
    )


@rule("CC-23", "RS-35")
@case("R3")
@pytest.mark.parametrize("kind", ["say", "think"])
@pytest.mark.parametrize("how", SAID)
async def test_streamed_base64_is_offloaded_from_the_deltas(
    harness: RunHarness, how: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "easel.host.runs.log_writer.MAX_HELD_SECONDS", 3600.0
    )  # a machine that stops is no model that pauses
    steps = [{kind: step["say"]} if "say" in step else step for step in SAID[how]]
    run_id = await harness.start(
        script(*steps, {"call": "gsv__Echo", "args": {"value": 1}}, {"say": "Done."})
    )
    async with working(harness.worker()):
        assert (await wait_until_ended(harness, run_id)).status == "completed"
    log = await rows(harness, run_id)
    name = "message.delta" if kind == "say" else "reasoning.delta"
    deltas = [data for event_type, data in log if event_type == name]
    in_the_log = "".join(data["text"] if isinstance(data["text"], str) else "[moved]" for data in deltas)
    assert not holds_base64(in_the_log)
    assert in_the_log.startswith(BEFORE)
    assert BEHIND in in_the_log
    assert all(len(msgspec.json.encode(data)) <= LIMIT + 100 for data in deltas)
    told = "".join([(await whole(harness, data))["text"] for data in deltas])
    said = "".join(step.get(kind, "") for step in steps)
    assert told == (f"{said}\n\nDone." if kind == "say" else said)
    [_, answer] = await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10)
    assert await whole(harness, answer.content) == (told if kind == "say" else "Done.")


@rule("RX-06", "RS-38")
async def test_model_gets_its_own_offloaded_text_whole(harness: RunHarness):
    """The step that came before is read from the log, where its text is a reference."""
    run_id = await harness.start(
        script({"say": BASE64}, {"call": "gsv__Echo", "args": {"value": 1}}, {"say": "Done."})
    )
    async with working(harness.worker()):
        await wait_until_ended(harness, run_id)
    [step] = [data for event_type, data in await rows(harness, run_id) if event_type == "step.completed"]
    assert (await whole(harness, step))["text"] == BASE64


class InTwo:
    """A model that says Base64 in two halves, with a pause between them."""

    def __init__(self, pause: Callable[[], Awaitable[None]]) -> None:
        self._pause = pause

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        yield Text(BASE64[:6_000])
        await self._pause()
        yield Text(BASE64[6_000:12_000])


async def sizes(harness: RunHarness, pause: Callable[[RunId], Awaitable[None]]) -> list[int]:
    """Of its deltas."""
    run_id = await harness.start("noop")
    async with working(harness.worker(model=InTwo(lambda: pause(run_id)))):
        await wait_until_ended(harness, run_id)
    return [
        data["text"]["original_size"]
        for event_type, data in await rows(harness, run_id)
        if event_type == "message.delta"
    ]


async def test_held_text_is_written_when_no_text_follows(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    async def a_moment(_: RunId) -> None:
        await asyncio.sleep(4 * DELTA_SECONDS)

    async def until_it_is_told(run_id: RunId) -> None:
        async def is_told() -> bool:
            return "message.delta" in await harness.types(run_id)

        await wait_for(is_told)

    monkeypatch.setattr("easel.host.runs.log_writer.MAX_HELD_SECONDS", 3600.0)
    assert await sizes(harness, a_moment) == [12_000]
    monkeypatch.setattr("easel.host.runs.log_writer.MAX_HELD_SECONDS", 0.05)
    assert await sizes(harness, until_it_is_told) == [6_000, 6_000]
