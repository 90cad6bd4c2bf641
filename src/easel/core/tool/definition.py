"""The definition of a tool: its name, its arguments and its effects. RS-44"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

X_SHELL = "x-shell"  # in a tool's schema: marks an argument that a shell reads. RS-57
# At the top of a tool's schema: its command gets the action's secrets as environment variables. RS-66
X_SECRETS = "x-secrets"


def object_schema(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    """Return the schema of arguments of these names and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    is_for_agents: bool = True  # False: offered to actions of canvases only

    @property
    def takes_secrets(self) -> bool:
        return self.schema.get(X_SECRETS) is True

    @property
    def may_repeat(self) -> bool:
        """Return whether a call can safely be repeated if it is unknown whether it was executed. RS-38"""
        return self.read_only or self.idempotent
