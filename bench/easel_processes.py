"""Easel as its users run it: `easel api`, `easel worker` and `easel up` with default settings unless a
measurement states why not.

Uses the commands, settings and printed link of the outside contract only.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.processes import ROOT, START_SECONDS, Child, child
from bench.waiting import wait_for
from bench.wire import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.setting import Setting

TOKEN = "bench-owner-token"


@dataclass(frozen=True, slots=True)
class Listening:
    """A running server: its address and its process."""

    server: Server
    process: Child


@asynccontextmanager
async def api(setting: Setting, database_url: str, **settings: str) -> AsyncIterator[Listening]:
    async with _easel(setting, "api", "--port", "0", DATABASE_URL=database_url, **settings) as process:
        yield Listening(await _address(process), process)


@asynccontextmanager
async def up(setting: Setting, *, module: str = "easel", **settings: str) -> AsyncIterator[Listening]:
    """Start API and worker in one process on SQLite, as `make run` does."""
    async with _easel(setting, "up", "--port", "0", module=module, **settings) as process:
        yield Listening(await _address(process), process)


@asynccontextmanager
async def worker(setting: Setting, database_url: str, **settings: str) -> AsyncIterator[Child]:
    """Start a worker and wait until its own port reports that it is ready."""
    port = _free_port()
    async with _easel(
        setting, "worker", DATABASE_URL=database_url, WORKER_PORT=str(port), **settings
    ) as process:
        await ready(Server(f"http://127.0.0.1:{port}", TOKEN), process)
        yield process


@asynccontextmanager
async def unready_worker(setting: Setting, database_url: str, **settings: str) -> AsyncIterator[Child]:
    """Start a worker without waiting, for times measured by the database's clock."""
    async with _easel(setting, "worker", DATABASE_URL=database_url, **settings) as process:
        yield process


async def ready(server: Server, process: Child) -> None:
    async def is_ready() -> bool:
        process.expect_alive()
        try:
            async with server.connection() as connection:
                await connection.ask("GET", "/readyz")
        except (OSError, RuntimeError, EOFError):
            return False
        return True

    await wait_for(is_ready, within=START_SECONDS, every=0.02, what=f"{server.url} is ready")


@asynccontextmanager
async def _easel(
    setting: Setting, command: str, *arguments: str, module: str = "easel", **settings: str
) -> AsyncIterator[Child]:
    data = setting.folder / f"data-{os.urandom(3).hex()}"
    given = {"TOKEN": TOKEN, "DATA": str(data), **settings}
    env = {name: value for name, value in os.environ.items() if not name.startswith("EASEL_")}
    # The bench may run from a checkout that is not installed.
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), env.get("PYTHONPATH")]))
    env |= {f"EASEL_{name}": value for name, value in given.items()}
    async with child(
        [sys.executable, "-m", module, command, *arguments], name=command, folder=setting.folder, env=env
    ) as process:
        yield process


async def _address(process: Child) -> Server:
    return Server((await process.line(r"Open (http://[\w.\-\[\]:]+:\d+)/"))[1], TOKEN)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
