"""Base64 in a model's answer is in no log, and is restored from its reference."""

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
BEFORE, AFTER = "Here it is, as requested: ", ", and that was the whole picture."


def in_chunks(text: str, size: int) -> list[dict[str, Any]]:
    """Return the steps of a script that streams the text in chunks."""
    return [
        step for at in range(0, len(text), size) for step in ({"say": text[at : at + size]}, {"wait_ms": 1})
    ]


ANSWERS = {
    "at once": [{"say": BEFORE + BASE64 + AFTER}],
    "in three": [{"say": BEFORE}, {"say": BASE64}, {"say": AFTER}],
    "in chunks": [{"say": BEFORE}, *in_chunks(BASE64, 700), {"say": AFTER}],
    "in small chunks": [{"say": BEFORE}, *in_chunks(BASE64[:5_000], 12), {"say": AFTER}],
}


async def rows(harness: RunHarness, run_id: RunId) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]


async def restore(harness: RunHarness, value: Any) -> Any:
    return restore_markers(
        value, {name: await harness.artifacts.read(OWNER, name) for name in markers_in(value)}
    )


@rule("CC-23", "RS-35")
@case("R3")
@pytest.mark.parametrize("kind", ["say", "think"])
@pytest.mark.parametrize("form", ANSWERS)
async def test_streamed_base64_is_offloaded_from_the_deltas(
    harness: RunHarness, form: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    # A slow machine must not look like a model that pauses.
    monkeypatch.setattr("easel.host.runs.log_writer.MAX_HELD_SECONDS", 3600.0)
    steps = [{kind: step["say"]} if "say" in step else step for step in ANSWERS[form]]
    run_id = await harness.start(
        script(*steps, {"call": "gsv__Echo", "args": {"value": 1}}, {"say": "Done."})
    )
    async with working(harness.worker()):
        assert (await wait_until_ended(harness, run_id)).status == "completed"
    log = await rows(harness, run_id)
    name = "message.delta" if kind == "say" else "reasoning.delta"
    deltas = [data for event_type, data in log if event_type == name]
    logged = "".join(data["text"] if isinstance(data["text"], str) else "[offloaded]" for data in deltas)
    assert not holds_base64(logged)
    assert logged.startswith(BEFORE)
    assert AFTER in logged
    assert all(len(msgspec.json.encode(data)) <= LIMIT + 100 for data in deltas)
    restored = "".join([(await restore(harness, data))["text"] for data in deltas])
    text = "".join(step.get(kind, "") for step in steps)
    assert restored == (f"{text}\n\nDone." if kind == "say" else text)
    [_, answer] = await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10)
    assert await restore(harness, answer.content) == (restored if kind == "say" else "Done.")


@rule("RX-06", "RS-38")
async def test_model_gets_its_own_offloaded_text_whole(harness: RunHarness):
    """The previous step is read from the log, where its text is a marker."""
    run_id = await harness.start(
        script({"say": BASE64}, {"call": "gsv__Echo", "args": {"value": 1}}, {"say": "Done."})
    )
    async with working(harness.worker()):
        await wait_until_ended(harness, run_id)
    [step] = [data for event_type, data in await rows(harness, run_id) if event_type == "step.completed"]
    assert (await restore(harness, step))["text"] == BASE64


class PausingModel:
    """A model that sends Base64 in two halves with a pause between them."""

    def __init__(self, pause: Callable[[], Awaitable[None]]) -> None:
        self._pause = pause

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        yield Text(BASE64[:6_000])
        await self._pause()
        yield Text(BASE64[6_000:12_000])


async def delta_sizes(harness: RunHarness, pause: Callable[[RunId], Awaitable[None]]) -> list[int]:
    """Run the pausing model and return the sizes of its deltas."""
    run_id = await harness.start("noop")
    async with working(harness.worker(model=PausingModel(lambda: pause(run_id)))):
        await wait_until_ended(harness, run_id)
    return [
        data["text"]["original_size"]
        for event_type, data in await rows(harness, run_id)
        if event_type == "message.delta"
    ]


async def test_held_text_is_written_when_no_text_follows(
    harness: RunHarness, monkeypatch: pytest.MonkeyPatch
):
    async def pause_briefly(_: RunId) -> None:
        await asyncio.sleep(4 * DELTA_SECONDS)

    async def wait_for_delta(run_id: RunId) -> None:
        async def has_delta() -> bool:
            return "message.delta" in await harness.types(run_id)

        await wait_for(has_delta)

    monkeypatch.setattr("easel.host.runs.log_writer.MAX_HELD_SECONDS", 3600.0)
    assert await delta_sizes(harness, pause_briefly) == [12_000]
    monkeypatch.setattr("easel.host.runs.log_writer.MAX_HELD_SECONDS", 0.05)
    assert await delta_sizes(harness, wait_for_delta) == [6_000, 6_000]
