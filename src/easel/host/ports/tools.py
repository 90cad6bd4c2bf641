"""What the tool registry needs from outside: tools and sources of tools."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from easel.core.tool.context import ToolContext
from easel.core.tool.definition import ToolDefinition
from easel.ids import UserId


class Tool(Protocol):
    @property
    def definition(self) -> ToolDefinition: ...

    async def use(self, args: Mapping[str, Any], context: ToolContext) -> Any:
        """Runs until done or cancelled; a cancelled tool leaves nothing running. Raises `ToolFailed`."""
        ...


class ToolSource(Protocol):
    """Others who offer tools, such as the machines that are connected."""

    async def definitions(self, user_id: UserId) -> Sequence[ToolDefinition]: ...

    async def find(self, user_id: UserId, name: str) -> Tool | None:
        """The tool of exactly this name, if it is there now."""
        ...
