"""What is open in a command: its own three descriptors, whatever Easel was started with, and whichever loop it runs on."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest
import uvloop

from easel.sandbox.modes import choose
from easel.sandbox.process import Child
from tests.journeys.client import Client, call, script
from tests.requirements import rule
from tests.sandbox.conftest import Machine
from tests.sandbox.processes import TIMEOUT_SECONDS
from tests.support.processes import EASEL, Launcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.bwrap

# Bash itself opens the folder that it lists, and nothing else.
OPEN = "cd /proc/self/fd && echo *"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[int]:
    """Open in us as in a process that inherited it."""
    (tmp_path / "secret").write_text("of whoever started it")
    descriptor = os.open(tmp_path / "secret", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    yield descriptor
    os.close(descriptor)


@rule("SB-13", "SB-19")
@pytest.mark.parametrize("mode", ["bwrap", "logical"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_command_has_none_of_what_easel_was_started_with(
    tmp_path: Path, secret: int, loop: str, mode: str
) -> None:
    machine = Machine(tmp_path / "sandbox", choose(mode))

    async def several() -> list[str]:
        """At once: what one is handed is not the other's either."""
        return await asyncio.gather(
            *(machine.says(f"{OPEN}; cat <&{secret} 2>&1 || true", session) for session in "abcd")
        )

    factory: Callable[[], asyncio.AbstractEventLoop] = LOOPS[loop]
    with asyncio.Runner(loop_factory=factory) as runner:
        for said in runner.run(several()):
            assert said.split("\n")[0] in ("0 1 2", "0 1 2 3"), said
            assert "of whoever started it" not in said


@rule("SB-13")
@pytest.mark.parametrize("mode", ["bwrap", "logical"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_command_can_open_its_output_by_name(tmp_path: Path, loop: str, mode: str) -> None:
    """Half of all scripts log that way; a socket, or a pipe of somebody else's, could not be opened."""
    machine = Machine(tmp_path / "sandbox", choose(mode))
    script = "echo one > /dev/stderr; echo two | tee /dev/stdout; exec 5>/dev/fd/1; echo three >&5"
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(machine.says(script)) == "one\ntwo\ntwo\nthree\n"


@rule("SB-13", "SB-19")
async def test_neither_has_one_of_an_easel_that_a_script_started(tmp_path: Path) -> None:
    """`exec 7<file; easel up`, as a supervisor with a lock or a log does it."""
    (tmp_path / "secret").write_text("of the supervisor")
    with Launcher(tmp_path, settings={"SANDBOX_FREE_MB": "0"}) as launcher:
        started = ("/bin/bash", "-c", 'exec 7<"$0" 8>>"$0" 9</ && exec "$@"', str(tmp_path / "secret"))
        (up,) = launcher.ready(launcher.start("up", (*started, *EASEL, "up", "--port", "0"), {}))
        async with Client(up) as client:
            run_id = await client.start(
                script(call("local__Bash", command=f"{OPEN}; cat <&7; echo x >&8; ls /proc/self/fd/9/; true"))
            )
            await client.wait_for(run_id, within=TIMEOUT_SECONDS)
            events = [
                json.loads(line[5:])
                for line in (await client.get(f"/api/runs/{run_id}/events")).text.splitlines()
                if line[:5] == "data:"
            ]
    [said] = [one["data"]["result"]["output"] for one in events if one["type"] == "tool.result"]
    assert said.split("\n")[0] in ("0 1 2", "0 1 2 3"), said
    assert said.count("Bad file descriptor") == 2, said
    assert (tmp_path / "secret").read_text() == "of the supervisor"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("has_handles", [True, False], ids=["with handles", "without"])
def test_a_child_is_waited_for_on_every_system(
    monkeypatch: pytest.MonkeyPatch, loop: str, has_handles: bool
) -> None:
    if not has_handles:
        monkeypatch.delattr(os, "pidfd_open")

    async def ends() -> tuple[bytes, int | None, int | None]:
        one = await Child.started(
            ["/bin/sh", "-c", "echo out; echo err >&2; exit 5"], descriptors=(), env={}, cwd="/"
        )
        other = await Child.started(["/bin/sh", "-c", "exec sleep 60"], descriptors=(), env={}, cwd="/")
        try:
            other.kill()
            await asyncio.wait_for(asyncio.gather(one.wait(), other.wait()), TIMEOUT_SECONDS)
            return await one.said.read(), one.returned, other.returned
        finally:
            one.close()
            other.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(ends()) == (b"out\nerr\n", 5, -9)
