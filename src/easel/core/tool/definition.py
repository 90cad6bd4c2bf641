"""The definition of a tool: its name, its arguments and its effects. RS-44"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

X_SHELL = "x-shell"  # marks an argument in a tool's schema that a shell will interpret. RS-57


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False

    @property
    def may_repeat(self) -> bool:
        """Return whether a call that may or may not have been executed can be made again. RS-38"""
        return self.read_only or self.idempotent
