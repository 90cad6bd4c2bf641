"""Open descriptors of a command: its own three, whatever Easel inherited and whichever event loop it uses."""

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

# Bash itself opens the folder that it lists.
OPEN = "cd /proc/self/fd && echo *"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[int]:
    """Open a file so that child processes would inherit it."""
    (tmp_path / "secret").write_text("of the parent")
    descriptor = os.open(tmp_path / "secret", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    yield descriptor
    os.close(descriptor)


@rule("SB-13", "SB-19")
@pytest.mark.parametrize("mode", ["bwrap", "logical"])
@pytest.mark.parametrize("loop", LOOPS)
def test_command_inherits_no_descriptor_of_easel(tmp_path: Path, secret: int, loop: str, mode: str) -> None:
    machine = Machine(tmp_path / "sandbox", choose(mode))

    async def run_several() -> list[str]:
        """Run commands concurrently: none inherits the pipes of another."""
        return await asyncio.gather(
            *(machine.output_of(f"{OPEN}; cat <&{secret} 2>&1 || true", session) for session in "abcd")
        )

    factory: Callable[[], asyncio.AbstractEventLoop] = LOOPS[loop]
    with asyncio.Runner(loop_factory=factory) as runner:
        for output in runner.run(run_several()):
            assert output.split("\n")[0] in ("0 1 2", "0 1 2 3"), output
            assert "of the parent" not in output


@rule("SB-13")
@pytest.mark.parametrize("mode", ["bwrap", "logical"])
@pytest.mark.parametrize("loop", LOOPS)
def test_command_can_open_its_output_by_path(tmp_path: Path, loop: str, mode: str) -> None:
    """Many scripts log that way; a socket, or a pipe of another user, could not be opened."""
    machine = Machine(tmp_path / "sandbox", choose(mode))
    script = "echo one > /dev/stderr; echo two | tee /dev/stdout; exec 5>/dev/fd/1; echo three >&5"
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(machine.output_of(script)) == "one\ntwo\ntwo\nthree\n"


@rule("SB-13", "SB-19")
async def test_command_inherits_no_descriptor_of_the_supervisor(tmp_path: Path) -> None:
    """A supervisor starts Easel with a lock or a log open: `exec 7<file; easel up`."""
    (tmp_path / "secret").write_text("of the supervisor")
    with Launcher(tmp_path, settings={"SANDBOX_FREE_MB": "0"}) as launcher:
        supervisor = ("/bin/bash", "-c", 'exec 7<"$0" 8>>"$0" 9</ && exec "$@"', str(tmp_path / "secret"))
        (up,) = launcher.ready(launcher.start("up", (*supervisor, *EASEL, "up", "--port", "0"), {}))
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
    [output] = [event["data"]["result"]["output"] for event in events if event["type"] == "tool.result"]
    assert output.split("\n")[0] in ("0 1 2", "0 1 2 3"), output
    assert output.count("Bad file descriptor") == 2, output
    assert (tmp_path / "secret").read_text() == "of the supervisor"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("has_pidfds", [True, False], ids=["with pidfds", "without pidfds"])
def test_end_of_a_child_is_noticed_with_and_without_pidfds(
    monkeypatch: pytest.MonkeyPatch, loop: str, has_pidfds: bool
) -> None:
    if not has_pidfds:
        monkeypatch.delattr(os, "pidfd_open")

    async def run_two() -> tuple[bytes, int | None, int | None]:
        first = await Child.start(
            ["/bin/sh", "-c", "echo out; echo err >&2; exit 5"], descriptors=(), env={}, cwd="/"
        )
        second = await Child.start(["/bin/sh", "-c", "exec sleep 60"], descriptors=(), env={}, cwd="/")
        try:
            second.kill()
            await asyncio.wait_for(asyncio.gather(first.wait(), second.wait()), TIMEOUT_SECONDS)
            return await first.output.read(), first.return_code, second.return_code
        finally:
            first.close()
            second.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(run_two()) == (b"out\nerr\n", 5, -9)
