"""A child process: its start, its output and its end.

Owns which descriptors the child inherits: the three standard ones and those given to `start`. All others are
closed. The event loop does not start the child, because uvloop leaves other descriptors open. `command` owns
timeouts.
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Self

from easel import fs

POLL_SECONDS = 0.02  # on a system without pidfds


@dataclass(frozen=True, slots=True)
class Child:
    """A child in its own process session. `output` includes standard error; standard input is empty."""

    process: "subprocess.Popen[bytes]"
    output: asyncio.StreamReader
    pipe: asyncio.ReadTransport

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

        The program is started in the calling thread, because bubblewrap's `--die-with-parent` kills a command
        when the thread that started it ends. `owner` is the uid that the program will switch to, if any. That
        user becomes the owner of the output pipe, so that the command can open `/dev/stderr`.
        """
        read_end, write_end = os.pipe()
        try:
            output, pipe = await open_reader(os.fdopen(read_end, "rb", 0))
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
                pipe.close()
                raise
        finally:
            os.close(write_end)
        return cls(process, output, pipe)

    @property
    def return_code(self) -> int | None:
        """The exit code, set by `wait`; a negative number is the signal that ended the process."""
        return self.process.returncode

    async def wait(self) -> None:
        while self.process.poll() is None:
            try:
                pidfd = os.pidfd_open(self.process.pid)
            except (OSError, AttributeError):  # a system without pidfds
                await asyncio.sleep(POLL_SECONDS)
            else:
                with fs.closing(pidfd):
                    await wait_for_exit(pidfd)

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self.pipe.close()


async def open_reader(file: IO[Any]) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Return a stream that reads a pipe, and its transport; closing the transport closes the pipe."""
    stream, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), file)
    return stream, pipe


async def wait_for_exit(pidfd: int) -> None:
    """Wait for the end of a process. The first process of a namespace ends after all others in it."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
