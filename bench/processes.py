"""Children of the bench: each is started in a process group of its own, read through its stdout, and ended
with everything it started.

Does not know what a child does. No child outlives the `async with` that started it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent

STOP_SECONDS = 10.0
# A child that has not ended by then is killed.

START_SECONDS = 30.0
# Long enough for a first import on a cold disk.

_LINE_BYTES = 1024 * 1024
_LINES_KEPT = 1000
# Stdout is read continuously, so that no child blocks on a full pipe; of unread lines the newest are kept.


class ChildFailed(RuntimeError):
    """A child ended, or printed nothing, where a line was expected."""


class Child:
    """A running program: its process id, and the lines it prints."""

    def __init__(self, process: asyncio.subprocess.Process, name: str, log: Path) -> None:
        self._process = process
        self._name = name
        self._log = log
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def line(self, pattern: str, *, seconds: float = START_SECONDS) -> re.Match[str]:
        """Wait for a line of stdout that matches, skipping others."""
        wanted = re.compile(pattern)
        try:
            async with asyncio.timeout(seconds):
                while (said := await self._lines.get()) is not None:
                    if found := wanted.search(said):
                        return found
        except TimeoutError:
            raise ChildFailed(
                f"{self._name} did not say {pattern!r} within {seconds:g} s{self._last_words()}"
            ) from None
        self._lines.put_nowait(None)
        raise ChildFailed(f"{self._name} ended before it said {pattern!r}{self._last_words()}")

    async def ended(self, *, seconds: float) -> int:
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    def expect_alive(self) -> None:
        if self._process.returncode is not None:
            raise ChildFailed(f"{self._name} ended with {self._process.returncode}{self._last_words()}")

    def kill(self) -> None:
        """Kill it, as a crash would."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """Terminate, wait, then kill. Everything that it started ends with it."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                await self.ended(seconds=STOP_SECONDS)
        self.kill()
        await self._process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while raw := await self._process.stdout.readline():
            if self._lines.qsize() >= _LINES_KEPT:
                self._lines.get_nowait()
            self._lines.put_nowait(raw.decode(errors="replace").rstrip("\n"))
        self._lines.put_nowait(None)

    def _last_words(self) -> str:
        with suppress(OSError):
            if text := self._log.read_text(errors="replace").strip():
                return f"; its stderr ended with:\n{text[-2000:]}"
        return ""


@asynccontextmanager
async def child(
    command: Sequence[str], *, name: str, folder: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """Run `command` from the project's root, its stderr kept in `folder`, until the block ends."""
    log = folder / f"{name}-{os.urandom(3).hex()}.log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            limit=_LINE_BYTES,
        )
    running = Child(process, name, log)
    try:
        yield running
    finally:
        await asyncio.shield(running.stop())


def bench_module(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of the bench's modules with this interpreter."""
    return [sys.executable, "-m", f"bench.{module}", *arguments]
