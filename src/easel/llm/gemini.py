"""The wire of Gemini. A thought's signature goes back in the part that it came with. CT-42"""

import httpx2
from google.genai import Client
from google.genai.types import HttpOptions, HttpRetryOptions
from pydantic_ai.models.google import GoogleModel, GoogleModelSettings
from pydantic_ai.profiles import merge_profile
from pydantic_ai.profiles.google import GoogleJsonSchemaTransformer, GoogleModelProfile
from pydantic_ai.providers.google import GoogleProvider

from easel.core.model.choice import ModelChoice
from easel.llm.conversation import MessageForm
from easel.llm.wire import COMMON_PROFILE, NO_KEY, Wire, thinking_of

GEMINI_URL = "https://generativelanguage.googleapis.com/"


def build(choice: ModelChoice, http: httpx2.AsyncClient, endpoint: str) -> Wire:
    base_url = choice.base_url or GEMINI_URL
    read_seconds = http.timeout.read or 0
    client = Client(
        vertexai=False,
        api_key=choice.api_key or NO_KEY,
        http_options=HttpOptions(
            base_url=base_url,
            api_version="v1beta",
            httpx_async_client=http,
            timeout=int(read_seconds * 1000),
            retry_options=HttpRetryOptions(attempts=1),
        ),
    )
    profile = GoogleModelProfile(json_schema_transformer=GoogleJsonSchemaTransformer, supports_thinking=True)
    model = GoogleModel(
        choice.model, provider=GoogleProvider(client=client), profile=merge_profile(COMMON_PROFILE, profile)
    )
    settings = GoogleModelSettings()
    if choice.reasoning_effort:
        settings["thinking"] = thinking_of(choice.reasoning_effort)
    form = MessageForm(
        choice.provider.value,
        endpoint,
        base_url,
        media_types=frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}),
        results_as_objects=True,
        has_own_ids=False,
    )
    return Wire(model, settings, form)
