"""The definition of a tool: its name, its arguments and its effects. RS-44"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

X_SHELL = "x-shell"  # in a tool's schema: marks an argument that a shell reads. RS-57
# At the top of a tool's schema: its command gets the action's secrets as environment variables. RS-66
X_SECRETS = "x-secrets"
# Of an argument of Easel's own tool: the values with which a call is read-only. RS-74
X_READ_ONLY = "x-read-only"


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

    def is_read_only_with(self, args: Mapping[str, Any]) -> bool:
        """Return whether an argument makes a call of this machine's tool read-only.

        Not for nodes: a node could add this later, and only hints are compared with those that were accepted.
        """
        return self.name.startswith("local__") and any(
            isinstance(args.get(name), str) and args[name] in argument.get(X_READ_ONLY, ())
            for name, argument in self.schema["properties"].items()
        )

    @property
    def may_repeat(self) -> bool:
        """Return whether a call can safely be repeated if it is unknown whether it was executed. RS-38"""
        return self.read_only or self.idempotent
