"""A program that we start: what it says, and how it ends.

Owns which descriptors it has: its own three and those that are meant for it, whoever started Easel with what else open. So it is not
the loop that starts it, since uvloop's closes nothing in a child. Waiting for what must end, and when, is `shell`'s business.
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Self

LOOK_AGAIN_SECONDS = 0.02  # on a system without handles of processes


class Child:
    """Leads a session and a group of its own. Standard error goes where its output goes, and there is no input."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._handle: int | None = None
        with suppress(OSError, AttributeError):  # a system without handles
            self._handle = os.pidfd_open(process.pid)
        self._pipe: asyncio.ReadTransport | None = None
        self.said = asyncio.StreamReader()

    @classmethod
    async def started(
        cls,
        argv: Sequence[str],
        *,
        descriptors: Sequence[int],
        env: Mapping[str, str],
        cwd: str,
        owner: int | None = None,
    ) -> Self:
        """Raises OSError. In the thread of whoever awaits, and in no other: `--die-with-parent` ends a command with its thread.

        `owner` is who the program will be, where that is not us: a pipe of ours it could write to, but not open as `/dev/stderr`.
        """
        ours, its = os.pipe()
        output = os.fdopen(ours, "rb", 0)
        try:
            if owner is not None:
                os.fchown(its, owner, owner)
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - our own arguments; it takes as long as the loop's own way
                argv,
                stdin=subprocess.DEVNULL,
                stdout=its,
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
            os.close(its)
        child = cls(process)
        try:
            child.said, child._pipe = await reader(output)
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
    def returned(self) -> int | None:
        """Known once it was waited for. Below zero: the signal that ended it."""
        return self._process.returncode

    async def wait(self) -> None:
        while self._process.poll() is None:
            if self._handle is None:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            else:
                await ended(self._handle)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


async def reader(file: IO[Any]) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """A pipe's end to be read, which the transport closes."""
    stream, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), file)
    return stream, pipe


async def ended(handle: int) -> None:
    """A handle can be read once its process has ended, and with the first of a namespace all others have."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(handle)
