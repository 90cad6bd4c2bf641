"""The scripted model: follows the script in the user's message instead of calling a provider.

Owns the script format. Has no state: the position in the script follows from the number of tool results in
the conversation, so that a worker that takes over a run can continue the script.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec

from easel.core.run.conversation import Conversation, Part, Text, Thought, ToolCall, ToolResult
from easel.core.tool.definition import ToolDefinition
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.errors import ModelFailed
from easel.ids import CallId

MAX_WAIT_MS = 3_600_000
MAX_TICKS = 1_000_000
_REFERENCE = re.compile(r"\$(last|[1-9]\d{0,5})((?:\.[^.]+)*)")


class ScriptedModel:
    is_remote = False

    async def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        message = conversation.user_message.strip()
        if message == "noop":
            return
        script = _script(message)
        if script is None:
            yield Text(_welcome(tools, looks_like_script=message.startswith('{"script"')))
            return
        results = conversation.results
        calls_to_skip = len(results)
        for step in script:
            if calls_to_skip:
                calls_to_skip -= "call" in step
                continue
            async for part in _play(step, results):
                yield part
                if isinstance(part, ToolCall):
                    return


async def _play(step: dict[str, Any], results: list[ToolResult]) -> AsyncIterator[Part]:
    if "say" in step:
        yield Text(str(step["say"]))
    elif "think" in step:
        yield Thought(str(step["think"]))
    elif "call" in step:
        yield ToolCall(
            CallId(f"call_{len(results) + 1}"), str(step["call"]), _resolve(step.get("args", {}), results)
        )
    elif "wait_ms" in step:
        await asyncio.sleep(_number(step, "wait_ms", MAX_WAIT_MS) / 1000)
    elif "ticks" in step:
        pause = _number(step, "every_ms", MAX_WAIT_MS) / 1000 if "every_ms" in step else 0
        for tick in range(1, int(_number(step, "ticks", MAX_TICKS)) + 1):
            yield Text(f"tick {tick}\n")
            await asyncio.sleep(pause)
    elif "fail" in step:
        raise ModelFailed(reason=str(step["fail"]))
    else:
        known, members = "say, think, call, wait_ms, ticks, fail", ", ".join(sorted(step)) or "nothing"
        raise ModelFailed(reason=f"a script step must have one of {known}; this one has {members}.")


def _script(message: str) -> list[dict[str, Any]] | None:
    """Return the steps of the script in a message, or None if the message is ordinary text."""
    if not message.startswith("{"):
        return None
    try:
        parsed: Any = msgspec.json.decode(message)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(parsed, dict) or not isinstance(
        script := cast("dict[str, Any]", parsed).get("script"), list
    ):
        return None
    steps = cast("list[Any]", script)
    if is_too_deep(steps):
        raise ModelFailed(reason=f"the script must not be nested deeper than {MAX_DEPTH} levels.")
    for number, step in enumerate(steps, 1):
        if not isinstance(step, dict):
            raise ModelFailed(reason=f"step {number} of the script must be an object.")
    return steps


def _number(step: dict[str, Any], key: str, maximum: float) -> float:
    value = step[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= maximum:
        raise ModelFailed(reason=f"{key} in a script step must be a number from 0 to {maximum:g}.")
    return value


def _resolve(args: Any, results: list[ToolResult]) -> Any:
    """Return arguments with each "$last.path" or "$2.path" replaced by that value of a tool result."""
    if isinstance(args, dict):
        return {key: _resolve(value, results) for key, value in cast("dict[str, Any]", args).items()}
    if isinstance(args, list):
        return [_resolve(value, results) for value in cast("list[Any]", args)]
    if isinstance(args, str) and (match := _REFERENCE.fullmatch(args)):
        return _resolve_reference(args, match[1], match[2].split(".")[1:], results)
    return args


def _resolve_reference(text: str, which: str, path: list[str], results: list[ToolResult]) -> Any:
    number = len(results) if which == "last" else int(which)
    if not 1 <= number <= len(results):
        raise ModelFailed(reason=f"{text} points to tool result {which}, and there are {len(results)}.")
    value: Any = results[number - 1].value
    for key in path:
        if isinstance(value, dict) and key in value:
            value = cast("dict[str, Any]", value)[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(key)]
        else:
            raise ModelFailed(reason=f"{text} points to nothing: there is no {key!r} in the result.")
    return value


def _welcome(tools: Sequence[ToolDefinition], *, looks_like_script: bool) -> str:
    names = ", ".join(tool.name for tool in tools)
    hint = (
        "Your message looks like a script, but it is not valid JSON with a list of steps.\n\n"
        if looks_like_script
        else ""
    )
    return hint + (
        "Hello! I am the scripted model: I need no key and do exactly what you write. "
        "Send me a script, for example\n\n"
        '{"script": [{"say": "Let me look at the clock."}, {"call": "gsv__Clock", "args": {}}, '
        '{"say": "Done."}]}\n\n'
        "and I will play it as a durable run: it survives a crashed worker, "
        "and you can close this page and come back. "
        f"Steps are say, think, call, wait_ms, ticks and fail. Tools I can call here: {names}."
    )
