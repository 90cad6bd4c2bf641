"""Puts the parts together: the only module that knows everyone.

A process is a database, and on it an API, a worker, or both. What is opened here is closed here, in the other order.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from easel.edges.http.app import EdgeSettings, HttpEdge
from easel.edges.http.routes import OPS, ROUTES
from easel.edges.http.server import HttpServer, listen_on
from easel.errors import BadSettings, Unavailable
from easel.host.host import Host
from easel.host.native_tools import native_tools
from easel.host.ports import Bell, Blobs, RunStore, Tool
from easel.host.readiness import Readiness
from easel.host.run_queue import RunQueue
from easel.host.run_tail import RunTails
from easel.host.run_worker import RunWorker
from easel.host.sign_in import SignIn
from easel.host.tool_loop import ToolLoop
from easel.host.toolbox import Toolbox
from easel.ids import new_worker_id
from easel.llm.scripted import ScriptedModel
from easel.settings import Settings

PATIENCE_SECONDS = 30.0  # how long a starting process waits for its database
TELL_SECONDS = 5.0

log = structlog.get_logger("easel")


class Database(Protocol):
    @property
    def runs(self) -> RunStore: ...

    @property
    def bell(self) -> Bell: ...

    async def migrate(self) -> list[str]: ...

    async def schema_version(self) -> int: ...

    async def close(self) -> None: ...


async def open_database(settings: Settings) -> Database:
    """The store the settings name. Each driver is imported only where it is used."""
    if settings.on_postgres:
        from easel.stores.postgres import open_postgres

        return await open_postgres(settings.database_url, pool=settings.database_pool, timeout=settings.database_timeout_seconds)
    from easel.stores.sqlite import open_sqlite

    _make_folder(settings.data_folder)
    return await open_sqlite(settings.data_folder / "easel.db", synchronous=settings.sqlite_synchronous)


@contextlib.asynccontextmanager
async def database(settings: Settings) -> AsyncGenerator[Database]:
    """Open and up to date. A database that is not there yet is waited for: it may be starting too."""
    now = asyncio.get_running_loop().time
    deadline, tell_at = now() + PATIENCE_SECONDS, now()
    where = urlsplit(settings.database_url)
    while True:
        try:
            opened = await open_database(settings)
            break
        except Unavailable as problem:
            if now() > deadline:
                raise BadSettings(
                    problem=f"No database answers at {where.hostname}:{where.port or 5432} ({problem.__cause__}); "
                    "start it, or correct EASEL_DATABASE_URL."
                ) from problem
            if now() >= tell_at:
                tell_at = now() + TELL_SECONDS
                log.warning("database.waiting", host=where.hostname, port=where.port, seconds_left=round(deadline - now()))
            await asyncio.sleep(0.5)
    try:
        for name in await opened.migrate():
            log.info("database.migrated", migration=name)
        yield opened
    finally:
        await opened.close()


def open_blobs(settings: Settings) -> Blobs:
    from easel.stores import blobs

    return blobs.open_blobs(settings.blob_url or str(settings.data_folder / "blobs"))


def owner_token(settings: Settings) -> str:
    """The owner's token: fixed by the setting, else kept in the data folder and made at first start."""
    if settings.token:
        return settings.token
    kept = settings.data_folder / "owner-token"
    try:
        token = kept.read_text("utf-8").strip()
    except FileNotFoundError:
        token = _new_token(kept)
    if not token:
        raise BadSettings(problem=f"{kept} is empty; delete it, and a new token is made at the next start.")
    return token


def _new_token(kept: Path) -> str:
    _make_folder(kept.parent)
    token = secrets.token_urlsafe(32)
    draft = kept.with_name(f".{kept.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(draft, kept)  # of two processes that start together, one wins and both use its token
    draft.unlink()
    return kept.read_text("utf-8").strip()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise BadSettings(problem=f"The data folder {folder} cannot be used ({problem.strerror}); choose another with --data.") from None


def toolbox(settings: Settings, more: Sequence[Tool] = ()) -> Toolbox:
    return Toolbox([*native_tools(), *more], timeout_seconds=settings.tool_timeout_seconds, max_result_bytes=settings.max_result_bytes)


def worker(settings: Settings, opened: Database, tools: Toolbox) -> RunWorker:
    return RunWorker(
        new_worker_id(),
        opened.runs,
        opened.bell,
        ToolLoop(ScriptedModel(), tools, max_steps=settings.max_steps),
        slots=settings.worker_runs,
        claim_seconds=settings.claim_seconds,
        poll_seconds=settings.poll_seconds,
        drain_seconds=settings.drain_seconds,
        run_timeout_seconds=settings.run_timeout_seconds,
        retention_seconds=settings.retention_days * 86_400,
    )


def host(settings: Settings, opened: Database, tools: Toolbox) -> Host:
    return Host(
        sign_in=SignIn(owner_token(settings)),
        queue=RunQueue(opened.runs, opened.bell, max_attempts=settings.max_attempts, max_message_bytes=settings.max_message_bytes),
        tails=RunTails(
            opened.runs,
            opened.bell,
            poll_seconds=settings.poll_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
            stall_seconds=settings.stall_seconds,
            max_streams=settings.max_streams,
            window=settings.tail_window,
        ),
        readiness=Readiness(opened.runs),
        tools=tools.definitions,
    )


def edge(settings: Settings, stories: Host, *, is_api: bool) -> HttpEdge:
    names = frozenset(name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip())
    return HttpEdge(
        stories, EdgeSettings(settings.max_body_bytes, settings.public_url, names, settings.open_metrics), ROUTES if is_api else OPS
    )


def listening(host: str, port: int) -> socket.socket:
    """Taken before anything else is opened, so that a port in use is told at once."""
    return listen_on(host, port)


@contextlib.asynccontextmanager
async def serving(settings: Settings, stories: Host, on: socket.socket, *, is_api: bool = True) -> AsyncGenerator[HttpServer]:
    """The API on its socket, or a worker's health alone; at the end streams close first, so that their viewers go elsewhere at once."""
    server = HttpServer(edge(settings, stories, is_api=is_api), on)
    await server.start()
    try:
        yield server
    finally:
        stories.readiness.is_stopping = True
        await stories.tails.close()
        await server.stop()
