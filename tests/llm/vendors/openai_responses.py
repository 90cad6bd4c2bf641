"""OpenAI Responses, strict: its refusals, and its answers from the SDK's types."""

import base64
import json
from typing import Any, get_type_hints

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseContentPartAddedEvent,
    ResponseCreatedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryPartAddedEvent,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseReasoningSummaryTextDoneEvent,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
    ResponseUsage,
)
from openai.types.responses.response import IncompleteDetails
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_reasoning_summary_part_added_event import Part
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from pydantic import BaseModel

from tests.llm.vendors.answers import Answer, resolve
from tests.llm.vendors.checks import (
    JSON_SCHEMA,
    NAME,
    Rejected,
    check_keys,
    check_tool,
    check_tool_names,
)
from tests.llm.vendors.openai_chat import OpenAIChatVendor, is_object, json_or_text, pieces
from tests.llm.vendors.server import to_event

KEYS = frozenset(get_type_hints(ResponseCreateParamsStreaming))
TOOL_KEYS = {"type", "name", "description", "parameters", "strict"}
OUTPUT = ("reasoning", "message", "function_call")
OUTPUT_OF_CALL = "function_call_output"


class OpenAIResponsesVendor(OpenAIChatVendor):
    def is_for(self, path: str) -> bool:
        return path == "/v1/responses"

    def check(self, body: dict[str, Any]) -> None:
        check_keys(body, KEYS)
        if body.get("stream") is not True or body.get("store") is not False:
            raise Rejected("only streamed requests that are not stored are served here")
        tools = body.get("tools") or []
        for tool in tools:
            if set(tool) - TOOL_KEYS or tool.get("type") != "function":
                raise Rejected("tools: each must be {type, name, description, parameters, strict}")
            check_tool(tool.get("name"), tool.get("parameters"), NAME, JSON_SCHEMA)
        check_tool_names([tool["name"] for tool in tools])
        items = body.get("input")
        if not isinstance(items, list) or not items:
            raise Rejected("input must be a list of items")
        self._check_items(items)
        self.memory.check(body.get("instructions"), _group(items), is_bound=False)

    def _check_items(self, items: list[dict[str, Any]]) -> None:
        waiting: list[str] = []
        seen: set[str] = set()
        last = "start"
        for place, item in enumerate(items):
            kind, where = item.get("type") or "message", f"input[{place}]"
            is_own = kind in OUTPUT and item.get("role", "assistant") == "assistant"
            if waiting and kind not in ("function_call", OUTPUT_OF_CALL):
                raise Rejected(f"{where}: No tool output found for function call {waiting[0]}.")
            if last == "reasoning" and not is_own:
                raise Rejected(f"{where}: a 'reasoning' item came without its required following item.")
            self._check_marks(where, kind, item)
            if kind == "function_call":
                waiting.append(self._check_call(where, item, seen))
            elif kind == OUTPUT_OF_CALL:
                if item.get("call_id") not in waiting:
                    raise Rejected(f"{where}: No tool call found for {OUTPUT_OF_CALL} {item.get('call_id')}.")
                waiting.remove(item["call_id"])
            if kind != "reasoning" and not (item.get("content") or item.get("output") or item.get("name")):
                raise Rejected(f"{where}: content and output must not be empty")
            last = kind if kind != "message" else str(item.get("role"))
            if place == 0 and last != "user":
                raise Rejected(f"{where}: the first item must be of the user")
        if waiting:
            raise Rejected(f"No tool output found for function call {waiting[0]}.")
        if last not in ("user", OUTPUT_OF_CALL):
            raise Rejected("the input must end with a message of the user or a function call output")

    def _check_marks(self, where: str, kind: str, item: dict[str, Any]) -> None:
        """Reject an item that claims to be of this server and is not, or was changed."""
        if (item_id := item.get("id")) is not None and item_id not in self.memory.marks:
            raise Rejected(f"{where}: Item with id '{item_id}' not found.", 404)
        if kind == "reasoning" and item.get("encrypted_content") not in self.memory.marks:
            raise Rejected(f"{where}: The encrypted content could not be verified.")

    def _check_call(self, where: str, item: dict[str, Any], seen: set[str]) -> str:
        call_id = item["call_id"]
        if call_id in seen:
            raise Rejected(f"{where}: Duplicate function call id {call_id}.")
        if call_id.startswith("call_OpenAI") and call_id not in self.memory.marks:
            raise Rejected(f"{where}: unknown function call id {call_id}")
        if not NAME.fullmatch(item["name"]) or not is_object(item["arguments"]):
            raise Rejected(f"{where}: invalid name or arguments")
        seen.add(call_id)
        return call_id

    def overload(self) -> bytes:
        return to_event(
            json.dumps(
                {"type": "error", "code": "server_is_overloaded", "message": "Overloaded", "param": None}
            ),
            "error",
        )

    def events(self, body: dict[str, Any], answer: Answer) -> list[bytes]:
        self._count += 1
        turn = f"{self._count:012}"
        results = [
            json_or_text(item["output"]) for item in body["input"] if item.get("type") == OUTPUT_OF_CALL
        ]
        output = _output(turn, answer, results)
        response = _response(body, turn)
        events: list[Any] = [
            ResponseCreatedEvent(response=response, sequence_number=0, type="response.created")
        ]
        for index, item in enumerate(output):
            events += _item_events(index, item)
        if answer.has_end:
            events.append(_end(response, output, answer))
            sent = [_significant(item.model_dump()) for item in output]
            for item in sent:
                if item["type"] == "function_call" and not is_object(item["arguments"]):
                    broken = json.dumps({"INVALID_JSON": item["arguments"]}, separators=(",", ":"))
                    item["arguments"] = broken
            marks = [item.get(key) for item in sent for key in ("id", "call_id", "encrypted_content")]
            if answer.cut_after is None and answer.hangs_after is None:
                known = [mark for mark in marks if mark]
                self.memory.remember(body.get("instructions"), _group(body["input"]), sent, known)
        return [
            to_event(event.model_copy(update={"sequence_number": number}).model_dump_json(), event.type)
            for number, event in enumerate(events)
        ]


def _output(turn: str, answer: Answer, results: list[Any]) -> list[Any]:
    output: list[Any] = []
    if answer.thinking:
        output.append(
            ResponseReasoningItem(
                id=f"rs_{turn}",
                summary=[Summary(text=answer.thinking, type="summary_text")],
                encrypted_content=base64.b64encode(f"secret of {turn}".encode() * 3).decode(),
                type="reasoning",
            )
        )
    if answer.text:
        text = ResponseOutputText(text=answer.text, annotations=[], type="output_text")
        output.append(
            ResponseOutputMessage(
                id=f"msg_{turn}", content=[text], role="assistant", status="completed", type="message"
            )
        )
    for number, call in enumerate(answer.calls):
        args = call.args if isinstance(call.args, str) else json.dumps(resolve(call.args, results))
        output.append(
            ResponseFunctionToolCall(
                id=f"fc_{turn}{number}",
                call_id=f"call_OpenAI{turn}{number}",
                name=call.tool,
                arguments=args,
                type="function_call",
                status="completed",
            )
        )
    return output


def _item_events(index: int, item: Any) -> list[BaseModel]:
    place: dict[str, Any] = {"item_id": item.id, "output_index": index, "sequence_number": 0}
    begun = item.model_copy(update={"status": "in_progress"} if item.type != "reasoning" else {})
    middle: list[BaseModel] = []
    if isinstance(item, ResponseReasoningItem):
        begun = item.model_copy(update={"summary": [], "encrypted_content": None})
        text = item.summary[0].text
        part = Part(text="", type="summary_text")
        place["summary_index"] = 0
        middle.append(
            ResponseReasoningSummaryPartAddedEvent(
                part=part, type="response.reasoning_summary_part.added", **place
            )
        )
        middle += [
            ResponseReasoningSummaryTextDeltaEvent(
                delta=piece, type="response.reasoning_summary_text.delta", **place
            )
            for piece in pieces(text)
        ]
        middle.append(
            ResponseReasoningSummaryTextDoneEvent(
                text=text, type="response.reasoning_summary_text.done", **place
            )
        )
    elif isinstance(item, ResponseOutputMessage):
        begun = begun.model_copy(update={"content": []})
        text = item.content[0].text  # pyright: ignore[reportAttributeAccessIssue]
        empty = ResponseOutputText(text="", annotations=[], type="output_text")
        place["content_index"] = 0
        middle.append(ResponseContentPartAddedEvent(part=empty, type="response.content_part.added", **place))
        middle += [
            ResponseTextDeltaEvent(delta=piece, logprobs=[], type="response.output_text.delta", **place)
            for piece in pieces(text)
        ]
        middle.append(
            ResponseTextDoneEvent(text=text, logprobs=[], type="response.output_text.done", **place)
        )
    else:
        begun = begun.model_copy(update={"arguments": ""})
        middle += [
            ResponseFunctionCallArgumentsDeltaEvent(
                delta=piece, type="response.function_call_arguments.delta", **place
            )
            for piece in pieces(item.arguments)
        ]
        middle.append(
            ResponseFunctionCallArgumentsDoneEvent(
                arguments=item.arguments, type="response.function_call_arguments.done", **place
            )
        )
    return [
        ResponseOutputItemAddedEvent(
            item=begun, output_index=index, sequence_number=0, type="response.output_item.added"
        ),
        *middle,
        ResponseOutputItemDoneEvent(
            item=item, output_index=index, sequence_number=0, type="response.output_item.done"
        ),
    ]


def _response(body: dict[str, Any], turn: str) -> Response:
    return Response(
        id=f"resp_{turn}",
        created_at=1_790_000_000,
        model=body["model"],
        object="response",
        output=[],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        status="in_progress",
    )


def _end(response: Response, output: list[Any], answer: Answer) -> BaseModel:
    usage = ResponseUsage(
        input_tokens=100,
        input_tokens_details=InputTokensDetails(cached_tokens=40, cache_write_tokens=0),
        output_tokens=20,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=5),
        total_tokens=120,
    )
    whole: dict[str, Any] = {"output": output, "usage": usage}
    if answer.is_cut_off or answer.is_filtered:
        details = IncompleteDetails(reason="content_filter" if answer.is_filtered else "max_output_tokens")
        cut = response.model_copy(update={**whole, "status": "incomplete", "incomplete_details": details})
        return ResponseIncompleteEvent(response=cut, sequence_number=0, type="response.incomplete")
    done = response.model_copy(update={**whole, "status": "completed"})
    return ResponseCompletedEvent(response=done, sequence_number=0, type="response.completed")


def _significant(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that must come back unchanged."""
    match item.get("type") or "message":
        case "reasoning":
            kept = {"id": item["id"], "encrypted_content": item["encrypted_content"]}
            return {"type": "reasoning", **kept, "summary": [part["text"] for part in item["summary"]]}
        case "function_call":
            names = ("id", "call_id", "name", "arguments")
            return {"type": "function_call", **{name: item.get(name) for name in names}}
        case "message" if item.get("role") == "assistant":
            content = item["content"]
            texts = [content] if isinstance(content, str) else [part["text"] for part in content]
            return {"type": "message", "id": item.get("id"), "texts": texts}
        case _:
            return item


def _group(items: list[dict[str, Any]]) -> list[Any]:
    """Return the items as messages: the items of one answer together."""
    groups: list[Any] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind in OUTPUT and item.get("role", "assistant") == "assistant":
            if groups and isinstance(groups[-1], list):
                groups[-1].append(_significant(item))
            else:
                groups.append([_significant(item)])
        else:
            groups.append(item)
    return groups
