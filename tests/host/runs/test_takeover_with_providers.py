"""A run of a provider's model is continued by another worker while the tools of nodes have changed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from easel.core.run.conversation import Text
from easel.core.run.status import Status
from easel.llm.build import Models, RequestSettings
from easel.llm.retries import RetrySettings
from tests.host.conftest import TestTool
from tests.host.runs.models import CHOICE, RemoteModel, calls
from tests.host.runs.workers import AFTER_CLAIM, wait_until_ended, working
from tests.llm.talking import choice_of
from tests.llm.vendors import VENDORS
from tests.llm.vendors.answers import Answer, Call
from tests.llm.vendors.server import serve
from tests.requirements import rule
from tests.support.waiting import within_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from easel.core.tool.definition import ToolDefinition
    from easel.host.ports import Tool
    from easel.ids import AccountId
    from tests.host.conftest import RunHarness

# What a request has beside the messages, and a step must not change
BEGINNING = (
    "system",
    "systemInstruction",
    "instructions",
    "tools",
    "thinking",
    "reasoning",
    "generationConfig",
)


class NodeTools:
    """The tools of nodes, which answer `Hello`."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def definitions(self, _: AccountId) -> list[ToolDefinition]:
        return [tool.definition for tool in map(_greeter, self.names)]

    async def find(self, _: AccountId, name: str) -> Tool | None:
        return _greeter(name) if name in self.names else None


def _greeter(name: str) -> TestTool:
    async def greet(_: Mapping[str, Any]) -> Any:
        return "Hello"

    return TestTool(name, greet)


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    models = Models()
    yield models
    await models.close()


@rule("CT-41", "CT-42", "CT-43", "RX-49")
@pytest.mark.parametrize("provider", sorted(VENDORS))
async def test_run_is_continued_with_its_own_tools_after_a_node_left(
    provider: str, harness: RunHarness, models: Models
):
    """The strict server compares every answer, with its signatures, and what precedes the messages."""
    looked, never = asyncio.Event(), asyncio.Event()

    async def look_for_ever(_: Mapping[str, Any]) -> Any:
        looked.set()
        await never.wait()

    async def look(_: Mapping[str, Any]) -> Any:
        return "Nothing new."

    answers = [
        Answer(thinking="The laptop first.", text="I ask.", calls=(Call("laptop__Echo"), Call("look"))),
        Answer(thinking="Once more.", calls=(Call("laptop__Echo"),)),
        Answer(thinking="It is gone.", text="The laptop left."),
    ]
    with serve(VENDORS[provider](), answers) as server:
        choice = choice_of(provider, server.base_url, effort="high")
        options: dict[str, Any] = {"model": models.build_model(choice), "choice": choice}
        run_id = await harness.start("Who is there?")
        lost = harness.worker(
            TestTool("look", look_for_ever, read_only=True), sources=[NodeTools("laptop__Echo")], **options
        )
        assert await lost.once() == 1
        await within_timeout(looked.wait())
        harness.clock.ahead += AFTER_CLAIM
        later = harness.worker(
            TestTool("look", look, read_only=True), sources=[NodeTools("tower__Echo")], **options
        )
        async with working(later):
            run = await wait_until_ended(harness, run_id)
        [stuck] = lost._running.values()
        stuck.task.cancel()
        await asyncio.wait([stuck.task])

        assert (run.status, run.attempt, run.error_message) == (Status.COMPLETED, 2, None)
        assert not server.rejections
        sent = server.requests
        assert len(sent) == 3
        for name in BEGINNING:
            assert [request.get(name) for request in sent] == [sent[0].get(name)] * 3
        assert "laptop__Echo" in str(sent[0]["tools"])
    events = [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]
    first, _, gone = [data for kind, data in events if kind == "tool.result"]
    assert first["result"] == "Hello"
    assert "node laptop is not connected" in gone["error"]
    with_instructions = [data for kind, data in events if "instructions" in data]
    assert len(with_instructions) == 1, "the definitions are stored once per run"


@rule("RS-80", "RX-49")
@pytest.mark.parametrize("provider", sorted(VENDORS))
async def test_run_goes_on_when_the_answer_of_a_later_step_breaks_off(provider: str, harness: RunHarness):
    models = Models(RequestSettings(RetrySettings(first_wait_seconds=0.01)))
    used: list[Any] = []

    async def look(args: Mapping[str, Any]) -> Any:
        used.append(args)
        return "Nothing new."

    second = Answer(text="Now I look once more. " * 4, calls=(Call("look"),))
    answers = [Answer(calls=(Call("look"),)), replace(second, cut_after=12), second, Answer(text="Done.")]
    with serve(VENDORS[provider](), answers) as server:
        choice = choice_of(provider, server.base_url)
        worker = harness.worker(TestTool("look", look), model=models.build_model(choice), choice=choice)
        async with working(worker):
            run = await wait_until_ended(harness, run_id := await harness.start("What is new?"))
        assert not server.rejections
    await models.close()
    assert (run.status, run.attempt, len(used)) == (Status.COMPLETED, 1, 2)
    events = [(event.type, msgspec.json.decode(event.data)) for event in await harness.log(run_id)]
    assert {data["try"] for _, data in events if "try" in data} == {2}
    [message] = [data["text"] for kind, data in events if kind == "message.completed"]
    assert message == second.text + "\n\nDone."


async def test_new_tool_is_offered_from_the_next_run_on(harness: RunHarness):
    node_tools = NodeTools("laptop__Echo")
    model = RemoteModel([calls("connect")], [Text("ok")])

    async def connect(_: Mapping[str, Any]) -> Any:
        node_tools.names = ("tower__Echo",)

    worker = harness.worker(TestTool("connect", connect), model=model, choice=CHOICE, sources=[node_tools])
    async with working(worker):
        for _ in range(2):
            await wait_until_ended(harness, await harness.start("hello"))
    offered = [[tool.name for tool in tools if tool.name.endswith("__Echo")] for tools in model.tools]
    assert offered == [["gsv__Echo", "laptop__Echo"]] * 2 + [["gsv__Echo", "tower__Echo"]]
    systems = [conversation.system for conversation in model.conversations]
    assert systems[0] == systems[1]
    assert "Machines: laptop." in systems[1]
    assert "Machines: tower." in systems[2]


async def test_equal_instructions_of_two_runs_are_one_artifact(harness: RunHarness):
    stored: list[Any] = []
    for session in ("a", "b"):
        run_id = await harness.start("hello", session)
        model = RemoteModel([calls("gsv__Clock")], [Text("ok")])
        node_tools = NodeTools(*(f"laptop__Echo{number}" for number in range(50)))
        async with working(harness.worker(model=model, choice=CHOICE, sources=[node_tools])):
            await wait_until_ended(harness, run_id)
        events = [msgspec.json.decode(event.data) for event in await harness.log(run_id)]
        stored += [data["instructions"] for data in events if "instructions" in data]
    assert len(stored) == 2
    assert stored[0] == stored[1]
    assert stored[0]["redacted"] is True
