"""One wire family of model providers, ready to be called: the differences between the four.

Imported only with a provider's library. Each family has a module with `build(choice, http, endpoint)`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings, ThinkingLevel

from easel.llm.conversation import MessageForm

NO_KEY = "no-key"  # for servers without keys; the SDKs insist on one

# Settings of every family: schemas are sent as they are unless a family says otherwise, without files.
COMMON_PROFILE = ModelProfile(json_schema_transformer=None, supports_image_output=False)


@dataclass(frozen=True, slots=True)
class Wire:
    model: Model[Any]
    settings: ModelSettings
    form: MessageForm
    finish: Callable[[ModelResponse], ModelResponse] = lambda response: response
    needs_first_thought: bool = False  # whether thinking is on and an open turn must begin with a thought


def thinking_of(effort: str) -> ThinkingLevel:
    """Return the effort in the library's words, which it fits to what the model takes."""
    return False if effort == "none" else cast("ThinkingLevel", effort)
