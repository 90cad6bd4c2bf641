"""Models of choices: what is loaded when, what is shared, and what is never sent or shown."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from easel.core.model.choice import ModelChoice, Provider
from easel.core.run.conversation import Conversation, Part, ProviderData
from easel.errors import ModelFailed
from easel.llm.build import Models
from easel.llm.scripted import ScriptedModel
from tests.llm.talking import Talk, ask, choice_of, texts
from tests.llm.vendors import VENDORS
from tests.llm.vendors.answers import Answer, Call
from tests.llm.vendors.server import KEY, VendorServer, serve

LIBRARIES = ("pydantic_ai", "pydantic", "openai", "anthropic", "google.genai", "httpx2")


def test_no_library_is_loaded_before_a_provider_is_asked():
    code = f"""
import sys
import easel.llm, easel.assembly.server, easel.cli.app
from easel.core.model.choice import ModelChoice, Provider
from easel.llm.build import Models
models = Models()
for provider in Provider:
    models.build_model(ModelChoice(provider, "some-model"))
print([name for name in {LIBRARIES!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_choice_has_one_model_whatever_its_token_budget():
    models = Models()
    choice = choice_of("anthropic", "http://127.0.0.1:9")
    model = models.build_model(choice)
    assert models.build_model(ModelChoice(**{**_fields(choice), "token_budget": 5})) is model
    assert models.build_model(ModelChoice(**{**_fields(choice), "api_key": "other"})) is not model
    assert isinstance(models.build_model(ModelChoice(Provider.SCRIPTED, "")), ScriptedModel)


def _fields(choice: ModelChoice) -> dict[str, Any]:
    return {name: getattr(choice, name) for name in ModelChoice.__slots__}


async def test_users_of_a_provider_share_no_cookie(provider: str, server: VendorServer, models: Models):
    for name in ("some-model", "another"):
        await ask(models.build_model(choice_of(provider, server.base_url, model=name)), Conversation("Hi"))
    assert ["cookie" in headers for headers in server.headers] == [False, False]


async def test_conversation_is_converted_outside_of_the_event_loop(
    provider: str, server: VendorServer, models: Models, monkeypatch: pytest.MonkeyPatch
):
    import easel.llm.request as requests  # noqa: PLC0415 - loads the library

    seen: list[str] = []
    convert = requests.to_messages

    def record(*args: Any) -> Any:
        seen.append(threading.current_thread().name)
        return convert(*args)

    monkeypatch.setattr(requests, "to_messages", record)
    await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
    assert seen == ["easel-providers"]


async def test_provider_data_names_no_key_and_no_address(provider: str, server: VendorServer, models: Models):
    server.answers.append(Answer(thinking="Hm.", text="Hello."))
    parts: list[Part] = await ask(
        models.build_model(choice_of(provider, server.base_url)), Conversation("Hi")
    )
    data = next(part for part in parts if isinstance(part, ProviderData))
    assert data.provider == provider
    assert KEY not in str(data.data)
    assert "127.0.0.1" not in str(data.data)


async def test_data_of_another_address_is_not_sent(provider: str, server: VendorServer, models: Models):
    call = (Call("gsv__Clock", {}),)
    server.answers.append(Answer(thinking="Only for this server.", calls=call))
    talk = Talk(models.build_model(choice_of(provider, server.base_url)))
    await talk.say("Hi")
    with serve(VENDORS[provider]()) as other:
        talk.model = models.build_model(choice_of(provider, other.base_url))
        assert await talk.say("Go on") == "Done."
        assert "Only for this server." not in str(other.requests)


async def test_environment_of_the_host_is_not_used(
    provider: str, server: VendorServer, models: Models, monkeypatch: pytest.MonkeyPatch
):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "host-secret")
    for name in ("ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.setenv(name, "host-secret")
    for name in ("OPENAI_ADMIN_KEY", "OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "X-Gateway: host-secret\nAuthorization: host-secret\nX-Api-Key: host-secret")
    await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
    assert len(server.headers) == 1  # with the user's key: the server checks it
    assert "host-secret" not in str(server.headers)


async def test_server_without_keys_is_called_without_one(provider: str, models: Models):
    with serve(VENDORS[provider](), key="no-key") as server:
        model = models.build_model(choice_of(provider, server.base_url, key=""))
        assert texts(await ask(model, Conversation("Hi"))) == "Done."


@pytest.mark.parametrize("base_url", ["http://[", "no-address", "ftp://127.0.0.1/"])
async def test_unusable_address_fails_with_advice(provider: str, models: Models, base_url: str):
    with pytest.raises(ModelFailed, match="check the address"):
        await ask(models.build_model(choice_of(provider, base_url)), Conversation("Hi"))


EFFORTS = {
    ("openai-chat", "some-model", "high"): "'reasoning_effort': 'high'",
    ("openai-chat", "some-model", "none"): "'reasoning_effort': 'none'",
    ("openai-responses", "some-model", "low"): "'reasoning': {'effort': 'low'}",
    ("gemini", "gemini-3-pro-preview", "low"): "'thinking_level': 'LOW'",
    ("gemini", "gemini-2.5-flash", "none"): "'thinking_budget': 0",
    ("anthropic", "claude-opus-4-6", "medium"): "'effort': 'medium'",
    ("anthropic", "some-model", "high"): "'thinking': {'type': 'enabled', 'budget_tokens'",
}


@pytest.mark.parametrize("case", EFFORTS)
async def test_reasoning_effort_is_sent_in_the_provider_s_words(case: tuple[str, str, str], models: Models):
    provider, name, effort = case
    with serve(VENDORS[provider]()) as server:
        model = models.build_model(choice_of(provider, server.base_url, model=name, effort=effort))
        await ask(model, Conversation("Hi"))
        assert EFFORTS[case] in str(server.requests[0])


async def test_no_effort_is_sent_unless_it_is_chosen(provider: str, server: VendorServer, models: Models):
    await ask(models.build_model(choice_of(provider, server.base_url)), Conversation("Hi"))
    assert not {"reasoning_effort", "reasoning", "thinking", "thinkingConfig"} & {
        *server.requests[0],
        *server.requests[0].get("generationConfig", {}),
    }


async def test_requests_of_one_model_run_at_the_same_time(
    provider: str, server: VendorServer, models: Models
):
    server.answers += [Answer(text="Hello there", hangs_after=1), Answer(text="Second.")]
    model = models.build_model(choice_of(provider, server.base_url))
    first = asyncio.create_task(ask(model, Conversation("Hi")))
    assert await asyncio.to_thread(server.hanging.wait, 30)
    assert texts(await ask(model, Conversation("Hi"))) == "Second."
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
