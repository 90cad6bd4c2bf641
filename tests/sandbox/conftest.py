"""A real sandbox: bubblewrap of this machine, and session folders on its disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.tool.context import ToolContext
from easel.ids import OWNER, AccountId
from easel.sandbox.bubblewrap import Bubblewrap
from easel.sandbox.limits import MB, CommandLimits
from easel.sandbox.modes import Choice, choose
from easel.sandbox.session_dirs import SessionDirs
from easel.sandbox.tools import MachineTool, machine_tools
from tests.support.principals import person

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from easel.core.principal import Principal

SMALL = CommandLimits(
    cpu_seconds=20, memory_bytes=256 * MB, processes=48, output_bytes=MB, file_bytes=64 * MB, free_bytes=0
)


def context(
    session: str = "a", user: AccountId = OWNER, on_output: Callable[[str], None] | None = None
) -> ToolContext:
    return ToolContext(person(user, "someone"), session, on_output=on_output)


@dataclass
class Machine:
    """The machine tools, called for any session."""

    root: Path
    choice: Choice
    limits: CommandLimits = SMALL
    network: bool = False  # of the sessions
    tool_network: bool = True  # of the tool
    notes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    folders: SessionDirs = field(init=False)
    tools: Mapping[str, MachineTool] = field(init=False)

    def __post_init__(self) -> None:
        self.folders = SessionDirs(self.root, owner=self.choice.owner, network=self.network)
        shell = self.choice.shell(self.limits)
        tools = machine_tools(
            "local", self.folders, shell, network=self.tool_network, note=self._note, worker_id="wrk_1"
        )
        self.tools = {tool.bare_name: tool for tool in tools}

    def _note(
        self, principal: Principal | None, action: str, /, *, subject: str | None, details: Mapping[str, Any]
    ) -> None:
        self.notes.append(
            (action, {"account_id": principal and principal.account_id, "subject": subject, **details})
        )

    def folder(self, session: str = "a", user: AccountId = OWNER) -> Path:
        return self.folders.folder_of(user, session)

    async def use(self, tool: str, session: str = "a", user: AccountId = OWNER, **args: Any) -> Any:
        return await self.tools[tool].use(args, context(session, user))

    async def bash(
        self, command: str, session: str = "a", user: AccountId = OWNER, **args: Any
    ) -> dict[str, Any]:
        return await self.use("Bash", session, user, command=command, **args)

    async def output_of(self, command: str, session: str = "a") -> str:
        """Run a command that must succeed, and return its output."""
        result = await self.bash(command, session)
        assert result["exit_code"] == 0, result
        return result["output"]


@pytest.fixture(scope="session")
def bubblewrap() -> Choice:
    """Probe bubblewrap. Fails with the reason on a machine that forbids it."""
    choice = choose("bwrap")
    assert isinstance(choice.launcher, Bubblewrap)
    return choice


@pytest.fixture
def machine(tmp_path: Path, bubblewrap: Choice) -> Machine:
    return Machine(tmp_path / "sandbox", bubblewrap)
