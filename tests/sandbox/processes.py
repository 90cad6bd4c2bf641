"""Looking for processes by what they were started as: each test sleeps for a number of seconds of its own."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

PATIENCE_SECONDS = 20


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
