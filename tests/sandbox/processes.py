"""Find the processes of a test: each test runs `sleep` with a number of seconds that no other test uses, a
nap.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from pathlib import Path

from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 60  # on a busy machine the start of Python alone takes many seconds
_naps = itertools.count(1)


def new_nap() -> int:
    """Return a number of seconds that is unique on this machine: tests run in several processes and
    checkouts.
    """
    return 1_000_000 + os.getpid() * 1_000 + next(_naps)


def sleepers(seconds: int) -> list[int]:
    """Return the pids that run `sleep SECONDS` on this machine, in any namespace."""
    command_line = f"sleep\0{seconds}\0".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cmdline").read_bytes() == command_line:
                    found.append(int(entry.name))
    return found


async def wait_for_sleepers(count: int, seconds: int) -> None:
    await wait_for(
        lambda: len(sleepers(seconds)) == count,
        what=f"{count} processes sleep for {seconds} s",
        within=TIMEOUT_SECONDS,
    )


async def kill_runner(command: str, *, mode: str, root: Path, nap: int, sleeping: int) -> None:
    """Run the command in another process, and kill that process when the command has `sleeping` sleepers."""
    program = f"""
import asyncio
from pathlib import Path
from tests.sandbox.conftest import Machine
from easel.sandbox.modes import choose
asyncio.run(Machine(Path({str(root)!r}), choose({mode!r})).bash({command!r}))
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=ROOT)
    try:
        await wait_for_sleepers(sleeping, nap)
    finally:
        worker.kill()
        await worker.wait()
