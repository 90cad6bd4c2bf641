"""Strict servers of the four vendors' APIs, for tests of models and for journeys that need one."""

from tests.llm.vendors.anthropic import AnthropicVendor
from tests.llm.vendors.gemini import GeminiVendor
from tests.llm.vendors.openai_chat import OpenAIChatVendor
from tests.llm.vendors.openai_responses import OpenAIResponsesVendor

VENDORS = {
    "openai-chat": OpenAIChatVendor,
    "openai-responses": OpenAIResponsesVendor,
    "gemini": GeminiVendor,
    "anthropic": AnthropicVendor,
}
