"""What all parts of one process stand on: the database, the blobs, the artifacts and the audit trail, opened and closed in order.

Known to `assembly`, which puts the parts on it, and to commands that need no more than this.
"""

import asyncio
import contextlib
import os
import re
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from easel.core.audit.chain import known_place
from easel.core.tool.offer import OfferLimits
from easel.errors import BadSettings, Unavailable
from easel.host.actions.live_output import LiveOutputs
from easel.host.artifacts import Artifacts
from easel.host.audit import Audit, Reached, verify
from easel.host.auth.tokens import Tokens
from easel.host.canvases.transactions import CanvasTransactions
from easel.host.nodes.registry import NodeLimits, NodeRegistry
from easel.host.ports import (
    ArtifactStore,
    AuditStore,
    Blobs,
    BoardStore,
    CanvasActionStore,
    CanvasStore,
    NodeStore,
    Notifier,
    RunStore,
    SessionStore,
    SignInStore,
    TokenStore,
)
from easel.settings import Settings

__all__ = [
    "Database",
    "DatabaseInfo",
    "Reached",
    "Resources",
    "blob_folder",
    "database_place",
    "inspect_database",
    "open_blobs",
    "open_database",
    "open_resources",
    "open_token_admin",
    "owner_token",
    "verified",
]

DATABASE_WAIT_SECONDS = 30.0  # how long a starting process waits for its database
TELL_SECONDS = 5.0
POSTGRES_PORT = 5432
AUDIT_VERSION = 2  # of the schema, which has the audit chain since
TOKENS_VERSION = 5  # and tokens since

log = structlog.get_logger("easel")


class Database(Protocol):
    @property
    def runs(self) -> RunStore: ...

    @property
    def sessions(self) -> SessionStore: ...

    @property
    def canvases(self) -> CanvasStore: ...

    @property
    def canvas_actions(self) -> CanvasActionStore: ...

    @property
    def audit(self) -> AuditStore: ...

    @property
    def artifacts(self) -> ArtifactStore: ...

    @property
    def boards(self) -> BoardStore: ...

    @property
    def nodes(self) -> NodeStore: ...

    @property
    def tokens(self) -> TokenStore: ...

    @property
    def sign_ins(self) -> SignInStore: ...

    @property
    def notifier(self) -> Notifier: ...

    async def migrate(self) -> list[str]: ...

    async def schema_version(self) -> int: ...

    async def close(self) -> None: ...


async def open_database(settings: Settings, wait_seconds: float = 0.0) -> Database:
    """The store the settings name. One that does not answer is waited for so long: it may be starting too."""
    now = asyncio.get_running_loop().time
    deadline, tell_at = now() + wait_seconds, now()
    place = database_place(settings)
    while True:
        try:
            return await _open(settings)
        except Unavailable as problem:
            if now() >= deadline:
                raise _away(settings, problem) from problem
            if now() >= tell_at:
                tell_at = now() + TELL_SECONDS
                log.warning("database.waiting", at=place, seconds_left=round(deadline - now()))
            await asyncio.sleep(0.5)


async def _open(settings: Settings) -> Database:
    """Each driver is imported only where it is used."""
    if settings.on_postgres:
        from easel.stores.postgres import open_postgres

        return await open_postgres(
            settings.database_url, pool=settings.database_pool, timeout=settings.database_timeout_seconds
        )
    from easel.stores.sqlite import open_sqlite

    _make_folder(settings.data_folder)
    return await open_sqlite(settings.data_folder / "easel.db", synchronous=settings.sqlite_synchronous)


def database_place(settings: Settings) -> str:
    """Where the database is, for people: without who comes and with what password."""
    if not settings.on_postgres:
        return str(settings.data_folder / "easel.db")
    places, _, path = re.sub("[?#]", "/", settings.database_url.partition("://")[2]).partition("/")
    places = places.rpartition("@")[2]
    if not places or "@" in path:  # a socket, or a password that was not escaped and is told by halves
        return "the place that EASEL_DATABASE_URL names"
    return ", ".join(
        one if re.search(r":\d+$", one) else f"{one}:{POSTGRES_PORT}" for one in places.split(",")
    )


def _away(settings: Settings, problem: Unavailable) -> BadSettings:
    advice = (
        "start it, or correct EASEL_DATABASE_URL"
        if settings.on_postgres
        else "make it usable, or set EASEL_DATA to another folder"
    )
    return BadSettings(
        problem=f"No database answers at {database_place(settings)} ({_reason(problem.__cause__)}); {advice}."
    )


def _reason(problem: BaseException | None) -> str:
    match problem:
        case ConnectionRefusedError():
            return "connection refused: nothing listens there"
        case socket.gaierror():
            return "there is no host of that name"
        case TimeoutError():
            return "no answer in time"
        case _:
            return str(problem).strip() or type(problem).__name__


@contextlib.asynccontextmanager
async def database(
    settings: Settings, wait_seconds: float = DATABASE_WAIT_SECONDS
) -> AsyncGenerator[Database]:
    """Open and up to date."""
    opened = await open_database(settings, wait_seconds)
    try:
        for name in await opened.migrate():
            log.info("database.migrated", migration=name)
        yield opened
    finally:
        await opened.close()


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """A database as it is found, by somebody who changes nothing."""

    version: int  # of its schema; 0: it has none
    newest: int  # that this code has
    is_read_only: bool = False
    holder: str | None = None  # the process that has it to itself


async def inspect_database(settings: Settings) -> DatabaseInfo | None:
    """None: there is none yet, and the first start would make it."""
    from easel.stores import migrations

    if settings.on_postgres:
        from easel.stores.postgres.inspect import look

        newest = migrations.available("postgres")[-1].version
        try:
            version, is_read_only = await look(
                settings.database_url, timeout=settings.database_timeout_seconds
            )
        except Unavailable as problem:
            raise _away(settings, problem) from problem
        return DatabaseInfo(version, newest, is_read_only)
    from easel.stores.sqlite.inspect import look as look_at_file

    found = await asyncio.to_thread(look_at_file, settings.data_folder / "easel.db")
    return (
        None
        if found is None
        else DatabaseInfo(found.version, migrations.available("sqlite")[-1].version, holder=found.holder)
    )


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
            raise BadSettings(
                problem="This database has no audit trail yet: it is older. `easel migrate` brings it up to date."
            )
        async for reached in verify(opened.audit, places):
            yield reached
    finally:
        await opened.close()


class TokenAdminStore(Protocol):
    """Where tokens are made and revoked."""

    @property
    def tokens(self) -> TokenStore: ...

    @property
    def audit(self) -> AuditStore: ...

    async def schema_version(self) -> int: ...

    async def close(self) -> None: ...


@contextlib.asynccontextmanager
async def open_token_admin(settings: Settings) -> AsyncGenerator[Tokens]:
    """Beside a running Easel too, on SQLite as well."""
    async with contextlib.AsyncExitStack() as stack:
        opened: TokenAdminStore | None = None
        path = settings.data_folder / "easel.db"
        if not settings.on_postgres and path.exists():
            from easel.stores.sqlite.shared_access import SharedSqlite

            beside = SharedSqlite(path)
            stack.push_async_callback(beside.close)
            if await beside.schema_version() >= TOKENS_VERSION:
                opened = beside
        if opened is None:
            opened = await stack.enter_async_context(
                database(settings, wait_seconds=0)
            )  # somebody stands there and waits
        audit = Audit(opened.audit)
        stack.push_async_callback(audit.close)
        yield Tokens(opened.tokens, audit)


@dataclass(frozen=True, slots=True)
class Resources:
    """What all parts of one process stand on."""

    settings: Settings
    database: Database
    artifacts: Artifacts
    blobs: Blobs
    audit: Audit
    outputs: LiveOutputs  # what tools say while actions run
    nodes: NodeRegistry  # one registry for all parts: a call to a node that is connected here does not leave the process


@contextlib.asynccontextmanager
async def open_resources(settings: Settings) -> AsyncGenerator[Resources]:
    """Open, up to date, and closed again; the last notes of the audit trail are stored before the database is closed."""
    async with database(settings) as opened:
        password = urlsplit(settings.database_url).password
        audit = Audit(
            opened.audit, secrets=filter(None, (settings.token, password)), slow_seconds=settings.slow_seconds
        )
        grace = settings.artifact_days * 86_400
        blobs = open_blobs(settings)
        kept = Artifacts(opened.artifacts, blobs, max_bytes=settings.max_artifact_bytes, grace_seconds=grace)
        changes = CanvasTransactions(opened.canvases, blobs, opened.notifier)
        outputs = LiveOutputs(changes, audit, settings.max_live_output_bytes, settings.claim_seconds)
        nodes = NodeRegistry(
            opened.nodes, kept, opened.notifier, audit, node_limits(settings), outputs=outputs
        )
        try:
            yield Resources(settings, opened, kept, blobs, audit, outputs, nodes)
        finally:
            await nodes.close()
            await audit.close()


def node_limits(settings: Settings) -> NodeLimits:
    return NodeLimits(
        seconds=settings.node_ttl_seconds,
        heard_seconds=settings.claim_seconds
        * 2
        / 3,  # so that it is stopped before what it belongs to is taken for lost, and begun anew
        poll_seconds=settings.poll_seconds,
        call_seconds=settings.tool_timeout_seconds,
        calls=settings.node_calls,
        nodes=settings.max_nodes,
        result_bytes=settings.max_result_bytes,
        offer=OfferLimits(settings.max_node_tools, settings.max_tool_bytes),
    )


def open_blobs(settings: Settings) -> Blobs:
    from easel.stores.blobs import store as blobs

    return blobs.open_blobs(_blob_url(settings))


def blob_folder(settings: Settings) -> Path | None:
    """None: they are in a bucket."""
    from easel.stores.blobs import store as blobs

    return blobs.folder_of(_blob_url(settings))


def _blob_url(settings: Settings) -> str:
    return settings.blob_url or str(settings.data_folder / "blobs")


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
        raise BadSettings(
            problem=f"The data folder {folder} cannot be used ({problem.strerror}); choose another with --data."
        ) from None
