"""Runs on a real model server, over each of its three wires.

The model is too small to answer well. What holds whatever it writes: pieces, usage, the end of a request,
the loss of the server, and the limits of a turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.conversation import Conversation, Text, Usage
from easel.core.run.status import Status
from easel.llm.build import Models, RequestSettings
from easel.llm.request import CUT_OFF
from easel.llm.retries import RetrySettings
from tests.host.runs.workers import wait_until_ended, working
from tests.llm.talking import ask, choice_of, texts
from tests.real_model.server import CONTEXT_TOKENS
from tests.requirements import rule
from tests.support.principals import THE_OWNER
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from easel.ids import RunId
    from tests.host.conftest import RunHarness
    from tests.real_model.conftest import ModelServer

SETTINGS = RequestSettings(RetrySettings(max_attempts=2, first_wait_seconds=0.1, max_wait_seconds=1.0))
MAX_STEPS = 3


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    models = Models(SETTINGS)
    yield models
    await models.close()


def options(models: Models, provider: str, server: ModelServer) -> dict[str, Any]:
    """Return the options of a worker whose runs use the server."""
    choice = choice_of(provider, server.base_url(provider))
    return {"choice": choice, "model": models.build_model(choice)}


async def data_of(harness: RunHarness, run_id: RunId, event_type: str) -> list[dict[str, Any]]:
    events = await harness.log(run_id)
    return [msgspec.json.decode(event.data) for event in events if event.type == event_type]


@rule("CT-40", "CT-41", "CT-43", "RS-70")
async def test_answer_arrives_in_pieces_with_its_usage(
    provider: str, model_server: ModelServer, models: Models
):
    model = models.build_model(choice_of(provider, model_server.base_url(provider)))
    parts = await ask(model, Conversation("Count from one to twenty."), ())
    assert len([part for part in parts if isinstance(part, Text)]) > 5
    assert texts(parts).removesuffix(CUT_OFF).strip()
    [usage] = [part for part in parts if isinstance(part, Usage)]
    assert usage.input_tokens > 5
    assert 5 < usage.output_tokens < CONTEXT_TOKENS


@rule("CT-45")
async def test_stop_in_the_middle_of_an_answer_ends_the_request_at_the_model_s_server(
    provider: str, endless_server: ModelServer, models: Models, harness: RunHarness
):
    run_id = await harness.start("Tell me a long story.")
    async with working(harness.worker(**options(models, provider, endless_server))):
        await wait_for_text(harness, run_id)
        assert await asyncio.to_thread(endless_server.is_answering)
        await harness.queue.cancel(THE_OWNER, run_id)
        run = await wait_until_ended(harness, run_id)
        assert run.status is Status.CANCELLED

        async def is_idle() -> bool:
            return not await asyncio.to_thread(endless_server.is_answering)

        await wait_for(is_idle)
    [message] = await data_of(harness, run_id, "message.completed")
    assert message["text"]


async def wait_for_text(harness: RunHarness, run_id: RunId) -> None:
    async def has_text() -> bool:
        return bool(await data_of(harness, run_id, "message.delta"))

    await wait_for(has_text, within=60)


@rule("RS-80")
async def test_server_that_is_killed_in_an_answer_fails_the_run_and_one_started_again_answers(
    provider: str, endless_server: ModelServer, models: Models, harness: RunHarness
):
    async with working(harness.worker(**options(models, provider, endless_server))):
        run_id = await harness.start("Tell me a long story.", "first")
        await wait_for_text(harness, run_id)
        endless_server.kill()
        run = await wait_until_ended(harness, run_id)
        assert (run.status, run.attempt) == (Status.FAILED, 1)
        assert "no route to" in (run.error_message or "")
        assert "after 2 attempts" in (run.error_message or "")

        endless_server.start()
        later = await harness.start("Tell me another one.", "second")
        await wait_for_text(harness, later)
        await harness.queue.cancel(THE_OWNER, later)
        await wait_until_ended(harness, later)


async def test_turn_with_tools_ends_by_an_answer_or_a_named_limit(
    provider: str, model_server: ModelServer, models: Models, harness: RunHarness
):
    run_id = await harness.start("What time is it? Use your tools.")
    worker = harness.worker(max_steps=MAX_STEPS, **options(models, provider, model_server))
    async with working(worker):
        run = await wait_until_ended(harness, run_id)
    steps = await data_of(harness, run_id, "step.completed")
    assert 1 <= len(steps) <= MAX_STEPS
    assert all(step["usage"]["input_tokens"] for step in steps)
    limits = f"{MAX_STEPS} steps", "the conversation is longer than"
    is_limited = any(limit in (run.error_message or "") for limit in limits)
    assert run.status is (Status.FAILED if is_limited else Status.COMPLETED)
