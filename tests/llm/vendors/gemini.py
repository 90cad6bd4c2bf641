"""Gemini `streamGenerateContent`, strict: its refusals, and its answers from the SDK's types."""

import base64
import json
from typing import Any

from google.genai import types

from tests.llm.vendors.answers import Answer, resolve
from tests.llm.vendors.checks import (
    GEMINI_NAME,
    GEMINI_SCHEMA,
    Memory,
    Rejected,
    check_keys,
    check_tool,
    check_tool_names,
)
from tests.llm.vendors.openai_chat import is_object, pieces
from tests.llm.vendors.server import to_event

KEYS = (
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "safetySettings",
    "generationConfig",
    "cachedContent",
)
PART_KEYS = {"text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"}
NO_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
STATUSES = {
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class GeminiVendor:
    path = ""

    def __init__(self) -> None:
        self.memory = Memory()
        self._count = 0

    def is_for(self, path: str) -> bool:
        return path.startswith("/v1beta/models/") and path.endswith(":streamGenerateContent")

    def has_key(self, headers: Any, key: str) -> bool:
        return headers.get("x-goog-api-key") == key

    def knows_model(self, path: str, body: dict[str, Any]) -> bool:
        return "unknown-model" not in path

    def check(self, body: dict[str, Any]) -> None:
        check_keys(body, KEYS)
        tools = [one for tool in body.get("tools") or [] for one in tool.get("functionDeclarations", [])]
        for tool in tools:
            schema = tool.get("parametersJsonSchema") or tool.get("parameters_json_schema")
            check_tool(tool.get("name"), schema, GEMINI_NAME, GEMINI_SCHEMA)
        check_tool_names([tool["name"] for tool in tools])
        contents = [_plain(content) for content in body.get("contents") or []]
        self._check_order(contents)
        self.memory.check(body.get("systemInstruction"), contents, is_bound=False)

    def _check_order(self, contents: list[dict[str, Any]]) -> None:
        waiting: list[dict[str, Any]] = []
        seen: set[str] = set()
        last = "start"
        for place, content in enumerate(contents):
            where, parts = f"contents[{place}]", content["parts"]
            if not parts or any(set(part) - PART_KEYS for part in parts):
                raise Rejected(f"{where}: invalid parts")
            responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
            if waiting and len(responses) != len(waiting):
                raise Rejected(
                    f"{where}: the number of function response parts must equal the function calls"
                )
            if responses and not waiting:
                raise Rejected(
                    f"{where}: a function response turn must come right after a function call turn"
                )
            for call, response in zip(waiting, responses, strict=True):
                if call["name"] != response.get("name") or call.get("id") != response.get("id"):
                    raise Rejected(f"{where}: function response {response.get('id')} has no such call")
                if not isinstance(response.get("response"), dict):
                    raise Rejected(f"{where}: response must be an object")
            waiting = []
            if content["role"] == "model":
                if last in ("start", "model"):
                    raise Rejected(f"{where}: a turn of the model must follow one of the user")
                waiting = self._check_calls(where, parts, seen)
            elif content["role"] != "user":
                raise Rejected(f"{where}: Please use a valid role: user, model.")
            last = content["role"]
        if last != "user":
            raise Rejected("contents: the last turn must be of the user")

    def _check_calls(self, where: str, parts: list[dict[str, Any]], seen: set[str]) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []
        for part in parts:
            signature = part.get("thoughtSignature")
            if signature is not None and signature not in (NO_SIGNATURE, *self.memory.marks):
                raise Rejected(f"{where}: Thought signature is not valid")
            if (call := part.get("functionCall")) is None:
                continue
            if not calls and signature is None:
                raise Rejected(f"{where}: Function call is missing a thought_signature in functionCall parts")
            if (call_id := call.get("id")) is not None:
                if call_id in seen:
                    raise Rejected(f"{where}: duplicate function call id {call_id}")
                if call_id.startswith("gem") and call_id not in self.memory.marks:
                    raise Rejected(f"{where}: unknown function call id {call_id}")
                seen.add(call_id)
            if not GEMINI_NAME.fullmatch(call["name"]) or not isinstance(call.get("args", {}), dict):
                raise Rejected(f"{where}: invalid name or args")
            calls.append(call)
        return calls

    def events(self, body: dict[str, Any], answer: Answer) -> list[bytes]:
        self._count += 1
        contents = [_plain(content) for content in body["contents"]]
        results = [
            part["functionResponse"]["response"]
            for content in contents
            for part in content["parts"]
            if "functionResponse" in part
        ]
        calls = self._calls(answer, results)
        thoughts = [types.Part(text=piece, thought=True) for piece in pieces(answer.thinking)]
        texts = [types.Part(text=piece) for piece in pieces(answer.text)]
        chunks = [_chunk([part]) for part in (*thoughts, *texts, *calls)]
        if answer.has_end:
            reason = types.FinishReason.MAX_TOKENS if answer.is_cut_off else types.FinishReason.STOP
            reason = types.FinishReason.SAFETY if answer.is_filtered else reason
            usage = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=100,
                candidates_token_count=15,
                thoughts_token_count=5,
                cached_content_token_count=40,
                total_token_count=120,
            )
            chunks.append(_chunk([types.Part(text="")], reason, usage))
            whole = [types.Part(text=answer.thinking, thought=True)] if answer.thinking else []
            whole += [types.Part(text=answer.text)] if answer.text else []
            parts = [_dump(part) for part in (*whole, *calls)]
            marks = [_standard(part["thoughtSignature"]) for part in parts if "thoughtSignature" in part]
            marks += [part["functionCall"]["id"] for part in parts if "id" in part.get("functionCall", {})]
            if answer.cut_after is None and answer.hangs_after is None:
                sent = _plain({"role": "model", "parts": parts})
                self.memory.remember(body.get("systemInstruction"), contents, sent, marks)
        return [to_event(json.dumps(_dump(chunk))) for chunk in chunks]

    def _calls(self, answer: Answer, results: list[Any]) -> list[types.Part]:
        calls: list[types.Part] = []
        for number, call in enumerate(answer.calls):
            args = call.args
            if isinstance(args, str):
                args = json.loads(args) if is_object(args) else {"INVALID_JSON": args}
            function = types.FunctionCall(
                id=f"gem{self._count:06}{number}" if answer.has_ids else None,
                name=call.tool,
                args=resolve(args, results),
            )
            signature = f"signature {self._count} \x00\xff".encode("latin-1") if number == 0 else None
            calls.append(types.Part(function_call=function, thought_signature=signature))
        return calls

    def overload(self) -> bytes:
        return to_event(json.dumps(self.error(503, "The model is overloaded.")))

    def error(self, status: int, message: str) -> dict[str, Any]:
        name = STATUSES.get(status, "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": message, "status": name}}


def _chunk(
    parts: list[types.Part],
    reason: types.FinishReason | None = None,
    usage: types.GenerateContentResponseUsageMetadata | None = None,
) -> types.GenerateContentResponse:
    content = types.Content(role="model", parts=parts)
    candidate = types.Candidate(content=content, finish_reason=reason, index=0)
    return types.GenerateContentResponse(
        candidates=[candidate], usage_metadata=usage, model_version="gemini-3", response_id="response-1"
    )


def _dump(value: Any) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    """Return a content with signatures in one spelling of Base64."""
    parts = [
        {**part, "thoughtSignature": _standard(part["thoughtSignature"])}
        if "thoughtSignature" in part
        else part
        for part in content["parts"]
    ]
    return {"role": content["role"], "parts": parts}


def _standard(text: str) -> str:
    return text.replace("-", "+").replace("_", "/")
