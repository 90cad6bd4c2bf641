"""Anthropic Messages, strict: its refusals, and its answers from the SDK's types."""

import hashlib
import json
import re
from typing import Any, get_type_hints

from anthropic.types.beta import (
    BetaInputJSONDelta,
    BetaMessage,
    BetaMessageDeltaUsage,
    BetaRawContentBlockDeltaEvent,
    BetaRawContentBlockStartEvent,
    BetaRawContentBlockStopEvent,
    BetaRawMessageDeltaEvent,
    BetaRawMessageStartEvent,
    BetaRawMessageStopEvent,
    BetaRedactedThinkingBlock,
    BetaSignatureDelta,
    BetaTextBlock,
    BetaTextDelta,
    BetaThinkingBlock,
    BetaThinkingDelta,
    BetaToolUseBlock,
    BetaUsage,
)
from anthropic.types.beta.beta_raw_message_delta_event import Delta
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming
from pydantic import BaseModel

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
from tests.llm.vendors.openai_chat import is_object, json_or_text, pieces
from tests.llm.vendors.server import to_event

KEYS = frozenset(get_type_hints(MessageCreateParamsStreaming)) - {"betas"}
TOOL_KEYS = {"name", "description", "input_schema", "cache_control", "type"}
ID = re.compile(r"[a-zA-Z0-9_-]+")
ERRORS = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicVendor:
    path = ""

    def __init__(self) -> None:
        self.memory = Memory()
        self._count = 0

    def is_for(self, path: str) -> bool:
        return path == "/v1/messages"

    def has_key(self, headers: Any, key: str) -> bool:
        return headers.get("authorization") == f"Bearer {key}"

    def knows_model(self, path: str, body: dict[str, Any]) -> bool:
        return body.get("model") != "unknown-model"

    def check(self, body: dict[str, Any]) -> None:
        check_keys(body, KEYS)
        if body.get("stream") is not True or not isinstance(body.get("max_tokens"), int):
            raise Rejected("stream must be true here, and max_tokens: Field required")
        tools = body.get("tools") or []
        for tool in tools:
            if set(tool) - TOOL_KEYS:
                raise Rejected(f"tools: Extra inputs are not permitted: {sorted(set(tool) - TOOL_KEYS)}")
            check_tool(tool.get("name"), tool.get("input_schema"), NAME, JSON_SCHEMA)
        check_tool_names([tool["name"] for tool in tools])
        messages = [_plain(message) for message in body.get("messages") or []]
        self._check_order(messages)
        if (body.get("thinking") or {}).get("type") == "enabled":
            _check_first_thought(messages)
        is_bound = any(
            block["type"] in ("thinking", "redacted_thinking")
            for message in messages
            for block in message["content"]
        )
        self.memory.check(_context(body), messages, is_bound=is_bound)

    def _check_order(self, messages: list[dict[str, Any]]) -> None:
        waiting: list[str] = []
        seen: set[str] = set()
        for place, message in enumerate(messages):
            where = f"messages.{place}"
            if message["role"] != ("user", "assistant")[place % 2]:
                raise Rejected(f'{where}: roles must alternate between "user" and "assistant"')
            if not message["content"]:
                raise Rejected(f"{where}: content must not be empty")
            if message["role"] == "user":
                self._check_results(where, message["content"], waiting)
                waiting = []
            else:
                waiting = self._check_blocks(where, message["content"], seen)
        if not messages or messages[-1]["role"] != "user":
            raise Rejected("messages: the last message must be of the user")

    def _check_results(self, where: str, blocks: list[dict[str, Any]], waiting: list[str]) -> None:
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if missing := [one for one in waiting if one not in results]:
            raise Rejected(f"{where}: `tool_use` ids were found without `tool_result` blocks: {missing[0]}")
        if extra := [one for one in results if one not in waiting]:
            raise Rejected(f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {extra[0]}")
        if len(set(results)) != len(results):
            raise Rejected(f"{where}: each tool_use must have a single result")
        kinds = [block["type"] == "tool_result" for block in blocks]
        if kinds != sorted(kinds, reverse=True):
            raise Rejected(f"{where}: tool_result blocks must come first")
        for block in blocks:
            inner = block.get("content") if block["type"] == "tool_result" else [block]
            if not inner or any(part["type"] == "text" and not part["text"].strip() for part in inner):
                raise Rejected(f"{where}: text content blocks must contain non-whitespace text")

    def _check_blocks(self, where: str, blocks: list[dict[str, Any]], seen: set[str]) -> list[str]:
        ids: list[str] = []
        for block in blocks:
            match block["type"]:
                case "thinking" | "redacted_thinking":
                    if block.get("signature", block.get("data")) not in self.memory.marks:
                        raise Rejected(f"{where}: Invalid `signature` in `thinking` block")
                case "text":
                    if not block["text"].strip():
                        raise Rejected(f"{where}: text content blocks must contain non-whitespace text")
                case "tool_use":
                    use = block["id"]
                    if use in seen:
                        raise Rejected(f"{where}: `tool_use` ids must be unique")
                    if not ID.fullmatch(use) or (use.startswith("toolu_") and use not in self.memory.marks):
                        raise Rejected(f"{where}: tool_use.id: unknown or invalid id {use!r}")
                    if not NAME.fullmatch(block["name"]) or not isinstance(block["input"], dict):
                        raise Rejected(f"{where}: tool_use.name or input is invalid")
                    seen.add(use)
                    ids.append(use)
                case other:
                    raise Rejected(f"{where}: unexpected block {other!r}")
        return ids

    def events(self, body: dict[str, Any], answer: Answer) -> list[bytes]:
        self._count += 1
        messages = [_plain(message) for message in body["messages"]]
        blocks = self._blocks(answer, _results(messages))
        events: list[Any] = [_start(body, self._count)]
        for index, (block, deltas) in enumerate(blocks):
            start = {"index": index, "type": "content_block_start"}
            events.append(BetaRawContentBlockStartEvent(content_block=_begin(block), **start))
            events += [
                BetaRawContentBlockDeltaEvent(delta=delta, index=index, type="content_block_delta")
                for delta in deltas
            ]
            events.append(BetaRawContentBlockStopEvent(index=index, type="content_block_stop"))
        if answer.has_end:
            reason = "max_tokens" if answer.is_cut_off else "tool_use" if answer.calls else "end_turn"
            reason = "refusal" if answer.is_filtered else reason
            usage = BetaMessageDeltaUsage(
                input_tokens=60, output_tokens=20, cache_read_input_tokens=40, cache_creation_input_tokens=0
            )
            events.append(
                BetaRawMessageDeltaEvent(delta=Delta(stop_reason=reason), usage=usage, type="message_delta")
            )
            events.append(BetaRawMessageStopEvent(type="message_stop"))
            if answer.cut_after is None and answer.hangs_after is None:
                content = [block.model_dump(exclude_none=True) for block, _ in blocks]
                sent = _plain({"role": "assistant", "content": content})
                marks = [
                    block[key] for block in content for key in ("id", "signature", "data") if key in block
                ]
                self.memory.remember(_context(body), messages, sent, marks)
        return [to_event(event.model_dump_json(exclude_none=True), event.type) for event in events]

    def _blocks(self, answer: Answer, results: list[Any]) -> list[tuple[Any, list[Any]]]:
        blocks: list[tuple[Any, list[Any]]] = []
        if answer.is_redacted:
            data = hashlib.sha256(f"redacted {self._count}".encode()).hexdigest()
            blocks.append((BetaRedactedThinkingBlock(data=data, type="redacted_thinking"), []))
        if answer.thinking:
            signature = hashlib.sha256(f"{self._count} {answer.thinking}".encode()).hexdigest() + "+/=="
            thoughts: list[Any] = [
                BetaThinkingDelta(thinking=piece, type="thinking_delta") for piece in pieces(answer.thinking)
            ]
            thoughts.append(BetaSignatureDelta(signature=signature, type="signature_delta"))
            block = BetaThinkingBlock(thinking=answer.thinking, signature=signature, type="thinking")
            blocks.append((block, thoughts))
        if answer.text:
            texts = [BetaTextDelta(text=piece, type="text_delta") for piece in pieces(answer.text)]
            blocks.append((BetaTextBlock(text=answer.text, type="text"), texts))
        for number, call in enumerate(answer.calls):
            args = call.args if isinstance(call.args, str) else json.dumps(resolve(call.args, results))
            value: dict[str, Any] = json.loads(args) if is_object(args) else {"INVALID_JSON": args}
            call_id = f"toolu_{self._count:010}{number}"
            use = BetaToolUseBlock(id=call_id, name=call.tool, input=value, type="tool_use")
            parts = [
                BetaInputJSONDelta(partial_json=piece, type="input_json_delta") for piece in pieces(args)
            ]
            blocks.append((use, parts))
        return blocks

    def overload(self) -> bytes:
        return to_event(json.dumps(self.error(529, "Overloaded")), "error")

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}


def _check_first_thought(messages: list[dict[str, Any]]) -> None:
    """Reject an open turn that begins without a thought. It follows the last message with a text."""
    asked = max(
        place
        for place, message in enumerate(messages)
        if message["role"] == "user" and message["content"][-1]["type"] != "tool_result"
    )
    if len(messages) > asked + 1 and "thinking" not in (kind := messages[asked + 1]["content"][0]["type"]):
        raise Rejected(
            f"messages.{asked + 1}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{kind}`. When `thinking` is enabled, a final `assistant` message must start with a thinking "
            "block. To avoid this requirement, disable `thinking`."
        )


def _start(body: dict[str, Any], count: int) -> BaseModel:
    message = BetaMessage(
        id=f"msg_{count:012}",
        content=[],
        model=body["model"],
        role="assistant",
        type="message",
        usage=BetaUsage(
            input_tokens=60, output_tokens=1, cache_read_input_tokens=40, cache_creation_input_tokens=0
        ),
    )
    return BetaRawMessageStartEvent(message=message, type="message_start")


def _begin(block: Any) -> Any:
    """Return the block as it is when it begins, before its deltas."""
    match block:
        case BetaThinkingBlock():
            return BetaThinkingBlock(thinking="", signature="", type="thinking")
        case BetaTextBlock():
            return BetaTextBlock(text="", type="text")
        case BetaToolUseBlock():
            return block.model_copy(update={"input": {}})
        case _:
            return block


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with content as a list of blocks, without cache marks."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kept = [{key: value for key, value in block.items() if key != "cache_control"} for block in blocks]
    return {"role": message["role"], "content": kept}


def _context(body: dict[str, Any]) -> Any:
    system = body.get("system")
    plain = [block["text"] for block in system] if isinstance(system, list) else system
    tools = [
        {key: value for key, value in tool.items() if key != "cache_control"}
        for tool in body.get("tools") or []
    ]
    return {"system": plain, "tools": tools}


def _results(messages: list[dict[str, Any]]) -> list[Any]:
    return [
        json_or_text(block["content"][0].get("text"))
        for message in messages
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
