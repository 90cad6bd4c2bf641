"""What a tool says of itself: its name, its arguments and what it does to the world. RS-44"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

X_SHELL = "x-shell"  # marks an argument in a tool's schema that a shell will read. RS-57


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
        """Whether a call that may or may not have happened can simply be made again. RS-38"""
        return self.read_only or self.idempotent
