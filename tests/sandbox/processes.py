"""Looking for processes by what they were started as: each test sleeps for a number of seconds of its own, a nap."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 60  # on a machine that is busy, Python alone takes many of them to start
_naps = itertools.count(1)


def new_nap() -> int:
    """For how long nobody else on this machine sleeps: tests run side by side, in several processes and of several checkouts."""
    return 1_000_000 + os.getpid() * 1_000 + next(_naps)


def sleepers(seconds: int) -> list[int]:
    """Who runs `sleep SECONDS` on this machine, in whatever namespace."""
    wanted = f"sleep\0{seconds}\0".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cmdline").read_bytes() == wanted:
                    found.append(int(entry.name))
    return found


async def until_there_are(count: int, seconds: int) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(sleepers(seconds)) != count:  # noqa: ASYNC110 - a poll with a deadline, not a guess
            await asyncio.sleep(0.01)


async def kill_whoever_runs(command: str, *, mode: str, root: Path, nap: int, sleeping: int) -> None:
    """A process of its own runs the command in that mode, and is killed when so many sleep in it."""
    program = f"""
import asyncio
from pathlib import Path
from tests.sandbox.conftest import Machine
from easel.sandbox.modes import choose
asyncio.run(Machine(Path({str(root)!r}), choose({mode!r})).bash({command!r}))
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=ROOT)
    try:
        await until_there_are(sleeping, nap)
    finally:
        worker.kill()
        await worker.wait()
