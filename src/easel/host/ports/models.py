"""Ports of the tool loop: models, and which one an account has chosen."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from easel.core.model.choice import ModelChoice
from easel.core.run.conversation import Conversation, Part
from easel.core.tool.definition import ToolDefinition
from easel.ids import AccountId


class Model(Protocol):
    @property
    def is_remote(self) -> bool:
        """Whether a call is a request to a provider, which counts as activity while it is in flight. RS-70"""
        ...

    def reply(self, conversation: Conversation, tools: Sequence[ToolDefinition]) -> AsyncIterator[Part]:
        """Yield the parts of one answer, which ends after its tool calls, if any.

        Tool calls are yielded when the answer is complete, then the usage and the provider's data, if any. A
        cancelled call ends the provider's request. Raises `ModelFailed`.
        """
        ...


class ModelSource(Protocol):
    async def choose(self, account_id: AccountId) -> tuple[ModelChoice, Model]:
        """Return the model that the account has chosen now: a change takes effect at the next step."""
        ...
