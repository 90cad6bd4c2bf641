"""The wire of Anthropic Messages. Thinking and tool blocks go back in order, with signatures. CT-43"""

import httpx2
from anthropic import AsyncAnthropic
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.profiles import merge_profile
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider

from easel.core.model.choice import ModelChoice
from easel.llm.conversation import MessageForm
from easel.llm.wire import COMMON_PROFILE, NO_KEY, Wire, thinking_of

ANTHROPIC_URL = "https://api.anthropic.com"


def build(choice: ModelChoice, http: httpx2.AsyncClient, endpoint: str) -> Wire:
    key = choice.api_key or NO_KEY
    client = AsyncAnthropic(
        api_key=key, base_url=choice.base_url or ANTHROPIC_URL, http_client=http, max_retries=0
    )
    # The SDK sends the key as a bearer token; gateways and local servers may know the older header only.
    # Assigned afterwards, because the SDK adds headers from the environment.
    headers = {"x-api-key": key} if choice.base_url else {}
    client._custom_headers = headers  # pyright: ignore[reportPrivateUsage]
    model = AnthropicModel(
        choice.model,
        provider=AnthropicProvider(anthropic_client=client),
        profile=merge_profile(COMMON_PROFILE, AnthropicModelProfile(supports_thinking=True)),
    )
    # Marks on blocks instead of the newer field of the request, which gateways do not all know.
    settings = AnthropicModelSettings(
        anthropic_cache_tool_definitions=True,
        anthropic_cache_instructions=True,
        anthropic_cache_messages=True,
    )
    effort = thinking_of(choice.reasoning_effort) if choice.reasoning_effort else None
    if effort is not None:
        settings["thinking"] = effort
    form = MessageForm(choice.provider.value, endpoint, str(client.base_url), needs_signature=True)
    is_adaptive = model.profile.get("anthropic_supports_adaptive_thinking", False)
    has_budget = bool(effort) and not is_adaptive
    return Wire(model, settings, form, needs_first_thought=has_budget)
