"""The stories that edges can call, in one value."""

from collections.abc import Sequence
from dataclasses import dataclass

from easel.core.tool.definition import ToolDefinition
from easel.host.readiness import Readiness
from easel.host.run_queue import RunQueue
from easel.host.run_tail import RunTails
from easel.host.sign_in import SignIn


@dataclass(frozen=True, slots=True)
class Host:
    sign_in: SignIn
    queue: RunQueue
    tails: RunTails
    readiness: Readiness
    tools: Sequence[ToolDefinition]
