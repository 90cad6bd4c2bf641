"""A child process: its output and its end.

Owns the descriptors that it inherits: its own three and those that are passed on purpose, whatever else is
open in this process. It is not started by the event loop, because uvloop closes nothing in a child. Timeouts
are the job of `command`.
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Self

POLL_SECONDS = 0.02  # on a system without pidfds


class Child:
    """A process that leads a session of its own. Its output includes standard error; it has no input."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._pidfd: int | None = None
        with suppress(OSError, AttributeError):  # a system without pidfds
            self._pidfd = os.pidfd_open(process.pid)
        self._pipe: asyncio.ReadTransport | None = None
        self.output = asyncio.StreamReader()

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        descriptors: Sequence[int],
        env: Mapping[str, str],
        cwd: str,
        owner: int | None = None,
    ) -> Self:
        """Start a program. Raises OSError.

        The process is started in the calling thread: `--die-with-parent` ends a command together with its
        thread. `owner` is the uid that the program will run as, if it differs from ours. It gets the output
        pipe, because it could not open `/dev/stderr` otherwise.
        """
        read_end, write_end = os.pipe()
        output = os.fdopen(read_end, "rb", 0)
        try:
            if owner is not None:
                os.fchown(write_end, owner, owner)
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own arguments
                argv,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                close_fds=True,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException:
            output.close()
            raise
        finally:
            os.close(write_end)
        child = cls(process)
        try:
            child.output, child._pipe = await open_reader(output)
        except BaseException:
            child.kill()
            process.wait()
            child.close()
            output.close()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def return_code(self) -> int | None:
        """Known after `wait`. A negative number is the signal that ended the process."""
        return self._process.returncode

    async def wait(self) -> None:
        while self._process.poll() is None:
            if self._pidfd is None:
                await asyncio.sleep(POLL_SECONDS)
            else:
                await wait_for_exit(self._pidfd)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


async def open_reader(file: IO[Any]) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Read a pipe as a stream. The transport closes the pipe."""
    stream, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), file)
    return stream, pipe


async def wait_for_exit(pidfd: int) -> None:
    """Wait for the end of a process; if it is the first of a namespace, all others there have ended too."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
