"""The limits that end a tool loop, and the internal form of its events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from easel.core.run.conversation import ContextStart, ProviderData, Step, ToolCall, ToolResult, Usage
from easel.core.run.events import RunEvents
from easel.core.run.instructions import Instructions, OfferedTool
from easel.core.run.limits import LoopLimits, check_limits, check_rejections
from easel.core.run.progress import to_progress
from easel.errors import RejectionLimit, StepLimit, TokenLimit
from easel.ids import CallId, CanvasId, RunId
from tests.requirements import rule

OK = {"ok": True}
REJECTED = {"ok": False, "code": "PATCH_REJECTED"}
EXPIRED = {"ok": False, "code": "LEASE_EXPIRED"}


def patches(*values: Any, tool: str = "canvas_apply_patch") -> list[Step]:
    return [
        Step("", (ToolCall(CallId("c"), tool, {}),), (ToolResult(CallId("c"), tool, value),))
        for value in values
    ]


@rule("RS-52", "CT-44")
@pytest.mark.parametrize(
    "steps, ends",
    [
        (patches(REJECTED, REJECTED, REJECTED), True),
        (patches(OK, REJECTED, REJECTED, REJECTED), True),
        (patches(REJECTED, REJECTED, OK, REJECTED), False),
        (patches(REJECTED, REJECTED, EXPIRED), False),
        ([*patches(REJECTED, REJECTED), *patches("x", tool="canvas_grep"), *patches(REJECTED)], True),
    ],
)
def test_three_rejected_patches_in_a_row_end_the_loop(steps: list[Step], ends: bool):
    if ends:
        with pytest.raises(RejectionLimit, match="3 patches in a row"):
            check_rejections(steps, LoopLimits())
    else:
        check_rejections(steps, LoopLimits())


@rule("RS-52", "CT-44")
def test_steps_and_tokens_end_the_loop():
    assert (LoopLimits().max_steps, LoopLimits().max_rejected_patches) == (24, 3)
    steps = [Step("", (), usage=Usage(600, 100))] * 2
    check_limits(steps, LoopLimits(max_tokens=0))
    check_limits(steps, LoopLimits(max_tokens=1_401))
    with pytest.raises(TokenLimit, match="used 1400 of 1400 tokens"):
        check_limits(steps, LoopLimits(max_tokens=1_400))
    with pytest.raises(StepLimit, match="2 steps"):
        check_limits(steps, LoopLimits(max_steps=2))


@rule("CT-39")
def test_step_is_read_back_from_its_event_with_usage_and_provider_data():
    events = RunEvents(RunId("run_x"), agent_id="main", node_id="tool_loop")
    step = Step(
        "text",
        (ToolCall(CallId("call_1"), "t", {"a": [1, 2.5, None]}),),
        usage=Usage(10, 5, 3, 2),
        provider_data=ProviderData("gemini", {"parts": [{"thoughtSignature": "c2ln", "n": 9e9}], "ü": "é"}),
        prefix="abc",
    )
    start = ContextStart(RunId("run_1"), {CanvasId("c"): "rev", CanvasId("d"): None})
    tool = OfferedTool("t", "Do it.", {"type": "object", "properties": {"a": {"default": 1.0}}})
    instructions = Instructions("Be brief.", (tool,))
    sealed = events.step(1, step, start, instructions)
    progress = to_progress([(sealed.type, msgspec.json.decode(sealed.json))])
    assert progress.steps == (step,)
    assert progress.start == start
    assert progress.instructions == instructions
    assert msgspec.json.encode(progress.steps[0].provider_data) == msgspec.json.encode(step.provider_data)
    assert sealed.visibility == "internal"
