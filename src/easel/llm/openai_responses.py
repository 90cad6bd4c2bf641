"""The wire of OpenAI Responses. Nothing is stored at the provider: encrypted reasoning comes along. CT-41"""

from typing import TYPE_CHECKING, cast

import httpx2
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.profiles import merge_profile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

from easel.core.model.choice import ModelChoice
from easel.llm.conversation import MessageForm
from easel.llm.openai_chat import openai_client
from easel.llm.wire import COMMON_PROFILE, Wire

if TYPE_CHECKING:
    from openai.types import ReasoningEffort

# These refuse a request for encrypted reasoning; every other model is asked, known to the library or not.
WITHOUT_REASONING = ("gpt-3.5", "gpt-4", "chatgpt-4o", "gpt-5-chat")


def build(choice: ModelChoice, http: httpx2.AsyncClient, endpoint: str) -> Wire:
    client = openai_client(choice, http)
    reasons = not choice.model.rpartition("/")[2].startswith(WITHOUT_REASONING)
    profile = OpenAIModelProfile(
        openai_supports_encrypted_reasoning_content=reasons,
        openai_responses_requires_store_false=True,
        openai_supports_phase=True,  # sent back only where it was received
        openai_responses_supports_prompt_cache_diagnostics=False,
    )
    model = OpenAIResponsesModel(
        choice.model,
        provider=OpenAIProvider(openai_client=client),
        profile=merge_profile(COMMON_PROFILE, profile),
    )
    settings = OpenAIResponsesModelSettings(openai_send_reasoning_ids=True)
    if choice.reasoning_effort:
        settings["openai_reasoning_effort"] = cast("ReasoningEffort", choice.reasoning_effort)
    form = MessageForm(choice.provider.value, endpoint, str(client.base_url))
    return Wire(model, settings, form)
