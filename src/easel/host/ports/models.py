"""Port of the tool loop: a model."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from easel.core.run.conversation import Conversation, Part
from easel.core.tool.definition import ToolDefinition


class Model(Protocol):
    def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        """Yield the parts of one answer, which ends after its tool calls, if any. Raises `ModelFailed`."""
        ...
