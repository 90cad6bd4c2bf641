"""What a node says of its calls: all that a command prints comes before its answer, and nothing after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.tool.definition import ToolDefinition
from easel.errors import ToolFailed
from easel.node import calls as node_calls
from easel.node.calls import CallLimits, Calls
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = 30.0
LONG_SECONDS = 60.0  # nobody waits so long for what is gathered


class Printer:
    """Prints what it is told to, and ends as it is told to."""

    definition = ToolDefinition("Print", "For a test.", {"type": "object"})

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def use(
        self, args: Mapping[str, Any], context: None, on_output: Callable[[str], None] | None = None
    ) -> Any:
        assert on_output is not None
        for line in args["lines"]:
            on_output(line)
            await asyncio.sleep(0)
        self.begun.set()
        if args["end"] == "never":
            await asyncio.Event().wait()
        if args["end"] == "fail":
            raise ToolFailed(tool="Print", reason="it is not there.")
        return "printed"


class Desk:
    """Calls, and what was said of them."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        self.printer = Printer()
        self.calls = Calls([self.printer], self._say, CallLimits())
        self._has_answered = asyncio.Event()

    async def _say(self, method: str, params: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)  # as a socket takes its time
        assert params["callId"] == "c"
        self.said.append((method, params.get("text", params.get("result", params.get("error")))))
        if method == node_calls.RESULT:
            self._has_answered.set()

    async def call(self, end: str, *lines: str) -> None:
        self.calls.begin("c", "Print", {"lines": lines, "end": end})
        async with asyncio.timeout(SECONDS):
            await (self.printer.begun if end == "never" else self._has_answered).wait()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_calls, "GATHER_SECONDS", LONG_SECONDS)


@rule("CV-37")
@pytest.mark.parametrize("end, answer", [("return", "printed"), ("fail", "it is not there.")])
@pytest.mark.usefixtures("slow")
async def test_what_was_printed_last_comes_before_the_answer_and_is_not_waited_for(
    end: str, answer: str
) -> None:
    desk = Desk()
    await desk.call(end, "one\n", "two\n")
    assert desk.said == [("tool.progress", "one\ntwo\n"), ("tool.result", answer)]
    await desk.calls.close()


@rule("CV-37")
async def test_nothing_is_said_twice_or_out_of_order_however_it_is_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_calls, "GATHER_SECONDS", 0)
    desk = Desk()
    lines = [f"{n}\n" for n in range(50)]
    await desk.call("return", *lines)
    assert "".join(text for _, text in desk.said[:-1]) == "".join(lines)
    assert desk.said[-1] == ("tool.result", "printed")
    await desk.calls.close()


async def test_it_does_so_much_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_calls, "AT_ONCE", 2)
    answers: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()

    async def say(_: str, params: Mapping[str, Any]) -> None:
        answers.put_nowait(params)

    calls = Calls([Printer()], say, CallLimits())
    for name in ("first", "second", "third"):
        calls.begin(name, "Print", {"lines": [], "end": "never"})
    async with asyncio.timeout(SECONDS):
        refused = await answers.get()
    assert refused == {"callId": "third", "error": "this node does 2 things at once, and no more."}
    await calls.close()
    assert answers.empty(), "the others were under way"


@rule("CV-23")
@pytest.mark.usefixtures("slow")
async def test_of_a_call_that_is_stopped_nothing_more_is_said() -> None:
    desk = Desk()
    await desk.call("never", "one\n")
    desk.calls.cancel("c")
    await desk.calls.close()
    assert desk.said == []
