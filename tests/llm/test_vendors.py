"""The strict servers refuse what the vendors refuse: each check with a request that it rejects.

Every case changes one thing in a request that the server accepts: the third of a conversation in which it
thought and called two tools.
"""

import asyncio
import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from easel.llm.build import Models
from tests.llm.talking import Talk, choice_of
from tests.llm.vendors import VENDORS
from tests.llm.vendors.answers import Answer, Call, load_answers
from tests.llm.vendors.server import KEY, VendorServer, serve
from tests.requirements import rule

TWO_CALLS = (Call("gsv__Clock", {"zone": "UTC"}), Call("gsv__Clock", {"zone": "CET"}))
ANSWERS = [
    Answer(thinking="I must look.", text="I look.", calls=TWO_CALLS),
    Answer(thinking="Again.", text="Once more.", calls=(Call("gsv__Clock", {"zone": "EST"}),)),
    Answer(text="Noon."),
]
Change = Callable[[dict[str, Any]], Any]
PATHS = {
    "openai-chat": "/chat/completions",
    "openai-responses": "/responses",
    "gemini": "/v1beta/models/some-model:streamGenerateContent?alt=sse",
    "anthropic": "/v1/messages",
}


def assign(path: str, value: Any) -> Change:
    """Return a change that sets the value at a path such as `messages.1.content`."""

    def change(body: dict[str, Any]) -> None:
        place, *keys = [body, *path.split(".")]
        for key in keys[:-1]:
            place = place[int(key)] if isinstance(place, list) else place[key]
        last: Any = int(keys[-1]) if isinstance(place, list) else keys[-1]
        place[last] = value

    return change


def delete(path: str) -> Change:
    def change(body: dict[str, Any]) -> None:
        place, *keys = [body, *path.split(".")]
        for key in keys[:-1]:
            place = place[int(key)] if isinstance(place, list) else place[key]
        last: Any = int(keys[-1]) if isinstance(place, list) else keys[-1]
        del place[last]

    return change


def swap(path: str, one: int, other: int) -> Change:
    def change(body: dict[str, Any]) -> None:
        items = body[path]
        items[one], items[other] = items[other], items[one]

    return change


def without_thinking(body: dict[str, Any]) -> None:
    body["thinking"] = {"type": "enabled", "budget_tokens": 1_024}
    del body["messages"][1]["content"][0]


CHANGED = {"type": "object", "properties": {"a": {"type": "string", "x-shell": True}}}
REFUSED: dict[str, dict[str, tuple[Change, str]]] = {
    # messages: system, user, assistant (two calls), tool, tool, assistant (a call), tool
    "openai-chat": {
        "unknown key": (assign("temperatur", 1), "Unrecognized request argument"),
        "not streamed": (assign("stream", False), "streamed"),
        "role order": (assign("messages.1.role", "assistant"), "must not follow"),
        "call without result": (delete("messages.4"), "did not have response messages"),
        "result without call": (assign("messages.4.tool_call_id", "call_9"), "must be a response to"),
        "duplicate id": (
            lambda body: assign("messages.2.tool_calls.1.id", body["messages"][2]["tool_calls"][0]["id"])(
                body
            ),
            "duplicate tool call id",
        ),
        "invented id": (assign("messages.2.tool_calls.0.id", "call_OpenAI99"), "unknown tool call id"),
        "name in history": (assign("messages.2.tool_calls.0.function.name", "a.b"), "invalid name"),
        "name of tool": (assign("tools.0.function.name", "a.b:c"), "Invalid tool name"),
        "long name": (assign("tools.0.function.name", "a" * 65), "Invalid tool name"),
        "schema keyword": (assign("tools.0.function.parameters", CHANGED), "unknown keyword 'x-shell'"),
        "schema top": (assign("tools.0.function.parameters", {"type": "object", "anyOf": []}), "top level"),
        "arguments": (assign("messages.2.tool_calls.0.function.arguments", "{"), "must be a JSON object"),
        "missing reasoning": (delete("messages.2.reasoning_content"), "history differs"),
        "changed answer": (assign("messages.2.content", "I sleep."), "history differs"),
        "changed question": (assign("messages.1.content", "Other"), "were changed"),
        "empty message": (assign("messages.1.content", ""), "must not be empty"),
    },
    # input: user, reasoning, message, call, call, output, output, reasoning, message, call, output
    "openai-responses": {
        "unknown key": (assign("messages", []), "Unrecognized request argument"),
        "not streamed": (assign("stream", False), "streamed"),
        "stored": (assign("store", True), "not stored"),
        "chat tools": (assign("tools.0", {"type": "function", "function": {}}), "tools: each must be"),
        "role order": (swap("input", 0, 2), "the first item must be of the user"),
        "call without result": (delete("input.6"), "No tool output found"),
        "result without call": (assign("input.6.call_id", "call_9"), "No tool call found"),
        "duplicate id": (
            lambda body: assign("input.4.call_id", body["input"][3]["call_id"])(body),
            "Duplicate function call id",
        ),
        "invented id": (assign("input.3.call_id", "call_OpenAI99"), "unknown function call id"),
        "invented item": (assign("input.3.id", "fc_99"), "not found"),
        "name of tool": (assign("tools.0.name", "a.b:c"), "Invalid tool name"),
        "long name": (assign("tools.0.name", "a" * 65), "Invalid tool name"),
        "schema keyword": (assign("tools.0.parameters", CHANGED), "unknown keyword"),
        "changed signature": (assign("input.1.encrypted_content", "AAAA"), "could not be verified"),
        "missing signature": (assign("input.1.encrypted_content", None), "could not be verified"),
        "missing reasoning": (delete("input.1"), "history differs"),
        "reasoning alone": (
            lambda body: body["input"].insert(2, {"role": "user", "content": "Wait"}),
            "required following item",
        ),
        "changed answer": (assign("input.2.content.0.text", "I sleep."), "history differs"),
        "changed question": (assign("input.0.content", "Other"), "were changed"),
    },
    # contents: user, model (thought, text, two calls), user (two responses), model, user
    "gemini": {
        "unknown key": (assign("messages", []), "Unrecognized request argument"),
        "role order": (delete("contents.0"), "must follow one of the user"),
        "unknown role": (assign("contents.0.role", "assistant"), "valid role"),
        "call without result": (delete("contents.2.parts.1"), "must equal the function calls"),
        "result without call": (delete("contents.1"), "right after a function call"),
        "invented result": (assign("contents.2.parts.0.functionResponse.id", "x"), "has no such call"),
        "duplicate id": (
            lambda body: assign(
                "contents.1.parts.3.functionCall.id", body["contents"][1]["parts"][2]["functionCall"]["id"]
            )(body),
            "duplicate function call id",
        ),
        "invented id": (assign("contents.1.parts.2.functionCall.id", "gem99"), "unknown function call id"),
        "name of tool": (assign("tools.0.functionDeclarations.0.name", "a b"), "Invalid tool name"),
        "long name": (assign("tools.0.functionDeclarations.0.name", "a" * 65), "Invalid tool name"),
        "schema keyword": (
            assign(
                "tools.0.functionDeclarations.0.parameters_json_schema",
                {"type": "object", "properties": {"a": {"type": "integer", "exclusiveMinimum": 0}}},
            ),
            "unknown keyword 'exclusiveMinimum'",
        ),
        "changed signature": (assign("contents.1.parts.2.thoughtSignature", "AAAA"), "not valid"),
        "missing signature": (delete("contents.1.parts.2.thoughtSignature"), "missing a thought_signature"),
        "changed answer": (assign("contents.1.parts.1.text", "I sleep."), "history differs"),
        "changed question": (assign("contents.0.parts.0.text", "Other"), "were changed"),
    },
    # messages: user, assistant (thinking, text, two uses), user (two results), assistant, user
    "anthropic": {
        "unknown key": (assign("input", []), "Unrecognized request argument"),
        "not streamed": (assign("stream", False), "stream must be true"),
        "unknown key of tool": (assign("tools.0.parameters", {}), "Extra inputs"),
        "role order": (delete("messages.0"), "roles must alternate"),
        "call without result": (delete("messages.2.content.1"), "without `tool_result`"),
        "result without call": (assign("messages.2.content.1.tool_use_id", "toolu_9"), "`tool_result`"),
        "extra result": (
            lambda body: body["messages"][4]["content"].append(
                {"type": "tool_result", "tool_use_id": "toolu_9", "content": [{"type": "text", "text": "x"}]}
            ),
            "unexpected `tool_use_id`",
        ),
        "duplicate id": (
            lambda body: assign("messages.1.content.3.id", body["messages"][1]["content"][2]["id"])(body),
            "must be unique",
        ),
        "invented id": (assign("messages.1.content.2.id", "toolu_99"), "unknown or invalid id"),
        "invalid id": (assign("messages.1.content.2.id", "a.b"), "unknown or invalid id"),
        "name of tool": (assign("tools.0.name", "a.b:c"), "Invalid tool name"),
        "long name": (assign("tools.0.name", "a" * 65), "Invalid tool name"),
        "schema keyword": (assign("tools.0.input_schema", CHANGED), "unknown keyword"),
        "changed signature": (assign("messages.1.content.0.signature", "AAAA"), "Invalid `signature`"),
        "missing signature": (delete("messages.1.content.0.signature"), "Invalid `signature`"),
        "missing thinking": (delete("messages.1.content.0"), "history differs"),
        "open turn without thinking": (without_thinking, "Expected `thinking`"),
        "changed thinking": (assign("messages.1.content.0.thinking", "I must not."), "history differs"),
        "changed answer": (assign("messages.1.content.1.text", "I sleep."), "history differs"),
        "changed question": (assign("messages.0.content.0.text", "Other"), "were changed"),
        "changed system": (assign("system.0.text", "Other"), "bound to a different conversation"),
        "white space": (assign("messages.0.content.0.text", " "), "non-whitespace"),
    },
}
CASES = [(vendor, case) for vendor, cases in REFUSED.items() for case in cases]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, tuple[VendorServer, dict[str, Any]]]]:
    """Each vendor's server after the conversation, and the last request of it."""
    with ExitStack() as stack:
        started = {
            provider: stack.enter_context(serve(vendor(), ANSWERS)) for provider, vendor in VENDORS.items()
        }
        asyncio.run(talk_to(started))
        yield {provider: (server, server.requests[-1]) for provider, server in started.items()}


async def talk_to(servers: dict[str, VendorServer]) -> None:
    models = Models()
    for provider, server in servers.items():
        await Talk(models.build_model(choice_of(provider, server.base_url))).say("What time is it?")
    await models.close()


@rule("CT-40", "CT-41", "CT-42", "CT-43")
@pytest.mark.parametrize("vendor, case", CASES)
def test_strict_server_refuses(
    vendor: str, case: str, servers: dict[str, tuple[VendorServer, dict[str, Any]]]
):
    server, accepted = servers[vendor]
    change, message = REFUSED[vendor][case]
    body = copy.deepcopy(accepted)
    change(body)
    status, answer = post(server, vendor, body)
    assert status in (400, 404)
    assert message in answer
    assert json.loads(answer)["error"]["message"] == server.rejections[-1]
    assert post(server, vendor, accepted)[0] == 200


def post(server: VendorServer, vendor: str, body: dict[str, Any]) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {KEY}", "x-goog-api-key": KEY}
    answer = httpx2.post(f"{server.base_url}{PATHS[vendor]}", json=body, headers=headers, timeout=30)
    return answer.status_code, answer.text


def test_vendor_server_runs_as_a_program_with_a_script(tmp_path: Path):
    script = tmp_path / "answers.json"
    rows = [{"calls": [{"tool": "gsv__Clock", "args": {"zone": "$last.zone"}}]}, {"text": "Noon."}]
    script.write_text(json.dumps(rows), encoding="utf-8")
    assert load_answers(script)[0].calls == (Call("gsv__Clock", {"zone": "$last.zone"}),)
    command = [
        sys.executable,
        "-m",
        "tests.llm.vendors",
        "openai-chat",
        "--script",
        str(script),
        "--key",
        "k",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            base_url = program.stdout.readline().strip()
            messages = [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": '{"zone": "CET"}'},
            ]
            body = {"model": "m", "stream": True, "messages": messages}
            answer = httpx2.post(
                f"{base_url}/chat/completions", json=body, headers={"authorization": "Bearer k"}, timeout=30
            )
        finally:
            program.terminate()
    pieces = "".join(
        call["function"]["arguments"]
        for line in answer.text.splitlines()
        if line.startswith("data: {")
        for choice in json.loads(line[6:])["choices"]
        for call in choice["delta"].get("tool_calls", [])
    )
    assert json.loads(pieces) == {"zone": "CET"}
