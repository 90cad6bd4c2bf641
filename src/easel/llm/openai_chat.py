"""The wire of OpenAI Chat Completions, which most local servers and gateways speak. CT-40"""

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.profiles import merge_profile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from easel.core.model.choice import ModelChoice
from easel.llm.conversation import MessageForm
from easel.llm.wire import COMMON_PROFILE, NO_KEY, Wire

if TYPE_CHECKING:
    from openai.types import ReasoningEffort

OPENAI_URL = "https://api.openai.com/v1"


def build(choice: ModelChoice, http: httpx2.AsyncClient, endpoint: str) -> Wire:
    client = openai_client(choice, http)
    # Reasoning comes and goes back in the field in which the server sent it (`reasoning` of Ollama and vLLM,
    # `reasoning_content` of llama.cpp and others), whatever the model is called.
    profile = OpenAIModelProfile(
        openai_chat_send_back_thinking_parts="auto", openai_chat_streaming_requires_finish_reason=True
    )
    model = OpenAIChatModel(
        choice.model,
        provider=OpenAIProvider(openai_client=client),
        profile=merge_profile(COMMON_PROFILE, profile),
    )
    settings = OpenAIChatModelSettings()
    if choice.reasoning_effort:
        settings["openai_reasoning_effort"] = cast("ReasoningEffort", choice.reasoning_effort)
    form = MessageForm(choice.provider.value, endpoint, str(client.base_url), joins_user_texts=True)
    return Wire(model, settings, form, join_parts)


def openai_client(choice: ModelChoice, http: httpx2.AsyncClient) -> AsyncOpenAI:
    """Return a client without retries that uses nothing of the process's environment."""
    client = AsyncOpenAI(
        api_key=choice.api_key or NO_KEY,
        base_url=choice.base_url or OPENAI_URL,
        http_client=http,
        max_retries=0,
    )
    # The SDK takes these from the environment.
    client.organization = client.project = client.admin_api_key = None
    client._custom_headers = {}  # pyright: ignore[reportPrivateUsage]
    return client


def join_parts(response: ModelResponse) -> ModelResponse:
    """Join the pieces of the text and of the reasoning: a message has one string for each."""
    parts: list[ModelResponsePart] = []
    places: dict[object, int] = {}
    for part in response.parts:
        key = (type(part), part.id) if isinstance(part, ThinkingPart) else type(part)
        first = places.get(key)
        if isinstance(part, (TextPart, ThinkingPart)) and first is not None:
            joined = parts[first]
            if isinstance(joined, (TextPart, ThinkingPart)):
                parts[first] = replace(joined, content=joined.content + part.content)
                continue
        places.setdefault(key, len(parts))
        parts.append(part)
    return replace(response, parts=parts)
