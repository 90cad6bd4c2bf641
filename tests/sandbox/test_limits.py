"""What a command may use, and how it ends when it wants more: at its limit, with all its processes, and without disturbing others."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from easel.sandbox import command as shell
from easel.sandbox.limits import MB
from tests.requirements import case, rule
from tests.sandbox.conftest import SMALL, Machine, context
from tests.sandbox.processes import new_nap, sleepers, until_there_are

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

HOGS = [
    # what                      command                                                                        stopped by
    ("a fork bomb", "b() { b | b & }; b; sleep 60", "processes"),
    ("threads without end", f"exec python3 -c '{THREADS}'", "processes"),
    ("memory in one process", f"python3 -c \"{HOG.replace('64', '4096')}\"", None),
    ("memory in many", f"for i in 1 2 3 4 5 6 7 8; do python3 -c \"import time; {HOG}; time.sleep(60)\" & done; wait", "memory"),
    ("memory that is shared", "python3 -c \"import mmap, time; m = mmap.mmap(-1, 1 << 30); [m.write(bytes(1 << 20)) for _ in range(900)]; time.sleep(60)\"", "memory"),
    ("memory in a file that has no name", "python3 -c \"import os; os.memfd_create('x')\"", None),
    ("one busy process", "python3 -c 'while True: pass'", "cpu"),
    ("many busy processes", "for i in 1 2 3 4; do (while :; do :; done) & done; wait", "cpu"),
    ("busy children that end", "while :; do python3 -c 'sum(range(3_000_000))'; done", "cpu"),
    ("output without end", "yes", "output"),
    ("output of zeros", "cat /dev/zero", "output"),
    ("a file that grows", "cat /dev/zero > big", None),
]  # fmt: skip


@rule("SB-06", "SB-15")
@pytest.mark.parametrize("command, stopped", [row[1:] for row in HOGS], ids=[row[0] for row in HOGS])
async def test_a_hog_ends_at_its_limit(
    tmp_path: Path, bubblewrap: Choice, command: str, stopped: str | None
) -> None:
    machine = Machine(tmp_path / "sandbox", bubblewrap, replace(SMALL, cpu_seconds=2))
    ran = await machine.bash(command, timeout=100_000)
    assert ran.get("stopped") != "time", "its limit came first, and not the time that it had"
    assert ran["exit_code"] != 0
    if stopped is not None:  # else a limit of the kernel made it fail
        assert ran["exit_code"] == 137
        # One busy process may be ended by the kernel a moment before we look.
        assert ran.get("stopped", "cpu") == stopped
    assert await machine.says("echo well") == "well\n"


@rule("SB-06")
async def test_a_file_ends_at_its_limit(machine: Machine) -> None:
    await machine.bash("cat /dev/zero > big")
    assert (machine.folder() / "big").stat().st_size == 64 * MB


@rule("SB-06")
async def test_pages_that_processes_share_are_counted_once(machine: Machine) -> None:
    """Six processes that show 128 MB each, and have 128 MB together: under the limit of 256 MB."""
    script = """
import os, time
x = bytearray(b'x') * (128 << 20)
is_first = all(os.fork() for _ in range(5))
time.sleep(0.5)
print('done', flush=True)
if is_first:
    for _ in range(5): os.wait()  # what is left when it ends is ended with it
"""
    ran = await machine.bash(f'python3 -c "{script}"')
    assert (ran["exit_code"], ran["output"].count("done")) == (0, 6)


@rule("SB-06")
async def test_hogs_do_not_disturb_the_others(tmp_path: Path, bubblewrap: Choice, machine: Machine) -> None:
    """While one session breaks one limit after another, another one's commands come to their end."""
    busiest = Machine(
        tmp_path / "busiest", bubblewrap, replace(SMALL, cpu_seconds=1_000)
    )  # until it is told to end

    async def lateness() -> float:
        began = time.monotonic()
        assert await machine.says("echo well; seq 1000 | tail -1", "quiet") == "well\n1000\n"
        await asyncio.sleep(0.01)
        return time.monotonic() - began

    alone = [await lateness() for _ in range(3)]  # but for what else this machine has to do
    hogs = ["b() { b | b & }; b; sleep 60", "yes", HOGS[3][1]]
    at_work = [
        asyncio.create_task(machine.bash(command, f"hog {number}", timeout=60_000))
        for number, command in enumerate(hogs)
    ]
    busy = asyncio.create_task(
        busiest.bash("for i in 1 2 3; do (while :; do :; done) & done; wait", "busy", timeout=100_000)
    )
    beside: list[float] = []
    while len(beside) < 8 or not all(task.done() for task in at_work):
        beside.append(await lateness())
    assert not busy.done(), "nobody was alone for a moment"
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)
    assert [task.result()["exit_code"] for task in at_work] == [137] * 3
    assert statistics.median(beside) < 2 + 5 * statistics.median(alone)


@rule("SB-06")
async def test_a_command_that_takes_the_disk_s_reserve_is_stopped(
    tmp_path: Path, bubblewrap: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count()
    monkeypatch.setattr("easel.sandbox.command._free_bytes", lambda _: MB if next(looks) == 0 else 0)  # pyright: ignore[reportUnknownLambdaType]
    machine = Machine(tmp_path / "sandbox", bubblewrap, replace(SMALL, free_bytes=MB))
    ran = await machine.bash("sleep 60", timeout=30_000)
    assert (ran["stopped"], ran["exit_code"]) == ("disk", 137)


@rule("SB-06")
async def test_the_disk_keeps_its_reserve(tmp_path: Path, bubblewrap: Choice) -> None:
    free = 1 << 62  # more than there is: as if the disk were full
    machine = Machine(tmp_path / "sandbox", bubblewrap, replace(SMALL, free_bytes=free))
    ran = await machine.bash("echo more > file")
    assert (ran["stopped"], ran["exit_code"]) == ("disk", 137)
    assert not (machine.folder() / "file").exists()


@rule("SB-06")
@case("X8")
async def test_huge_output_is_cut_with_its_two_ends_kept_and_the_rest_counted(machine: Machine) -> None:
    ran = await machine.bash("echo first; head -c 500000 /dev/zero | tr '\\0' x; echo; echo last")
    assert ran["truncated"] is True
    assert ran["output"].startswith("first\nxxx")
    assert ran["output"].endswith("xxx\nlast\n")
    assert f"[{500_000 + 12 - 65_536} bytes left out]" in ran["output"]
    assert len(ran["output"]) < 70_000


@case("X8")
@rule("SB-06")
async def test_a_command_that_never_ends_is_killed_with_all_that_it_started(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    nap, until_over = new_nap(), shell._Running.until_over  # pyright: ignore[reportPrivateUsage]

    async def once_it_has_begun(running: Any, timeout_seconds: float) -> Any:
        await until_there_are(5, nap)
        return await until_over(running, timeout_seconds)

    monkeypatch.setattr(shell._Running, "until_over", once_it_has_begun)  # pyright: ignore[reportPrivateUsage]
    command = "sleep NAP & setsid sleep NAP & (sleep NAP &) ; nohup sleep NAP & echo begun; sleep NAP"
    ran = await machine.bash(command.replace("NAP", str(nap)), timeout=500)
    assert ran == {**ran, "stopped": "time", "exit_code": 137, "output": "begun\n"}
    assert "timeout" in ran["reason"]
    assert sleepers(nap) == []


@case("X8")
async def test_a_command_that_is_cancelled_is_gone_when_the_cancel_returns(machine: Machine) -> None:
    nap = new_nap()
    task = asyncio.create_task(machine.bash(f"setsid sleep {nap} & sleep {nap}"))
    await until_there_are(2, nap)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


@case("X8")
async def test_a_command_that_is_cancelled_while_it_starts_leaves_nothing(machine: Machine) -> None:
    """At every moment of the start, from before the fork to after the first word."""
    nap = new_nap()
    for pause in (0, 0, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05):
        task = asyncio.create_task(machine.bash(f"exec sleep {nap}"))
        await asyncio.sleep(pause)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sleepers(nap) == []


async def test_a_second_cancel_does_not_hurry_the_end(machine: Machine) -> None:
    nap = new_nap()
    task = asyncio.create_task(machine.bash(f"exec sleep {nap}"))
    await until_there_are(1, nap)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


async def test_what_a_command_left_behind_ends_with_it(machine: Machine) -> None:
    nap = new_nap()
    ran = await machine.bash(f"setsid sleep {nap} > /dev/null 2>&1 & echo started")
    assert (ran["output"], ran["exit_code"]) == ("started\n", 0)
    assert sleepers(nap) == []


async def test_a_command_that_fails_is_a_result(machine: Machine) -> None:
    assert await machine.bash("echo no >&2; exit 3") == {"output": "no\n", "exit_code": 3, "truncated": False}
    assert (await machine.bash("kill -TERM $$"))["exit_code"] == 143


async def test_output_comes_as_it_is_said(machine: Machine) -> None:
    """The command says the rest only when its first word was heard, and the end of a letter when its beginning was."""
    heard: list[str] = []
    wait = "until [ -e {0} ]; do sleep 0.01; done"
    command = f"echo one; {wait.format('go')}; printf 'tw\\303'; {wait.format('on')}; printf '\\266\\n'; printf '\\377'"

    def hear(text: str) -> None:
        heard.append(text)
        for word, file in (("one", "go"), ("tw", "on")):
            if word in text:
                (machine.folder() / file).touch()

    ran = await machine.tools["Bash"].use({"command": command, "timeout": 60_000}, context(), on_output=hear)
    assert "".join(heard) == ran["output"] == "one\ntwö\n�"
    assert ran["exit_code"] == 0


async def test_output_is_heard_by_whom_the_context_names(machine: Machine) -> None:
    heard: list[str] = []
    await machine.tools["Bash"].use({"command": "echo one"}, context(on_output=heard.append))
    assert heard == ["one\n"]


@rule("SB-09")
async def test_a_command_starts_in_well_under_a_tenth_of_a_second(machine: Machine) -> None:
    """All of it: the folder, the namespaces, bash, and the end of them.

    A machine that is busy with other tests gets ten tries. By how much it is late with anything is known from plain processes that
    are started between the commands: what they take, and what each that a command has to wait for would, is not the sandbox's.
    """
    await machine.bash("true")
    tries: list[float] = []
    while len(tries) < 10 and (not tries or tries[-1] >= 0.1):
        seconds: list[float] = []
        plain: list[float] = []
        for _ in range(30):
            began = time.perf_counter()
            await machine.bash("true")
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
            await (
                await asyncio.create_subprocess_exec("bash", "-c", "bash -c 'bash -c true; :'; :")
            ).wait()  # one waits for the other
            plain.append(time.perf_counter() - began)
        # The first try is the promise as it stands.
        tries.append(sorted(seconds)[28] - (sorted(plain)[28] if tries else 0))
    assert tries[-1] < 0.1, tries


@rule("SB-09")
async def test_many_commands_run_at_once(machine: Machine) -> None:
    """None of them ends before the last has begun."""
    sessions = [f"session {number}" for number in range(12)]
    begun: list[str] = []

    def hear(text: str) -> None:
        begun.append(text)
        if len(begun) == len(sessions):
            for session in sessions:
                (machine.folder(session) / "go").touch()

    args: dict[str, Any] = {"command": "echo begun; until [ -e go ]; do sleep 0.05; done", "timeout": 60_000}
    ran = await asyncio.gather(
        *(machine.tools["Bash"].use(args, context(session), on_output=hear) for session in sessions)
    )
    assert [one["exit_code"] for one in ran] == [0] * 12
