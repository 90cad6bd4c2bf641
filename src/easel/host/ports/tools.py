"""Ports of the tool registry: tools and sources of tools."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.ids import AccountId


class Tool(Protocol):
    @property
    def definition(self) -> ToolDefinition: ...

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the tool and return its result.

        If cancelled, the tool must leave nothing running. Raises `ToolFailed`.
        """
        ...


@runtime_checkable
class RemoteTool(Tool, Protocol):
    """A tool of another instance. It gets the names of secrets; that instance resolves them. RS-66"""

    @property
    def instance_of_node(self) -> str: ...


class ToolSource(Protocol):
    """A provider of tools, such as the connected nodes."""

    async def definitions(self, account_id: AccountId) -> Sequence[ToolDefinition]: ...

    async def find(self, account_id: AccountId, name: str) -> Tool | None:
        """Return the tool of exactly this name, if it is available now."""
        ...
