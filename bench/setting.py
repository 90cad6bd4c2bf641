"""The environment of a measurement: a folder, a Postgres of our own, and the sizes.

Owns the database server and the creation of fresh databases. The server has the defaults of Postgres (fsync
on) but for a cache that fits the largest log.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import asyncpg

from bench.processes import ROOT
from tests.support.postgres import Postgres
from tests.support.postgres_binaries import find_binaries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

SERVER_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB", "jit": "off"}
MAX_CONNECTIONS = 200

Size = TypeVar("Size", int, float)


@dataclass(frozen=True, slots=True)
class Setting:
    """The arguments of every measurement."""

    folder: Path
    server: Postgres
    quick: bool

    def size(self, full: Size, quick: Size) -> Size:
        return quick if self.quick else full

    def say(self, line: str) -> None:
        """Print progress to stderr; stdout has the table alone."""
        print(f"  {line}", file=sys.stderr, flush=True)

    @asynccontextmanager
    async def database(self, schema: str | None = None) -> AsyncIterator[str]:
        """Yield a fresh database, empty or with a floor's schema."""
        url = await asyncio.to_thread(self.server.create_database)
        try:
            if schema is not None:
                async with connected(url) as connection:
                    await connection.execute((ROOT / "bench" / "floors" / schema).read_text())
            yield url
        finally:
            await asyncio.to_thread(self.server.drop_database, url)


@contextmanager
def prepared(*, quick: bool) -> Iterator[Setting]:
    """Yield a folder and a running server; remove both afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="easel-bench-"))
    try:
        with Postgres(max_connections=MAX_CONNECTIONS, settings=SERVER_SETTINGS) as server:
            yield Setting(folder, server, quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url, timeout=30)
    try:
        yield connection
    finally:
        await connection.close(timeout=10)


def find_pgbench() -> str | None:
    """Find pgbench beside the server's binaries or on the path."""
    beside = find_binaries() / "pgbench"
    return str(beside) if beside.is_file() else shutil.which("pgbench")
