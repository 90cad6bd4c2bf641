"""OpenAI Chat Completions, strict: its refusals, and its answers from the SDK's types."""

import json
from typing import Any, cast, get_type_hints

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import (
    Choice,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
)
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.completion_usage import CompletionTokensDetails, PromptTokensDetails

from tests.llm.vendors.answers import Answer, resolve
from tests.llm.vendors.checks import (
    JSON_SCHEMA,
    NAME,
    Memory,
    Rejected,
    check_keys,
    check_tool,
    check_tool_names,
)
from tests.llm.vendors.server import to_event

KEYS = frozenset(get_type_hints(CompletionCreateParamsStreaming))
ISSUED = "call_OpenAI"


class OpenAIChatVendor:
    path = "/v1"

    def __init__(self) -> None:
        self.memory = Memory()
        self._count = 0

    def is_for(self, path: str) -> bool:
        return path == "/v1/chat/completions"

    def has_key(self, headers: Any, key: str) -> bool:
        return headers.get("authorization") == f"Bearer {key}"

    def knows_model(self, path: str, body: dict[str, Any]) -> bool:
        return body.get("model") != "unknown-model"

    def check(self, body: dict[str, Any]) -> None:
        check_keys(body, KEYS)
        if body.get("stream") is not True:
            raise Rejected("only streamed requests are served here")
        tools = body.get("tools") or []
        for tool in tools:
            if tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
                raise Rejected("tools: each must be {type: function, function: {…}}")
            check_tool(tool["function"].get("name"), tool["function"].get("parameters"), NAME, JSON_SCHEMA)
        check_tool_names([tool["function"]["name"] for tool in tools])
        messages = body.get("messages") or []
        self._check_order(messages)
        context = [messages[0]] if messages and messages[0]["role"] == "system" else []
        self.memory.check(context, _without_empty_reasoning(messages[len(context) :]), is_bound=False)

    def _check_order(self, messages: list[dict[str, Any]]) -> None:
        waiting: list[str] = []
        seen: set[str] = set()
        last = "start"
        for place, message in enumerate(messages):
            role, where = message.get("role"), f"messages.{place}"
            if waiting and role != "tool":
                raise Rejected(f"{where}: tool_call_ids did not have response messages: {', '.join(waiting)}")
            allowed = {
                "system": {"start"},
                "user": {"start", "system", "assistant", "tool"},
                "assistant": {"user", "tool"},
                "tool": {"assistant", "tool"},
            }
            if role not in allowed or last not in allowed[role]:
                raise Rejected(f"{where}: role {role!r} must not follow {last!r}")
            if role == "tool":
                if message.get("tool_call_id") not in waiting:
                    raise Rejected(
                        f"{where}: 'tool' must be a response to a preceding message with 'tool_calls'"
                    )
                waiting.remove(message["tool_call_id"])
                if not isinstance(message.get("content"), str) or not message["content"]:
                    raise Rejected(f"{where}: content must be a text")
            elif role == "assistant":
                waiting = self._check_calls(where, message, seen)
            elif not message.get("content"):
                raise Rejected(f"{where}: content must not be empty")
            last = cast("str", role)
        if waiting:
            raise Rejected(f"tool_call_ids did not have response messages: {', '.join(waiting)}")
        if last not in ("user", "tool"):
            raise Rejected(f"the last message must be of the user or a tool, not {last!r}")

    def _check_calls(self, where: str, message: dict[str, Any], seen: set[str]) -> list[str]:
        ids: list[str] = []
        for call in message.get("tool_calls") or []:
            call_id = call.get("id")
            if call_id in seen:
                raise Rejected(f"{where}: duplicate tool call id {call_id!r}")
            if call_id.startswith(ISSUED) and call_id not in self.memory.marks:
                raise Rejected(f"{where}: unknown tool call id {call_id!r}")
            if not NAME.fullmatch(call["function"]["name"]):
                raise Rejected(f"{where}: invalid name {call['function']['name']!r}")
            try:
                is_object = isinstance(json.loads(call["function"]["arguments"]), dict)
            except ValueError:
                is_object = False
            if not is_object:
                raise Rejected(f"{where}: arguments must be a JSON object")
            seen.add(call_id)
            ids.append(call_id)
        if not ids and not message.get("content"):
            raise Rejected(f"{where}: an assistant message needs content or tool_calls")
        return ids

    def events(self, body: dict[str, Any], answer: Answer) -> list[bytes]:
        messages = body["messages"]
        context = [messages[0]] if messages[0]["role"] == "system" else []
        results = [json_or_text(message["content"]) for message in messages if message["role"] == "tool"]
        deltas = [ChoiceDelta(role="assistant", content="")]
        deltas += [_reasoning(piece) for piece in pieces(answer.thinking)]
        deltas += [ChoiceDelta(content=piece) for piece in pieces(answer.text)]
        sent: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.thinking:
            sent["reasoning_content"] = answer.thinking
        for index, call in enumerate(answer.calls):
            self._count += 1
            call_id = f"{ISSUED}{self._count:016}"
            args = call.args if isinstance(call.args, str) else json.dumps(resolve(call.args, results))
            name = ChoiceDeltaToolCallFunction(name=call.tool, arguments="")
            deltas.append(
                ChoiceDelta(
                    tool_calls=[ChoiceDeltaToolCall(index=index, id=call_id, type="function", function=name)]
                )
            )
            for piece in pieces(args):
                more = ChoiceDeltaToolCallFunction(arguments=piece)
                deltas.append(ChoiceDelta(tool_calls=[ChoiceDeltaToolCall(index=index, function=more)]))
            echoed = args if is_object(args) else json.dumps({"INVALID_JSON": args}, separators=(",", ":"))
            sent.setdefault("tool_calls", []).append(
                {"id": call_id, "type": "function", "function": {"name": call.tool, "arguments": echoed}}
            )
        chunks = [self._chunk(body, [Choice(index=0, delta=delta)]) for delta in deltas]
        if answer.has_end:
            reason = "length" if answer.is_cut_off else "tool_calls" if answer.calls else "stop"
            reason = "content_filter" if answer.is_filtered else reason
            chunks.append(self._chunk(body, [Choice(index=0, delta=ChoiceDelta(), finish_reason=reason)]))
            usage = CompletionUsage(
                prompt_tokens=100,
                completion_tokens=20,
                total_tokens=120,
                prompt_tokens_details=PromptTokensDetails(cached_tokens=40),
                completion_tokens_details=CompletionTokensDetails(reasoning_tokens=5),
            )
            chunks.append(self._chunk(body, [], usage))
            if answer.cut_after is None and answer.hangs_after is None:
                marks = [call["id"] for call in sent.get("tool_calls", [])]
                known = _without_empty_reasoning(messages[len(context) :])
                self.memory.remember(context, known, sent, marks)
        return [to_event(chunk.model_dump_json(exclude_none=True)) for chunk in chunks] + [to_event("[DONE]")]

    def _chunk(
        self, body: dict[str, Any], choices: list[Choice], usage: CompletionUsage | None = None
    ) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id="chatcmpl-1",
            choices=choices,
            created=1_790_000_000,
            model=body["model"],
            object="chat.completion.chunk",
            usage=usage,
        )

    def overload(self) -> bytes:
        return to_event(json.dumps(self.error(503, "The server is overloaded.")))

    def error(self, status: int, message: str) -> dict[str, Any]:
        code = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}.get(status)
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _without_empty_reasoning(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without an empty reasoning field, which means the same as none.

    DeepSeek requires the field in every tool call of a turn that reasons, also where it is empty.
    """
    return [
        {key: value for key, value in message.items() if key != "reasoning_content" or value}
        for message in messages
    ]


def _reasoning(piece: str) -> ChoiceDelta:
    """Return reasoning as DeepSeek and llama.cpp send it: a field beside those of OpenAI."""
    return ChoiceDelta.model_validate({"reasoning_content": piece})


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def json_or_text(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return text
