"""The scripted model plays exactly its script."""

import json
from typing import Any

import pytest

from easel.core.run.conversation import Conversation, Part, Step, Text, Thought, ToolCall, ToolResult
from easel.core.tool.definition import ToolDefinition
from easel.errors import ModelFailed
from easel.ids import CallId
from easel.llm.scripted import ScriptedModel

TOOLS = [ToolDefinition("gsv__Echo", "Gives back.", {})]


async def answer(message: str, *results: Any) -> list[Part]:
    """Return the model's reply after these tool results."""
    steps = tuple(
        Step("", (ToolCall(CallId(f"call_{n}"), "t", {}),), (ToolResult(CallId(f"call_{n}"), "t", value),))
        for n, value in enumerate(results, 1)
    )
    return [part async for part in ScriptedModel().reply(Conversation(message, steps), TOOLS)]


def script(*steps: dict[str, Any]) -> str:
    return json.dumps({"script": steps})


async def test_noop_has_no_output():
    assert await answer("noop") == []
    assert await answer(" noop\n") == []


async def test_ordinary_message_gets_a_helpful_answer():
    for message in ("Hello!", "{not json", '{"script": 5}', "[1]", '{"a": 1}', "{" * 5000):
        [part] = await answer(message)
        assert isinstance(part, Text)
        assert "gsv__Echo" in part.text
        assert '{"script":' in part.text


async def test_text_thoughts_and_ticks_come_in_order():
    parts = await answer(
        script({"say": "a"}, {"think": "b"}, {"ticks": 2, "every_ms": 0}, {"wait_ms": 0}, {"say": "c"})
    )
    assert parts == [Text("a"), Thought("b"), Text("tick 1\n"), Text("tick 2\n"), Text("c")]


async def test_call_ends_the_turn_until_its_result_exists():
    message = script({"say": "a"}, {"call": "t", "args": {"x": 1}}, {"say": "b"}, {"call": "u"}, {"say": "c"})
    assert await answer(message) == [Text("a"), ToolCall(CallId("call_1"), "t", {"x": 1})]
    assert await answer(message, "first") == [Text("b"), ToolCall(CallId("call_2"), "u", {})]
    assert await answer(message, "first", "second") == [Text("c")]


POINTERS = [
    # args                             results                                       resolved
    ({"v": "$last"}, [1, {"a": 2}], {"v": {"a": 2}}),
    ({"v": "$last.a"}, [1, {"a": 2}], {"v": 2}),
    ({"v": "$1.a.0.b"}, [{"a": [{"b": "deep"}]}, 9], {"v": "deep"}),
    ({"v": ["$2", {"w": "$1"}]}, ["x", "y"], {"v": ["y", {"w": "x"}]}),
    ({"v": "costs $1.50 or more"}, [1], {"v": "costs $1.50 or more"}),
    ({"v": "$lastly"}, [1], {"v": "$lastly"}),
    ({"v": "$0"}, [1], {"v": "$0"}),
]


@pytest.mark.parametrize("args, results, become", POINTERS, ids=[str(row[0]) for row in POINTERS])
async def test_references_are_replaced_by_values_of_earlier_results(
    args: dict[str, Any], results: list[Any], become: dict[str, Any]
):
    steps = [{"call": "t"}] * len(results)
    [call] = await answer(script(*steps, {"call": "t", "args": args}), *results)
    assert isinstance(call, ToolCall)
    assert call.args == become


FAILURES = [
    # step                             reason
    ({"fail": "as asked"}, "as asked"),
    ({"call": "t", "args": {"v": "$last"}}, "there are 0"),
    ({"call": "t", "args": {"v": "$3.a"}}, "there are 0"),
    ({"wait_ms": -1}, "wait_ms"),
    ({"wait_ms": "long"}, "wait_ms"),
    ({"ticks": True}, "ticks"),
    ({"ticks": 10**9}, "ticks"),
    ({"sing": "la"}, "sing"),
    ({}, "nothing"),
    (5, "step 1"),
]


@pytest.mark.parametrize("step, says", FAILURES, ids=[str(row[0]) for row in FAILURES])
async def test_invalid_script_fails_with_its_reason(step: Any, says: str):
    with pytest.raises(ModelFailed, match=says):
        await answer(script(step))


async def test_reference_to_a_missing_value_names_it():
    with pytest.raises(ModelFailed, match="'b'"):
        await answer(script({"call": "t"}, {"call": "t", "args": {"v": "$1.a.b"}}), {"a": {}})
