"""Audit records of the sandbox: commands, and attempts to leave the workspace or to exceed a limit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from easel.core.audit.record import ACTIONS, StorageClass
from easel.core.principal import Principal, PrincipalKind
from easel.core.run.run import Claim
from easel.core.tool.context import ToolContext
from easel.errors import ToolFailed
from easel.ids import OWNER, RunId, SessionId, WorkerId
from easel.sandbox.bubblewrap import Bubblewrap
from tests.requirements import rule
from tests.sandbox.conftest import SMALL, Machine
from tests.sandbox.processes import new_nap, wait_for_sleepers
from tests.support.principals import person

if TYPE_CHECKING:
    from pathlib import Path

    from easel.sandbox.modes import Choice

pytestmark = pytest.mark.bwrap

CLAIM = Claim(
    run_id=RunId("run_1"),
    worker_id=WorkerId("wrk_of_the_run"),
    attempt=1,
    account_id=OWNER,
    session_id=SessionId("main"),
    input_text="",
    max_attempts=3,
    last_seq=0,
    turn_no=1,
    queued_seconds=0,
    running_seconds=0,
    cancel_requested=False,
)


@rule("SB-16")
async def test_every_command_is_recorded_with_its_exit_code(machine: Machine) -> None:
    await machine.bash("exit 3", "agent:main:s")
    [(action, details)] = machine.notes
    assert action == "sandbox.ran"
    assert ACTIONS[action] is StorageClass.AUDIT
    assert details == {
        "account_id": OWNER,
        "subject": "agent:main:s",
        "tool": "local__Bash",
        "sandbox_mode": "bwrap",
        "worker_id": "wrk_1",
        "session_id": "agent:main:s",
        "sandbox_root": str(machine.folder("agent:main:s")),
        "exit_code": 3,
        "seconds": details["seconds"],
    }


@rule("SB-16")
async def test_record_of_a_run_names_its_worker(machine: Machine) -> None:
    context = ToolContext(Principal(OWNER, "agent", kind=PrincipalKind.AGENT), "agent:main:main", CLAIM)
    await machine.tools["Bash"].use({"command": "true"}, context)
    [(_, details)] = machine.notes
    assert (details["subject"], details["worker_id"], details["session_id"]) == (
        "run_1",
        "wrk_of_the_run",
        "agent:main:main",
    )


@rule("SB-17", "SB-16")
async def test_exceeded_limit_is_recorded_as_violation_too(tmp_path: Path, bubblewrap: Choice) -> None:
    machine = Machine(tmp_path / "sandbox", bubblewrap, replace(SMALL, output_bytes=1_000))
    await machine.bash("yes")
    [(first, ran), (second, violation)] = machine.notes
    assert (first, ran["exit_code"]) == ("sandbox.ran", 137)
    assert second == "sandbox.violation"
    assert {"kind": "limit", "limit": "output", "sandbox_mode": "bwrap"}.items() <= violation.items()
    assert ACTIONS[second] is StorageClass.AUDIT


@rule("SB-17")
async def test_workdir_outside_the_workspace_is_a_violation_and_nothing_runs(machine: Machine) -> None:
    with pytest.raises(ToolFailed, match="outside of /workspace"):
        await machine.bash("touch ran", workdir="../other")
    [(action, details)] = machine.notes
    assert action == "sandbox.violation"
    assert (details["kind"], details["path"]) == ("path", "../other")
    assert not (machine.folder() / "ran").exists()


async def test_timeout_is_not_a_violation(machine: Machine) -> None:
    await machine.bash("sleep 60", timeout=300)
    assert [action for action, _ in machine.notes] == ["sandbox.ran"]


@rule("SB-16")
async def test_cancelled_command_is_recorded(machine: Machine) -> None:
    nap = new_nap()
    task = asyncio.create_task(machine.bash(f"exec sleep {nap}"))
    await wait_for_sleepers(1, nap)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    [(action, details)] = machine.notes
    assert (action, details["exit_code"], details["cancelled"]) == ("sandbox.ran", 137, True)


async def test_output_is_not_recorded(machine: Machine) -> None:
    await machine.bash("echo private-word")
    assert "private-word" not in str(machine.notes)


@pytest.mark.parametrize("command", ["x" * 100_001, "echo \0", "echo \ud800", "é" * 60_000])
async def test_invalid_command_is_refused(machine: Machine, command: str) -> None:
    with pytest.raises(ToolFailed, match="local__Bash"):
        await machine.bash(command)


async def test_long_command_is_run(machine: Machine) -> None:
    assert await machine.output_of("echo " + "x" * 99_000 + " | wc -c") == "99001\n"


async def test_missing_workdir_is_reported(machine: Machine) -> None:
    with pytest.raises(ToolFailed, match="nowhere does not exist"):
        await machine.bash("true", workdir="nowhere")


async def test_broken_sandbox_is_an_error_of_the_tool(machine: Machine) -> None:
    """The command did not run, so there is no result."""
    tool, launcher = machine.tools["Bash"], machine.choice.launcher
    assert tool.shell is not None
    assert isinstance(launcher, Bubblewrap)
    broken = replace(tool, shell=replace(tool.shell, launcher=replace(launcher, program="/bin/false")))
    with pytest.raises(ToolFailed, match="could not be set up"):
        await broken.use({"command": "true"}, ToolContext(person(OWNER, "x"), "a"))
