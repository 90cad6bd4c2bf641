"""One command, from its start to the end of everything that it started.

Owns the waiting: output as it comes, the watch over what the command uses, its time, and its end. A command ends with all its
processes, whether it came to its end, ran out of something or nobody wants it any more; `run` returns when they are gone. How it is
started is the launcher's business.
"""

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec

from easel.sandbox.bubblewrap import MARK, PATH, Launch
from easel.sandbox.concurrency import at_most, see_through
from easel.sandbox.limits import CommandLimits, Stopped
from easel.sandbox.output import Hear, Output
from easel.sandbox.process import Child, ended, reader
from easel.sandbox.usage import Seen, look_below, look_for, marked, proportional_bytes
from easel.sandbox.workspace import Workspace

LOOK_SECONDS = 0.05  # how far a command can get beyond its limits before it is seen
LOOKING_SHARE = 20  # looking at a command with many processes takes at most one part in so many of our time
CHUNK = 64 * 1024
BIRTH_SECONDS = 1.0  # how long bubblewrap may take to tell of its child when we want to end it
END_SECONDS = 5.0  # how long what was killed may take to be gone; longer only in a kernel that hangs
KILLED = 128 + signal.SIGKILL
MAX_ROUNDS = 50  # of killing what multiplies meanwhile


class NotStarted(Exception):
    """The sandbox could not be set up; the command did not run."""


class Launcher(Protocol):
    @property
    def name(self) -> str: ...

    def launch(
        self, command: str, place: Workspace, cwd: str, limits: CommandLimits, *, network: bool
    ) -> Launch: ...


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it said."""

    output: str
    truncated: bool
    exit_code: int
    seconds: float
    stopped: Stopped | None = None  # by us


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs commands in the one mode that is in force here."""

    launcher: Launcher
    limits: CommandLimits

    @property
    def mode(self) -> str:
        return self.launcher.name

    async def run(
        self,
        command: str,
        place: Workspace,
        *,
        cwd: str,
        timeout_seconds: float,
        network: bool = False,
        hear: Hear | None = None,
    ) -> Ran:
        """Raises `NotStarted`. Cancelled, it ends the command first. The network needs the tool's word and the place's. RS-54"""
        if _free_bytes(place) < self.limits.free_bytes:
            return Ran("", truncated=False, exit_code=KILLED, seconds=0.0, stopped=Stopped.DISK)
        began = time.monotonic()
        running = _Running(place, self.limits, Output(hear))
        try:
            with self.launcher.launch(
                command, place, cwd, self.limits, network=network and place.network
            ) as launch:
                await see_through(running.start(launch))
            stopped = await running.until_over(timeout_seconds)
        finally:
            await see_through(running.end())
        text, truncated = running.output.text()
        if stopped is None and running.exit_code is None:
            raise NotStarted(text.strip()[:500] or "it ended without a word")
        code = KILLED if stopped or running.exit_code is None else running.exit_code
        return Ran(text, truncated, code, time.monotonic() - began, stopped)


class _Running:
    def __init__(self, place: Workspace, limits: CommandLimits, output: Output) -> None:
        self.output = output
        self._place = place
        self._limits = limits
        self._child: Child | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stop: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()
        self._is_namespace = False
        self._status: asyncio.StreamReader | None = None
        self._status_pipe: asyncio.ReadTransport | None = None
        self._born = asyncio.Event()
        self._top: int | None = None  # the first process of its namespace, whose descendants all others are
        self._handle: int | None = None  # of that process, which no other can take over
        self._told: int | None = None  # the exit code, as bubblewrap tells it
        self._mark = b""  # by which its processes are known where no namespace holds them together
        self._lifeline: int | None = None  # what its keeper holds on to there

    @property
    def exit_code(self) -> int | None:
        """None: the command never began."""
        returned = self._child.returned if self._child else None
        if self._told is not None or returned is None:
            return self._told
        if returned < 0:
            return 128 - returned
        return None if self._is_namespace else returned

    async def start(self, launch: Launch) -> None:
        self._is_namespace = launch.status is not None
        self._mark = launch.mark.encode()
        self._lifeline = launch.lifeline
        if launch.status is not None:
            self._status, self._status_pipe = await reader(os.fdopen(launch.status, "rb", 0))
        env = {"PATH": PATH} | ({MARK: launch.mark} if launch.mark else {})
        self._child = await Child.started(
            launch.argv, descriptors=launch.descriptors, env=env, cwd=launch.cwd, owner=self._place.owner
        )
        duties = [
            self._read(self._child),
            self._watch(),
            *([self._listen(self._status)] if self._status else []),
        ]
        self._tasks = [asyncio.create_task(duty) for duty in duties]

    async def until_over(self, timeout_seconds: float) -> Stopped | None:
        """None: it came to its end by itself."""
        assert self._child is not None
        waiting = asyncio.create_task(self._child.wait())
        try:
            done, _ = await asyncio.wait(
                {waiting, self._stop}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        if self._stop.done():
            return self._stop.result()
        return None if done else Stopped.TIME

    async def end(self) -> None:
        """Everything is gone when it returns, and every word of it was heard."""
        try:
            if self._child is not None:
                await self._kill(self._child)
                [reading, watching, *listening] = self._tasks
                watching.cancel()
                await asyncio.wait(self._tasks, timeout=END_SECONDS)
                for task in (reading, *listening):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            self._let_go()
            if self._child is not None:
                self._child.close()
            if self._status_pipe is not None:
                self._status_pipe.close()
            if self._handle is not None:
                os.close(self._handle)
        self.output.close()

    # -- while it runs ---------------------------------------------------------------------------------------------

    async def _read(self, child: Child) -> None:
        while chunk := await child.said.read(CHUNK):
            if (
                not self._stop.done()
            ):  # what it says while it is being ended is read, since it could not end otherwise, and dropped
                self.output.add(chunk)
            if self.output.size > self._limits.output_bytes:
                self._stop_by(Stopped.OUTPUT)

    async def _listen(self, status: asyncio.StreamReader) -> None:
        """Bubblewrap tells who its child is, and with which code the command ended, if it ever began."""
        try:
            while line := await status.readline():
                told = cast("dict[str, Any]", msgspec.json.decode(line))
                if "child-pid" in told:
                    self._is_top(told["child-pid"])
                self._told = told.get("exit-code", self._told)
        finally:
            self._born.set()

    async def _watch(self) -> None:
        pause, looks = LOOK_SECONDS, 0
        while not self._stop.done():
            await asyncio.sleep(pause)
            began = time.monotonic()
            looks += 1
            if reason := self._exceeded(self._look(), with_disk=looks % 10 == 0):
                self._stop_by(reason)
            pause = max(LOOK_SECONDS, LOOKING_SHARE * (time.monotonic() - began))

    def _look(self) -> list[Seen]:
        if not self._mark:
            return look_below(self._top) if self._top else []
        kept = look_below(self._child.pid) if self._child else []
        return list({one.pid: one for one in (*kept, *look_for(self._mark))}.values())

    def _exceeded(self, seen: list[Seen], *, with_disk: bool) -> Stopped | None:
        limits = self._limits
        if sum(one.threads for one in seen) >= limits.processes:
            return Stopped.PROCESSES
        if sum(one.cpu_seconds for one in seen) > limits.cpu_seconds:
            return Stopped.CPU
        if (
            sum(one.resident_bytes for one in seen) > limits.memory_bytes
            and proportional_bytes(seen) > limits.memory_bytes
        ):
            return Stopped.MEMORY
        if with_disk and _free_bytes(self._place) < limits.free_bytes:
            return Stopped.DISK
        return None

    def _stop_by(self, reason: Stopped) -> None:
        if not self._stop.done():
            self._stop.set_result(reason)

    def _is_top(self, pid: int) -> None:
        self._top = pid
        with contextlib.suppress(OSError, AttributeError):  # gone already, or a system without handles
            self._handle = os.pidfd_open(pid)
        self._born.set()

    # -- its end ---------------------------------------------------------------------------------------------------

    async def _kill(self, child: Child) -> None:
        if self._is_namespace:
            # The first process of a namespace takes all others with it; then bubblewrap itself goes, and is waited for.
            await at_most(BIRTH_SECONDS, self._born.wait())
            self._kill_top()
        else:
            self._let_go()
        if not await at_most(END_SECONDS, child.wait()):
            child.kill()
            await at_most(END_SECONDS, child.wait())
        if self._mark:
            self._kill_marked()
        if self._is_namespace and self._handle is not None:
            self._kill_top()
            await at_most(END_SECONDS, ended(self._handle))

    def _kill_top(self) -> None:
        with contextlib.suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _let_go(self) -> None:
        """The keeper ends what it keeps, and then itself."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _kill_marked(self) -> None:
        """What a keeper left that was killed itself: a command of the same user can do that."""
        for _ in range(MAX_ROUNDS):
            if not (left := marked(self._mark)):
                return
            for one in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one, signal.SIGKILL)


def _free_bytes(place: Workspace) -> int:
    found = os.statvfs(place.roots[0].folder)
    return found.f_bavail * found.f_frsize
