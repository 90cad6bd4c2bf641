"""One command, from its start to the end of all its processes.

Owns the command's output, the watch over its resources, its timeout and its end. When a command finishes,
exceeds a limit or is cancelled, all its processes are killed before `Shell.run` returns. The launcher decides
how a command is started.
"""

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from easel.sandbox.bubblewrap import PATH, Bubblewrap, Launch
from easel.sandbox.concurrency import finish_despite_cancel, wait_up_to
from easel.sandbox.limits import CommandLimits, Stopped
from easel.sandbox.logical import Logical
from easel.sandbox.output import OnOutput, Output
from easel.sandbox.process import Child, open_reader, wait_for_exit
from easel.sandbox.usage import ProcessUsage, measure_tree, proportional_bytes
from easel.sandbox.workspace import Workspace

WATCH_SECONDS = 0.05  # between two checks of the limits
MIN_PAUSE_FACTOR = 20  # the pause after a check is at least 20 times its duration, to save CPU time
DISK_CHECK_EVERY = 10  # checks of the other limits
READ_BYTES = 64 * 1024
STATUS_SECONDS = 1.0  # maximum wait for bubblewrap to report its child before the child is killed
END_SECONDS = 5.0  # maximum wait for a killed process to end
KILLED = 128 + signal.SIGKILL


class NotStarted(Exception):
    """The sandbox could not be set up; the command did not run."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    output: str
    truncated: bool
    exit_code: int
    seconds: float
    stopped: Stopped | None = None  # the limit that the command exceeded


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs commands in the sandbox mode of this process."""

    launcher: Bubblewrap | Logical
    limits: CommandLimits

    async def run(
        self,
        command: str,
        workspace: Workspace,
        *,
        cwd: str,
        timeout_seconds: float,
        network: bool,
        on_output: OnOutput | None,
        env: Mapping[str, str],
    ) -> CommandResult:
        """Run a command and return its result. Raises `NotStarted`. A cancel ends the command first.

        The command has network access only if both the tool and the workspace allow it. RS-54 `env` are
        variables in addition to PATH; no process gets their values as arguments. RS-66
        """
        if _free_bytes(workspace) < self.limits.free_bytes:
            return CommandResult("", truncated=False, exit_code=KILLED, seconds=0.0, stopped=Stopped.DISK)
        started_at = time.monotonic()
        running = _RunningCommand(workspace, self.limits, Output(on_output))
        try:
            with self.launcher.launch(
                command, workspace, cwd, self.limits, network=network and workspace.network, env=env
            ) as launch:
                await finish_despite_cancel(running.start(launch))
            stopped = await running.wait(timeout_seconds)
        finally:
            await finish_despite_cancel(running.end())
        text, truncated = running.output.text()
        if stopped is None and running.exit_code is None:
            raise NotStarted(text.strip()[:500] or "it ended without an error message")
        code = KILLED if stopped or running.exit_code is None else running.exit_code
        return CommandResult(text, truncated, code, time.monotonic() - started_at, stopped)


class _RunningCommand:
    def __init__(self, workspace: Workspace, limits: CommandLimits, output: Output) -> None:
        self.output = output
        self._workspace = workspace
        self._limits = limits
        self._child: Child | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stop: asyncio.Future[Stopped] = asyncio.get_running_loop().create_future()
        self._has_namespace = False
        self._status: asyncio.StreamReader | None = None
        self._status_pipe: asyncio.ReadTransport | None = None
        self._child_reported = asyncio.Event()
        self._first_pid: int | None = None  # the first process of the namespace, ancestor of all others
        self._first_pidfd: int | None = None
        self._reported_code: int | None = None  # the exit code, as reported by bubblewrap
        self._lifeline: int | None = None  # closing this pipe makes the reaper kill all processes

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command, None if the command did not start."""
        code = self._child.return_code if self._child else None
        if self._reported_code is not None or code is None:
            return self._reported_code
        if code < 0:
            return 128 - code
        return None if self._has_namespace else code

    async def start(self, launch: Launch) -> None:
        self._has_namespace = launch.status is not None
        self._lifeline = launch.lifeline
        if launch.status is not None:
            self._status, self._status_pipe = await open_reader(os.fdopen(launch.status, "rb", 0))
        self._child = await Child.start(
            launch.argv,
            descriptors=launch.descriptors,
            env={"PATH": PATH, **launch.env},
            cwd=launch.cwd,
            owner=self._workspace.owner,
        )
        work = [self._read_output(self._child), self._watch()]
        if self._status is not None:
            work.append(self._read_status(self._status))
        self._tasks = [asyncio.create_task(coroutine) for coroutine in work]

    async def wait(self, timeout_seconds: float) -> Stopped | None:
        """Wait for the command. Returns the limit that it exceeded, None if it ended on its own."""
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
        """Kill the remaining processes of the command and read its remaining output."""
        try:
            if self._child is not None:
                await self._kill(self._child)
                [reading, watching, *status_reading] = self._tasks
                watching.cancel()
                await asyncio.wait(self._tasks, timeout=END_SECONDS)
                for task in (reading, *status_reading):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            self._close_lifeline()
            if self._child is not None:
                self._child.close()
            if self._status_pipe is not None:
                self._status_pipe.close()
            if self._first_pidfd is not None:
                os.close(self._first_pidfd)
        self.output.close()

    # -- while the command runs ------------------------------------------------------------------------------

    async def _read_output(self, child: Child) -> None:
        while chunk := await child.output.read(READ_BYTES):
            # After a stop, output is read and dropped: a process blocked by a full pipe could not end.
            if not self._stop.done():
                self.output.add(chunk)
            if self.output.size > self._limits.output_bytes:
                self._stop_because(Stopped.OUTPUT)

    async def _read_status(self, status: asyncio.StreamReader) -> None:
        """Read bubblewrap's reports: the pid of its child, and the exit code if the command was started."""
        try:
            while line := await status.readline():
                report = cast("dict[str, Any]", msgspec.json.decode(line))
                if "child-pid" in report:
                    self._first_pid = report["child-pid"]
                    with suppress(OSError, AttributeError):  # it has ended, or there are no pidfds
                        self._first_pidfd = os.pidfd_open(report["child-pid"])
                    self._child_reported.set()
                self._reported_code = report.get("exit-code", self._reported_code)
        finally:
            self._child_reported.set()

    async def _watch(self) -> None:
        pause, rounds = WATCH_SECONDS, 0
        while not self._stop.done():
            await asyncio.sleep(pause)
            started_at = time.monotonic()
            rounds += 1
            if reason := self._exceeded_limit(self._measure(), with_disk=rounds % DISK_CHECK_EVERY == 0):
                self._stop_because(reason)
            pause = max(WATCH_SECONDS, MIN_PAUSE_FACTOR * (time.monotonic() - started_at))

    def _measure(self) -> list[ProcessUsage]:
        # Without a namespace the child is the reaper; orphaned processes become its children.
        top = self._first_pid if self._has_namespace else self._child and self._child.process.pid
        return measure_tree(top) if top else []

    def _exceeded_limit(self, processes: list[ProcessUsage], *, with_disk: bool) -> Stopped | None:
        limits = self._limits
        if sum(process.threads for process in processes) >= limits.processes:
            return Stopped.PROCESSES
        if sum(process.cpu_seconds for process in processes) > limits.cpu_seconds:
            return Stopped.CPU
        if (
            sum(process.resident_bytes for process in processes) > limits.memory_bytes
            and proportional_bytes(processes) > limits.memory_bytes
        ):
            return Stopped.MEMORY
        if with_disk and _free_bytes(self._workspace) < limits.free_bytes:
            return Stopped.DISK
        return None

    def _stop_because(self, reason: Stopped) -> None:
        if not self._stop.done():
            self._stop.set_result(reason)

    # -- the end of the command ------------------------------------------------------------------------------

    async def _kill(self, child: Child) -> None:
        if self._has_namespace:
            # The kernel kills all processes of a namespace with its first one; then bubblewrap ends too.
            await wait_up_to(STATUS_SECONDS, self._child_reported.wait())
            self._kill_first_process()
        else:
            self._close_lifeline()
        if not await wait_up_to(END_SECONDS, child.wait()):
            child.kill()
            await wait_up_to(END_SECONDS, child.wait())
        if self._has_namespace and self._first_pidfd is not None:
            self._kill_first_process()
            await wait_up_to(END_SECONDS, wait_for_exit(self._first_pidfd))

    def _kill_first_process(self) -> None:
        with suppress(OSError):
            if self._first_pidfd is not None:
                signal.pidfd_send_signal(self._first_pidfd, signal.SIGKILL)

    def _close_lifeline(self) -> None:
        """Close the lifeline, so that the reaper kills the command's processes and ends."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


def _free_bytes(workspace: Workspace) -> int:
    usage = os.statvfs(workspace.roots[0].folder)
    return usage.f_bavail * usage.f_frsize
