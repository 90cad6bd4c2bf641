"""What the tool loop needs from outside: a model."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from easel.core.run.conversation import Conversation, Part
from easel.core.tool.definition import ToolDefinition


class Model(Protocol):
    def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        """One answer, part by part; it ends after its tool calls, if it makes any. Raises `ModelFailed`."""
        ...
