"""The calls of a node: all output is sent before the answer, and none after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from easel.core.secret.mask import MaskedStream, SecretMask
from easel.core.tool.definition import ToolDefinition
from easel.errors import ToolFailed
from easel.node import calls as node_calls
from easel.node.calls import CallLimits, Calls
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = 30.0
LONG_SECONDS = 60.0  # longer than any test waits for a batch


class Printer:
    """A tool that prints the given lines, and ends in the given way."""

    definition = ToolDefinition("Print", "For a test.", {"type": "object"})

    def __init__(self) -> None:
        self.has_printed = asyncio.Event()

    async def use(
        self,
        args: Mapping[str, Any],
        context: None,
        on_output: Callable[[str], None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Any:
        assert on_output is not None
        for line in args["lines"]:
            on_output(line)
            await asyncio.sleep(0)
        self.has_printed.set()
        if args["end"] == "never":
            await asyncio.Event().wait()
        if args["end"] == "break":
            raise ValueError(f"cannot use {args['key']}")
        if args["end"] == "fail":
            raise ToolFailed(tool="Print", reason="not found.")
        return "printed"


class CallsWithPrinter:
    """Calls of the printer, and what they send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.printer = Printer()
        self.calls = Calls([self.printer], self._send, CallLimits())
        self._is_answered = asyncio.Event()

    async def _send(self, method: str, params: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)  # like a socket
        assert params["callId"] == "c"
        self.sent.append((method, params.get("text", params.get("result", params.get("error")))))
        if method == node_calls.RESULT:
            self._is_answered.set()

    async def call(self, end: str, *lines: str, **more: str) -> None:
        self.calls.start("c", "Print", {"lines": lines, "end": end, **more})
        async with asyncio.timeout(SECONDS):
            await (self.printer.has_printed if end == "never" else self._is_answered).wait()


@pytest.fixture
def long_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_calls, "BATCH_SECONDS", LONG_SECONDS)


@rule("CV-37")
@pytest.mark.parametrize("end, answer", [("return", "printed"), ("fail", "not found.")])
@pytest.mark.usefixtures("long_batches")
async def test_last_output_is_flushed_before_the_answer(end: str, answer: str) -> None:
    calls = CallsWithPrinter()
    await calls.call(end, "one\n", "two\n")
    assert calls.sent == [("tool.progress", "one\ntwo\n"), ("tool.result", answer)]
    await calls.calls.close()


@rule("CV-37")
async def test_output_is_sent_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_calls, "BATCH_SECONDS", 0)
    calls = CallsWithPrinter()
    lines = [f"{n}\n" for n in range(50)]
    await calls.call("return", *lines)
    assert "".join(text for _, text in calls.sent[:-1]) == "".join(lines)
    assert calls.sent[-1] == ("tool.result", "printed")
    await calls.calls.close()


@rule("RS-66")
@pytest.mark.parametrize("shown", [1, 6, 12, 19])
@pytest.mark.usefixtures("long_batches")
async def test_output_that_is_left_out_shows_no_end_of_a_secret(shown: int) -> None:
    """A node prints so fast that a batch begins in the middle of a secret, which the server has to hide."""
    secret = "a-key-of-20-letters!"
    calls = CallsWithPrinter()
    after = "." * (node_calls.MAX_BATCH_LENGTH - shown)
    await calls.call("return", "first line\n", f"{secret}{after[: -len(' end')]}", " end")
    [(_, text), _] = calls.sent
    assert text.startswith(f"\n… [{len('first line') + 1 + len(secret) - shown} characters left out] …\n")
    assert text.endswith(f"{secret[-shown:]}{after[: -len(' end')]} end")
    stream = MaskedStream(SecretMask({"KEY": secret}))
    seen = stream.feed("before a-key-of") + stream.feed(text) + stream.close()
    assert seen.startswith("before [secret KEY]\n… [")
    assert f" …\n[secret KEY]{after[: -len(' end')]} end" in seen
    await calls.calls.close()


@rule("RS-66")
async def test_unexpected_error_of_a_tool_is_logged_without_its_message() -> None:
    calls = CallsWithPrinter()
    with structlog.testing.capture_logs() as logged:
        await calls.call("break", key="s3cret-value")
    assert calls.sent == [("tool.result", "raised ValueError on the node.")]
    [line] = [line for line in logged if line["event"] == "node.tool_error"]
    assert line["error"] == "ValueError"
    assert "test_calls.py" in line["place"]
    assert "s3cret-value" not in repr(line)
    await calls.calls.close()


async def test_call_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_calls, "MAX_CONCURRENT_CALLS", 2)
    answers: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()

    async def send(_: str, params: Mapping[str, Any]) -> None:
        answers.put_nowait(params)

    calls = Calls([Printer()], send, CallLimits())
    for name in ("first", "second", "third"):
        calls.start(name, "Print", {"lines": [], "end": "never"})
    async with asyncio.timeout(SECONDS):
        refused = await answers.get()
    assert refused == {"callId": "third", "error": "this node runs 2 calls, which is its limit."}
    await calls.close()
    assert answers.empty(), "the others were running"


@rule("CV-23")
@pytest.mark.usefixtures("long_batches")
async def test_cancelled_call_sends_nothing() -> None:
    calls = CallsWithPrinter()
    await calls.call("never", "one\n")
    calls.calls.cancel("c")
    await calls.calls.close()
    assert calls.sent == []
