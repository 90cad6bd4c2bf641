"""The choice of a model: provider, model, key and address, as one user or the host has set it."""

from dataclasses import dataclass, field
from enum import StrEnum


class Provider(StrEnum):
    SCRIPTED = "scripted"
    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    GEMINI = "gemini"
    ANTHROPIC = "anthropic"


MIN_MASKED_KEY = 8  # characters; a shorter key is part of ordinary words
REASONING_EFFORTS = ("none", "low", "medium", "high")


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model of one user. `token_budget` limits the tokens of the conversation that a call is given."""

    provider: Provider
    model: str
    api_key: str = field(default="", repr=False)
    base_url: str = ""  # empty: the provider's own address
    reasoning_effort: str = ""  # empty: the model's default
    token_budget: int = 100_000
    is_public_only: bool = False  # whether `base_url` must lead to a public address
