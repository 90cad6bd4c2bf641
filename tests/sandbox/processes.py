"""Looking for processes by what they were started as: each test sleeps for a number of seconds of its own, a nap."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from pathlib import Path

PATIENCE_SECONDS = 60  # on a machine that is busy, Python alone takes many of them to start
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
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(sleepers(seconds)) != count:  # noqa: ASYNC110 - a poll with a deadline, not a guess
            await asyncio.sleep(0.01)
