"""The instructions of a run: the system text and the tools that its model is offered.

They are stored with the run's first step, so that every step and every attempt of the run sends the same.
Does not know how they are made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from easel.core.stream.json_text import to_json


class OfferedTool(NamedTuple):
    """The part of a tool's definition that a model gets."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Instructions:
    system: str
    tools: Sequence[OfferedTool]

    def to_text(self) -> str:
        """Return JSON text. As one string it is one artifact, shared by all runs with equal instructions."""
        return to_json({"system": self.system, "tools": self.tools})

    @classmethod
    def from_text(cls, text: str) -> "Instructions":
        members = msgspec.json.decode(text)
        return cls(members["system"], tuple(OfferedTool(*tool) for tool in members["tools"]))
