"""Base64 in messages is in no log: references are in its place, and restore it exactly. RS-62"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.conversation import Text
from easel.core.run.deltas import DELTA_SECONDS
from easel.core.stream.payload_limit import LIMIT, markers_in, restore_markers
from easel.host.artifacts.artifacts import read_text, restore_text
from easel.ids import OWNER, SessionId
from easel.llm.scripted import ScriptedModel
from tests.host.runs.workers import script, wait_until_ended, working
from tests.requirements import case, rule
from tests.support.principals import THE_OWNER
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


class ScriptModel:
    """Plays a script of its own: a script in the user's message has references in place of Base64."""

    is_remote = False

    def __init__(self, *steps: dict[str, Any]) -> None:
        self._script = script(*steps)
        self.conversations: list[Conversation] = []

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        self.conversations.append(conversation)
        async for part in ScriptedModel().reply(replace(conversation, user_message=self._script), tools):
            yield part


async def rows(harness: RunHarness, run_id: RunId) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]


async def restore(harness: RunHarness, value: Any) -> Any:
    return restore_markers(
        value, {name: await harness.artifacts.read(OWNER, name) for name in markers_in(value)}
    )


@rule("CC-23", "RS-62")
@case("R3")
@pytest.mark.parametrize("kind", ["say", "think"])
@pytest.mark.parametrize("form", ANSWERS)
async def test_streamed_base64_is_offloaded_from_the_deltas(
    harness: RunHarness, form: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    # A slow machine must not look like a model that pauses.
    monkeypatch.setattr("easel.host.runs.log_writer.MAX_HELD_SECONDS", 3600.0)
    steps = [{kind: step["say"]} if "say" in step else step for step in ANSWERS[form]]
    model = ScriptModel(*steps, {"call": "gsv__Echo", "args": {"value": 1}}, {"say": "Done."})
    run_id = await harness.start("show it")
    async with working(harness.worker(model=model)):
        assert (await wait_until_ended(harness, run_id)).status == "completed"
    log = await rows(harness, run_id)
    name = "message.delta" if kind == "say" else "reasoning.delta"
    deltas = [data for event_type, data in log if event_type == name]
    logged = "".join(data["text"] for data in deltas)
    [marker] = [marker for data in deltas for marker in data.get("attachments", [])]
    assert f"{BEFORE}[[artifact:art_{marker['sha256']}]]{AFTER}" in logged
    assert all(len(msgspec.json.encode(data)) <= LIMIT + 100 for data in deltas)
    restored = "".join([await restore_text(harness.artifacts, OWNER, data) for data in deltas])
    text = "".join(step.get(kind, "") for step in steps)
    assert restored == (f"{text}\n\nDone." if kind == "say" else text)
    [_, answer] = await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10)
    assert answer.text == (logged if kind == "say" else "Done.")
    assert list(answer.attachments) == ([marker] if kind == "say" else [])
    [completed] = [data for event_type, data in log if event_type == "message.completed"]
    assert (completed["text"], completed.get("attachments", [])) == (answer.text, list(answer.attachments))


@rule("RS-62")
async def test_model_gets_texts_with_references(harness: RunHarness):
    model = ScriptModel({"say": f"It is {BASE64}"}, {"call": "gsv__Echo", "args": {"value": 1}})
    run_id = await harness.start(f"What is {BASE64}? And [[artifact:art_{'0' * 64}]]?")
    async with working(harness.worker(model=model)):
        await wait_until_ended(harness, run_id)
    reference = f"[[artifact:art_{hashlib.sha256(BASE64.encode()).hexdigest()}]]"
    last = model.conversations[-1]
    assert last.user_message == f"What is {reference}? And [[artifact:art_{'0' * 64}]]?"
    assert [step.text for step in last.steps] == [f"It is {reference}"]
    [step] = [data for event_type, data in await rows(harness, run_id) if event_type == "step.completed"]
    assert (await restore(harness, step))["text"] == f"It is {BASE64}", "the next worker reads it whole"


@rule("RS-62", "RS-35")
async def test_long_question_reaches_the_thread_in_deltas_before_its_event(harness: RunHarness):
    text = f"Please read this: {'wörd ' * 2_000}{BASE64} and {'more ' * 900}"
    run_id = await harness.start(text)
    thread = await harness.database.sessions.events_after(f"{OWNER}/s", 0, 100)
    assert [event.seq for event in thread] == list(range(1, len(thread) + 1))
    events = [(event.type, msgspec.json.decode(event.data)) for event in thread]
    *deltas, (last_type, completed) = events
    assert {event_type for event_type, _ in deltas} == {"message.delta"}
    assert last_type == "message.completed"
    assert all((data["role"], data["run_id"]) == ("user", run_id) for _, data in events)
    assert {data["message_id"] for _, data in events} == {completed["message_id"]}
    assert all(len(msgspec.json.encode(data)) <= LIMIT + 100 for _, data in events)
    [question] = await harness.database.sessions.list_messages(OWNER, SessionId("s"), before=None, limit=10)
    assert "".join(data["text"] for _, data in deltas) == question.text
    assert "".join([await restore_text(harness.artifacts, OWNER, data) for _, data in deltas]) == text
    assert completed["truncated"] is True
    assert question.text.startswith(completed["text"])
    assert len(completed["text"]) > 500
    assert await read_text(harness.artifacts, OWNER, completed) == question.text
    assert await restore_text(harness.artifacts, OWNER, completed) == text
    assert await harness.log(run_id) == [], "the run's own log does not have the question"
    run = await harness.queue.get(THE_OWNER, run_id)
    assert (run.input_text, run.input_attachments) == (question.text, question.attachments)


@rule("RS-62")
async def test_short_question_is_one_event(harness: RunHarness):
    await harness.start("x" * 1_700)
    [event] = await harness.database.sessions.events_after(f"{OWNER}/s", 0, 100)
    assert (event.type, "truncated" in event.data) == ("message.completed", False)


class PausingModel:
    """A model that sends Base64 in two halves with a pause between them."""

    is_remote = False

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
        data["attachments"][0]["original_size"]
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
