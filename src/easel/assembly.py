"""Puts the parts together: the only module that knows everyone.

A process is a database, and on it an API, a worker, or both. What is opened here is closed here, in the other order.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from easel.core.audit.chain import known_place
from easel.core.run.boards import Limits
from easel.edges.gateway import gateway as gateways
from easel.edges.gateway.gateway import Gateway, GatewayLimits
from easel.edges.http.app import EdgeSettings, HttpEdge
from easel.edges.http.routes import OPS, ROUTES, SOCKETS
from easel.edges.http.server import HttpServer, listen_on
from easel.edges.http.sockets import SocketRow
from easel.errors import BadSettings, Unavailable
from easel.host.artifacts import Artifacts
from easel.host.audit import Audit, Reached, verify
from easel.host.board_tools import board_tools
from easel.host.boards import Boards
from easel.host.canvas_assets import AssetLimits, CanvasAssets
from easel.host.canvas_changes import CanvasChanges
from easel.host.canvas_library import CanvasLibrary
from easel.host.canvas_views import CanvasViews
from easel.host.host import Host
from easel.host.native_tools import native_tools
from easel.host.ports import ArtifactStore, AuditStore, Bell, Blobs, BoardStore, CanvasStore, LogSource, RunStore, SessionStore, Tool
from easel.host.readiness import Readiness
from easel.host.run_queue import RunQueue
from easel.host.run_worker import RunWorker
from easel.host.sessions import Sessions
from easel.host.sign_in import SignIn
from easel.host.tails import CANVASES, RUNS, THREADS, Kind, Room, Tails
from easel.host.tool_loop import ToolLoop
from easel.host.toolbox import Toolbox
from easel.ids import new_worker_id
from easel.llm.scripted import ScriptedModel
from easel.settings import Settings

PATIENCE_SECONDS = 30.0  # how long a starting process waits for its database
TELL_SECONDS = 5.0
AUDIT_VERSION = 2  # of the schema, which has the audit chain since

log = structlog.get_logger("easel")


class Database(Protocol):
    @property
    def runs(self) -> RunStore: ...

    @property
    def sessions(self) -> SessionStore: ...

    @property
    def canvases(self) -> CanvasStore: ...

    @property
    def audit(self) -> AuditStore: ...

    @property
    def artifacts(self) -> ArtifactStore: ...

    @property
    def boards(self) -> BoardStore: ...

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


class AuditTrail(Protocol):
    """The audit chain alone, to be read."""

    @property
    def audit(self) -> AuditStore: ...

    async def schema_version(self) -> int: ...

    async def close(self) -> None: ...


async def open_audit(settings: Settings) -> AuditTrail:
    """Only to be read, so that the chain can be verified beside running processes, on SQLite too."""
    if settings.on_postgres:
        return await open_database(settings)
    from easel.stores.sqlite.audit import AuditReader

    return AuditReader(settings.data_folder / "easel.db")


async def verified(settings: Settings, known: Sequence[str]) -> AsyncGenerator[Reached]:
    """The audit chain, followed to its end or to the first break."""
    places = [known_place(text) for text in known]
    opened = await open_audit(settings)
    try:
        if await opened.schema_version() < AUDIT_VERSION:
            raise BadSettings(problem="This database has no audit trail yet: it is older. `easel migrate` brings it up to date.")
        async for reached in verify(opened.audit, places):
            yield reached
    finally:
        await opened.close()


@dataclass(frozen=True, slots=True)
class Ground:
    """What all parts of one process stand on."""

    settings: Settings
    database: Database
    artifacts: Artifacts
    blobs: Blobs
    audit: Audit


@contextlib.asynccontextmanager
async def ground(settings: Settings) -> AsyncGenerator[Ground]:
    """Open, up to date, and closed again; the last notes of the audit trail are stored before the database is closed."""
    async with database(settings) as opened:
        password = urlsplit(settings.database_url).password
        audit = Audit(opened.audit, secrets=filter(None, (settings.token, password)), slow_seconds=settings.slow_seconds)
        grace = settings.artifact_days * 86_400
        blobs = open_blobs(settings)
        kept = Artifacts(opened.artifacts, blobs, max_bytes=settings.max_artifact_bytes, grace_seconds=grace)
        try:
            yield Ground(settings, opened, kept, blobs, audit)
        finally:
            await audit.close()


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


def boards(on: Ground) -> Boards:
    limits = Limits(on.settings.max_board_bytes, on.settings.max_board_keys, on.settings.max_board_total_bytes)
    return Boards(on.database.boards, on.artifacts, on.database.bell, limits)


def canvas_assets(on: Ground) -> CanvasAssets:
    limits = AssetLimits(on.settings.max_asset_bytes, on.settings.max_canvas_assets)
    return CanvasAssets(on.database.canvases, canvas_changes(on), on.blobs, limits)


def canvas_changes(on: Ground) -> CanvasChanges:
    return CanvasChanges(on.database.canvases, on.blobs, on.database.bell)


def toolbox(on: Ground, more: Sequence[Tool] = ()) -> Toolbox:
    return Toolbox(
        [*native_tools(), *board_tools(boards(on)), *more],
        audit=on.audit,
        timeout_seconds=on.settings.tool_timeout_seconds,
        max_result_bytes=on.settings.max_result_bytes,
    )


def worker(on: Ground, tools: Toolbox) -> RunWorker:
    settings = on.settings
    return RunWorker(
        new_worker_id(),
        on.database.runs,
        on.artifacts,
        on.database.bell,
        ToolLoop(ScriptedModel(), tools, max_steps=settings.max_steps),
        slots=settings.worker_runs,
        claim_seconds=settings.claim_seconds,
        poll_seconds=settings.poll_seconds,
        drain_seconds=settings.drain_seconds,
        run_timeout_seconds=settings.run_timeout_seconds,
        retention_seconds=settings.retention_days * 86_400,
        audit=on.audit,
        also=[on.artifacts.sweep_forever, canvas_assets(on).sweep_forever],
    )


def host(on: Ground, tools: Toolbox) -> Host:
    settings, opened, bell = on.settings, on.database, on.database.bell
    token = owner_token(settings)
    on.audit.hide(token)
    limits = {"max_attempts": settings.max_attempts, "max_message_bytes": settings.max_message_bytes}
    queue = RunQueue(opened.runs, on.artifacts, bell, on.audit, **limits)
    room = Room(settings.max_streams)
    changes, assets = canvas_changes(on), canvas_assets(on)

    def tails(kind: Kind, source: LogSource) -> Tails:
        return Tails(
            kind,
            source,
            bell,
            poll_seconds=settings.poll_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
            stall_seconds=settings.stall_seconds,
            room=room,
            window=settings.tail_window,
        )

    return Host(
        sign_in=SignIn(token),
        audit=on.audit,
        artifacts=on.artifacts,
        boards=boards(on),
        queue=queue,
        sessions=Sessions(opened.sessions, queue, bell, on.audit),
        canvases=CanvasLibrary(
            opened.canvases, changes, assets, on.artifacts, bell=bell, audit=on.audit, max_state_bytes=settings.max_state_bytes
        ),
        assets=assets,
        views=CanvasViews(opened.canvases, changes, view_seconds=settings.view_seconds),
        tails=tails(RUNS, opened.runs),
        threads=tails(THREADS, opened.sessions),
        canvas_tails=tails(CANVASES, opened.canvases),
        readiness=Readiness(opened.runs),
        tools=tools,
    )


def gateway(settings: Settings, stories: Host) -> Gateway:
    limits = GatewayLimits(
        connections=settings.max_streams,
        requests=settings.gateway_requests,
        subscriptions=settings.gateway_subscriptions,
        connect_seconds=settings.gateway_connect_seconds,
        stall_seconds=settings.stall_seconds,
    )
    return Gateway(stories, limits)


def edge(settings: Settings, stories: Host, connections: Gateway | None) -> HttpEdge:
    """The HTTP edge, and behind one of its addresses the gateway, where there is one; without it, a worker's health alone."""
    names = frozenset(name.strip().lower() for name in settings.allowed_hosts.split(",") if name.strip())
    return HttpEdge(
        stories,
        EdgeSettings(settings.max_body_bytes, settings.public_url, names, settings.open_metrics),
        ROUTES if connections else OPS,
        (*SOCKETS, gateway_row(connections)) if connections else (),
    )


def gateway_row(connections: Gateway) -> SocketRow:
    """Edges are strangers to each other: here is where the gateway gets its address among the HTTP edge's sockets."""
    return SocketRow(gateways.PATH, lambda call: connections.serve(call.socket, call.who), gateways.SAYS, is_open=True)


def listening(host: str, port: int) -> socket.socket:
    """Taken before anything else is opened, so that a port in use is told at once."""
    return listen_on(host, port)


@contextlib.asynccontextmanager
async def serving(settings: Settings, stories: Host, on: socket.socket, *, is_api: bool = True) -> AsyncGenerator[HttpServer]:
    """The API on its socket, or a worker's health alone; at the end streams close first, so that their viewers go elsewhere at once."""
    connections = gateway(settings, stories) if is_api else None
    app = edge(settings, stories, connections)
    server = HttpServer(app, on, max_frame_bytes=settings.max_body_bytes, ping_seconds=settings.heartbeat_seconds)
    await server.start()
    if connections is not None:
        stories.views.start()
    try:
        yield server
    finally:
        stories.readiness.is_stopping = True
        if connections is not None:
            await connections.close()
            await stories.views.stop()
        for tails in (stories.tails, stories.threads, stories.canvas_tails):
            await tails.close()
        await server.stop()
