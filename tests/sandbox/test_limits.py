"""Limits of a command: it is stopped at its limit, with all its processes, and does not disturb other
commands.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from easel.sandbox import command as commands
from easel.sandbox.limits import MB
from tests.requirements import case, rule
from tests.sandbox.conftest import SMALL, Machine, context
from tests.sandbox.processes import new_nap, sleepers, wait_for_sleepers

if TYPE_CHECKING:
    from pathlib import Path

    from easel.sandbox.modes import Choice

pytestmark = pytest.mark.bwrap

HOG = "x = bytearray(b'x') * (64 << 20)"

THREADS = """
import threading, time
threading.stack_size(256 * 1024)
for _ in range(99): threading.Thread(target=time.sleep, args=[60]).start()
"""

MEMORY_HOGS = f'for i in $(seq 8); do python3 -c "import time; {HOG}; time.sleep(60)" & done; wait'
SHARED_MEMORY = """
import mmap, time
memory = mmap.mmap(-1, 1 << 30)
for _ in range(900): memory.write(bytes(1 << 20))
time.sleep(60)
"""

HOGS = [
    # name, command, stopped by
    ("fork bomb", "b() { b | b & }; b; sleep 60", "processes"),
    ("many threads", f"exec python3 -c '{THREADS}'", "processes"),
    ("memory of one process", f'python3 -c "{HOG.replace("64", "4096")}"', None),
    ("memory of many processes", MEMORY_HOGS, "memory"),
    ("shared memory", f"python3 -c '{SHARED_MEMORY}'", "memory"),
    ("memory of an anonymous file", "python3 -c \"import os; os.memfd_create('x')\"", None),
    ("one busy process", "python3 -c 'while True: pass'", "cpu"),
    ("many busy processes", "for i in 1 2 3 4; do (while :; do :; done) & done; wait", "cpu"),
    ("many short processes", "while :; do python3 -c 'sum(range(3_000_000))'; done", "cpu"),
    ("endless output", "yes", "output"),
    ("endless zeros", "cat /dev/zero", "output"),
    ("growing file", "cat /dev/zero > big", None),
]


@rule("SB-06", "SB-15")
@pytest.mark.parametrize("command, stopped", [row[1:] for row in HOGS], ids=[row[0] for row in HOGS])
async def test_command_is_stopped_at_its_limit(
    tmp_path: Path, bubblewrap: Choice, command: str, stopped: str | None
) -> None:
    limits = replace(SMALL, cpu_seconds=1) if stopped == "cpu" else SMALL
    machine = Machine(tmp_path / "sandbox", bubblewrap, limits)
    result = await machine.bash(command, timeout=100_000)
    assert result.get("stopped") != "time", "the limit must come before the timeout"
    assert result["exit_code"] != 0
    if stopped is not None:  # else a limit of the kernel made it fail
        assert result["exit_code"] == 137
        # The kernel may end one busy process before the watch does.
        assert result.get("stopped", "cpu") == stopped
    assert await machine.output_of("echo well") == "well\n"


@rule("SB-06")
async def test_file_size_is_limited(machine: Machine) -> None:
    await machine.bash("cat /dev/zero > big")
    assert (machine.folder() / "big").stat().st_size == 64 * MB


@rule("SB-06")
async def test_shared_pages_are_counted_once(machine: Machine) -> None:
    """Six processes with 128 MB each, shared by all, stay under the limit of 256 MB."""
    script = """
import os, time
x = bytearray(b'x') * (128 << 20)
is_first = all(os.fork() for _ in range(5))
time.sleep(0.5)
print('done', flush=True)
if is_first:
    for _ in range(5): os.wait()  # else they would be killed with it
"""
    result = await machine.bash(f'python3 -c "{script}"')
    assert (result["exit_code"], result["output"].count("done")) == (0, 6)


@rule("SB-06")
async def test_commands_at_their_limits_do_not_disturb_others(
    tmp_path: Path, bubblewrap: Choice, machine: Machine
) -> None:
    """While one session exceeds its limits, the commands of another session finish."""
    busy_machine = Machine(tmp_path / "busy", bubblewrap, replace(SMALL, cpu_seconds=1_000))

    async def measure() -> float:
        started_at = time.monotonic()
        assert await machine.output_of("echo well; seq 1000 | tail -1", "quiet") == "well\n1000\n"
        await asyncio.sleep(0.01)
        return time.monotonic() - started_at

    alone = [await measure() for _ in range(3)]
    hogs = ["b() { b | b & }; b; sleep 60", "yes", MEMORY_HOGS]
    running = [
        asyncio.create_task(machine.bash(command, f"hog {number}", timeout=60_000))
        for number, command in enumerate(hogs)
    ]
    busy = asyncio.create_task(
        busy_machine.bash("for i in 1 2 3; do (while :; do :; done) & done; wait", "busy", timeout=100_000)
    )
    beside: list[float] = []
    while len(beside) < 8 or not all(task.done() for task in running):
        beside.append(await measure())
    assert not busy.done(), "the busy command result all the time"
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)
    assert [task.result()["exit_code"] for task in running] == [137] * 3
    assert statistics.median(beside) < 2 + 5 * statistics.median(alone)


@rule("SB-06")
async def test_command_is_stopped_when_the_disk_is_nearly_full(
    tmp_path: Path, bubblewrap: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = count()

    def free_bytes(_: object) -> int:
        return MB if next(checks) == 0 else 0

    monkeypatch.setattr("easel.sandbox.command._free_bytes", free_bytes)
    machine = Machine(tmp_path / "sandbox", bubblewrap, replace(SMALL, free_bytes=MB))
    result = await machine.bash("sleep 60", timeout=30_000)
    assert (result["stopped"], result["exit_code"]) == ("disk", 137)


@rule("SB-06")
async def test_command_is_not_started_when_the_disk_is_nearly_full(
    tmp_path: Path, bubblewrap: Choice
) -> None:
    free = 1 << 62  # more than any disk has
    machine = Machine(tmp_path / "sandbox", bubblewrap, replace(SMALL, free_bytes=free))
    result = await machine.bash("echo more > file")
    assert (result["stopped"], result["exit_code"]) == ("disk", 137)
    assert not (machine.folder() / "file").exists()


@rule("SB-06")
@case("X8")
async def test_huge_output_keeps_its_beginning_and_end_and_counts_the_rest(machine: Machine) -> None:
    result = await machine.bash("echo first; head -c 500000 /dev/zero | tr '\\0' x; echo; echo last")
    assert result["truncated"] is True
    assert result["output"].startswith("first\nxxx")
    assert result["output"].endswith("xxx\nlast\n")
    assert f"[{500_000 + 12 - 65_536} bytes left out]" in result["output"]
    assert len(result["output"]) < 70_000


@case("X8")
@rule("SB-06")
async def test_command_over_its_timeout_is_killed_with_all_its_processes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    nap, wait = new_nap(), commands._RunningCommand.wait  # pyright: ignore[reportPrivateUsage]

    async def wait_after_start(running: Any, timeout_seconds: float) -> Any:
        await wait_for_sleepers(5, nap)
        return await wait(running, timeout_seconds)

    monkeypatch.setattr("easel.sandbox.command._RunningCommand.wait", wait_after_start)
    command = "sleep NAP & setsid sleep NAP & (sleep NAP &) ; nohup sleep NAP & echo started; sleep NAP"
    result = await machine.bash(command.replace("NAP", str(nap)), timeout=500)
    assert result == {**result, "stopped": "time", "exit_code": 137, "output": "started\n"}
    assert "timeout" in result["reason"]
    assert sleepers(nap) == []


@case("X8")
async def test_cancelled_command_has_ended_when_the_call_returns(machine: Machine) -> None:
    nap = new_nap()
    task = asyncio.create_task(machine.bash(f"setsid sleep {nap} & sleep {nap}"))
    await wait_for_sleepers(2, nap)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


@case("X8")
async def test_command_cancelled_during_its_start_leaves_no_process(machine: Machine) -> None:
    """Cancel at different moments of the start, from before the fork to after the first output."""
    nap = new_nap()
    for pause in (0, 0, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05):
        task = asyncio.create_task(machine.bash(f"exec sleep {nap}"))
        await asyncio.sleep(pause)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sleepers(nap) == []


async def test_second_cancel_does_not_interrupt_the_end(machine: Machine) -> None:
    nap = new_nap()
    task = asyncio.create_task(machine.bash(f"exec sleep {nap}"))
    await wait_for_sleepers(1, nap)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


async def test_background_processes_end_with_their_command(machine: Machine) -> None:
    nap = new_nap()
    result = await machine.bash(f"setsid sleep {nap} > /dev/null 2>&1 & echo started")
    assert (result["output"], result["exit_code"]) == ("started\n", 0)
    assert sleepers(nap) == []


async def test_failed_command_is_a_result(machine: Machine) -> None:
    assert await machine.bash("echo no >&2; exit 3") == {"output": "no\n", "exit_code": 3, "truncated": False}
    assert (await machine.bash("kill -TERM $$"))["exit_code"] == 143


async def test_output_is_forwarded_as_it_comes(machine: Machine) -> None:
    """The command waits for the first text to arrive before it writes the rest, and between two bytes of a
    letter.
    """
    received: list[str] = []
    wait = "until [ -e {0} ]; do sleep 0.01; done"
    first, second = wait.format("go"), wait.format("on")
    command = f"echo one; {first}; printf 'tw\\303'; {second}; printf '\\266\\n'; printf '\\377'"

    def on_output(text: str) -> None:
        received.append(text)
        for word, file in (("one", "go"), ("tw", "on")):
            if word in text:
                (machine.folder() / file).touch()

    result = await machine.tools["Bash"].use(
        {"command": command, "timeout": 60_000}, context(), on_output=on_output
    )
    assert "".join(received) == result["output"] == "one\ntwö\n�"
    assert result["exit_code"] == 0


async def test_output_is_forwarded_to_the_context(machine: Machine) -> None:
    received: list[str] = []
    await machine.tools["Bash"].use({"command": "echo one"}, context(on_output=received.append))
    assert received == ["one\n"]


@rule("SB-09")
async def test_command_runs_in_under_a_tenth_of_a_second(machine: Machine) -> None:
    """Measure the whole call: the folder, the namespaces, bash, and the end of them.

    On a quiet machine this holds for 14 of 15 commands. Other tests that run at the same time only add to a
    time, so that later attempts look at the fastest commands.
    """
    await machine.bash("true")
    attempts: list[float] = []
    while len(attempts) < 10 and (not attempts or attempts[-1] >= 0.1):
        seconds: list[float] = []
        for _ in range(15):
            started_at = time.perf_counter()
            await machine.bash("true")
            seconds.append(time.perf_counter() - started_at)
        seconds.sort()
        attempts.append(seconds[1] if attempts else seconds[13])
    assert attempts[-1] < 0.1, attempts


@rule("SB-09")
async def test_many_commands_run_concurrently(machine: Machine) -> None:
    """None of them ends before the last has started."""
    sessions = [f"session {number}" for number in range(12)]
    started: list[str] = []

    def on_output(text: str) -> None:
        started.append(text)
        if len(started) == len(sessions):
            for session in sessions:
                (machine.folder(session) / "go").touch()

    args: dict[str, Any] = {
        "command": "echo started; until [ -e go ]; do sleep 0.05; done",
        "timeout": 60_000,
    }
    results = await asyncio.gather(
        *(machine.tools["Bash"].use(args, context(session), on_output=on_output) for session in sessions)
    )
    assert [result["exit_code"] for result in results] == [0] * 12
