"""One request to a provider: conversation in, parts out. Runs in the provider thread.

Imported only with a provider's library. Text and thoughts are passed on as they arrive; tool calls, usage and
provider data when the answer is complete. Whether tools are called is decided by the parts. RS-70, CT-39
"""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition as LibraryTool

from easel.core.model.choice import ModelChoice
from easel.core.run.conversation import Conversation, Part, Repeated, Text, Thought, ToolCall, Usage
from easel.core.tool.definition import ToolDefinition
from easel.ids import CallId
from easel.llm.answer_limits import KEPT_BYTES
from easel.llm.conversation import is_json_object, lacks_first_thought, to_messages, to_provider_data
from easel.llm.errors import CUT, BrokenAnswer, to_failure, to_model_failed
from easel.llm.open_responses import RefusedAnswer, close_responses
from easel.llm.retries import RetrySettings, retry_wait_seconds
from easel.llm.schemas import to_wire_name, to_wire_schema, tool_names
from easel.llm.wire import Wire

log = structlog.get_logger("model")

CUT_OFF = "\n\n(The answer ends here: it reached the model's limit for one answer.)"
MAX_CALL_ID = 128
_CALL_ID = re.compile(rf"[A-Za-z0-9_.:|-]{{1,{MAX_CALL_ID}}}")


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    wire: Wire
    choice: ModelChoice
    retries: RetrySettings

    async def run(
        self,
        conversation: Conversation,
        tools: Sequence[ToolDefinition],
        send: Callable[[Part], Awaitable[None]],
    ) -> None:
        """Ask the model and send the parts of its answer. Raises `ModelFailed`."""
        messages = to_messages(conversation, self.wire.form)
        parameters = _to_parameters(conversation.system, tools)
        response = await self._answer(messages, parameters, self._settings_for(messages), send)
        names = tool_names(tool.name for tool in tools)
        for part in _final_parts(response, names, conversation):
            await send(part)
        await send(to_provider_data(response, self.wire.form))

    def _settings_for(self, messages: Sequence[ModelMessage]) -> ModelSettings:
        """Return the settings of a request, without thinking if the open turn lacks the thought it needs.

        The thought of the turn's first step is not sent if its signature is no longer valid: another model
        answered it, or what precedes it has changed.
        """
        if self.wire.needs_first_thought and lacks_first_thought(messages):
            return {**self.wire.settings, "thinking": False}
        return self.wire.settings

    async def _answer(
        self,
        messages: list[ModelMessage],
        parameters: ModelRequestParameters,
        settings: ModelSettings,
        send: Callable[[Part], Awaitable[None]],
    ) -> ModelResponse:
        """Return the complete answer. Repeats the request also if its answer breaks off. RS-80"""
        attempt, last_sent = 0, 0  # the attempt, and that of the last part

        async def pass_on(*parts: Part) -> None:
            nonlocal last_sent
            if 0 < last_sent < attempt:
                await send(Repeated(attempt))
            for part in parts:
                await send(part)
            last_sent = attempt

        while True:
            attempt += 1
            try:
                with KEPT_BYTES.of_answer() as keep:
                    async with (
                        close_responses(),
                        model_request_stream(
                            self.wire.model,
                            messages,
                            model_settings=settings,
                            model_request_parameters=parameters,
                        ) as stream,
                    ):
                        async for event in stream:
                            keep(_size(event))
                            if (part := _to_part(event)) is not None:
                                await pass_on(part)
                        response = self.wire.finish(_complete(stream.get()))
                await pass_on()
            except Exception as problem:  # noqa: BLE001 - whatever a library raises ends this run alone
                failure, jitter = to_failure(problem), random.random()  # noqa: S311 - no secret depends on it
                wait = failure and retry_wait_seconds(failure, attempt, self.retries, jitter=jitter)
                if wait is None:
                    raise to_model_failed(problem, self.choice, attempt) from None
            else:
                return response
            provider = self.choice.provider.value
            log.info("model.retry", provider=provider, attempt=attempt, wait_seconds=round(wait, 2))
            await asyncio.sleep(wait)


def _complete(response: ModelResponse) -> ModelResponse:
    """Return the answer.

    Raises `BrokenAnswer` if the provider did not mark it as complete, `RefusedAnswer` if it withheld it.
    """
    match response.finish_reason:
        case None | "error":
            raise BrokenAnswer(f"{CUT}.")
        case "content_filter" if not any(part.has_content() for part in response.parts):
            raise RefusedAnswer("the provider's content filter withheld the answer.")
        case _:
            return response


def _size(event: ModelResponseStreamEvent) -> int:
    """Return about how many bytes of an event are kept as part of the answer."""
    match event:
        case PartStartEvent(part=piece) | PartDeltaEvent(delta=piece):
            values = [value for value in vars(piece).values() if value]
            return sum(len(value) if isinstance(value, str) else len(repr(value)) for value in values)
        case _:
            return 0


def _to_part(event: ModelResponseStreamEvent) -> Part | None:
    match event:
        case (
            PartStartEvent(part=TextPart(content=text))
            | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
        ):
            return Text(text) if text else None
        case (
            PartStartEvent(part=ThinkingPart(content=text))
            | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
        ):
            return Thought(text) if text else None
        case _:
            return None


def _final_parts(
    response: ModelResponse, names: Mapping[str, str], conversation: Conversation
) -> Iterator[Part]:
    was_cut = response.finish_reason == "length"
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    used = {call.call_id for step in conversation.steps for call in step.calls}
    for number, call in enumerate(calls, 1):
        call_id = _unique_id(call.tool_call_id, used)
        used.add(call_id)
        args = _to_args(call, may_be_cut=was_cut and number == len(calls))
        yield ToolCall(call_id, names.get(call.tool_name, call.tool_name), args)
    if was_cut and not calls:
        yield Text(CUT_OFF)
    usage = response.usage
    details = usage.details or {}
    yield Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        details.get("reasoning_tokens") or details.get("thoughts_tokens") or 0,
    )


def _to_args(call: ToolCallPart, *, may_be_cut: bool) -> Any:
    """Return the arguments: an object, or the text that the model wrote if that is no JSON object.

    The registry answers a text with an error, so that the model can repeat the call.
    """
    if call.args and isinstance(call.args, str) and not is_json_object(call.args):
        return call.args
    if not call.args and may_be_cut:
        return ""
    return call.args_as_dict()


def _unique_id(sent: str, used: set[CallId]) -> CallId:
    """Return the provider's id of a call, changed if it is used already: some servers count from 0 again."""
    base = sent if _CALL_ID.fullmatch(sent) else "call"
    number = 1
    while (call_id := CallId(base if number == 1 else f"{base[: MAX_CALL_ID - 8]}-{number}")) in used:
        number += 1
    return call_id


def _to_parameters(system: str, tools: Sequence[ToolDefinition]) -> ModelRequestParameters:
    return ModelRequestParameters(
        function_tools=[
            LibraryTool(
                name=to_wire_name(tool.name),
                description=tool.description,
                parameters_json_schema=to_wire_schema(tool.schema),
                strict=False,
            )
            for tool in tools
        ],
        instruction_parts=[InstructionPart(content=system)] if system.strip() else [],
    )
