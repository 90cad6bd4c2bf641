"""Open the stores that the settings name: the database, the blob store, the audit chain, the owner's token.

Owns which driver is used, how long a starting process waits for its database, and the error messages of
unavailable stores. Knows only the two services that commands use without a server: `Tokens` and the
verification of the audit chain.
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from easel import fs
from easel.core.audit.chain import parse_position
from easel.core.principal import Role
from easel.core.token import NewToken, TokenKind, digest_of
from easel.errors import BadSettings, Unavailable
from easel.host.audit.audit import Audit
from easel.host.audit.chain import ChainProgress, verify
from easel.host.auth.tokens import Tokens
from easel.host.ports import BlobStore
from easel.ids import OWNER, UserId
from easel.settings import Settings

if TYPE_CHECKING:
    from easel.stores.postgres import PostgresDatabase
    from easel.stores.sqlite import SqliteDatabase
    from easel.stores.sqlite.shared_access import SharedSqlite

    Database = PostgresDatabase | SqliteDatabase
    AdminStore = Database | SharedSqlite  # what commands use beside a running Easel

DATABASE_WAIT_SECONDS = 30.0  # how long a starting process waits for its database
RETRY_SECONDS = 0.5
LOG_SECONDS = 5.0  # between two log lines while the process waits for its database
POSTGRES_PORT = 5432
OWNER_TOKEN_ID = f"tok_{0:026}"

log = structlog.get_logger("easel")


# -- the database --------------------------------------------------------------------------------------------


async def open_database(settings: Settings, wait_seconds: float = 0.0) -> "Database":
    """Open the database that the settings name; retry for `wait_seconds`, because it may be starting too.

    Raises `BadSettings` if the database is still unavailable after this time.
    """
    now = asyncio.get_running_loop().time
    deadline, log_at = now() + wait_seconds, now()
    while True:
        try:
            return await _connect(settings)
        except Unavailable as problem:
            if now() >= deadline:
                raise _unreachable_error(settings, problem) from problem
            if now() >= log_at:
                log_at = now() + LOG_SECONDS
                seconds_left = round(deadline - now())
                log.warning("database.waiting", at=database_address(settings), seconds_left=seconds_left)
            await asyncio.sleep(RETRY_SECONDS)


@contextlib.asynccontextmanager
async def migrated_database(
    settings: Settings, wait_seconds: float = DATABASE_WAIT_SECONDS
) -> "AsyncGenerator[Database]":
    """Open the database, apply missing migrations, and close it at the end."""
    database = await open_database(settings, wait_seconds)
    try:
        if applied := await database.migrate():
            log.info("database.migrated", migrations=len(applied), newest=applied[-1])
        yield database
    finally:
        await database.close()


async def _connect(settings: Settings) -> "Database":
    """Connect to the database. Only the driver in use is imported."""
    if settings.on_postgres:
        from easel.stores.postgres import open_postgres

        return await open_postgres(
            settings.database_url,
            pool=settings.database_pool,
            timeout=settings.database_timeout_seconds,
            max_document_versions=settings.max_document_versions,
            max_canvas_versions=settings.canvas_versions,
            max_account_runs=settings.limits_of_account.runs,
        )
    from easel.stores.sqlite import open_sqlite

    _make_data_folder(settings.data_folder)
    return await open_sqlite(
        _sqlite_file(settings),
        synchronous=settings.sqlite_synchronous,
        max_document_versions=settings.max_document_versions,
        max_canvas_versions=settings.canvas_versions,
        max_account_runs=settings.limits_of_account.runs,
    )


def _sqlite_file(settings: Settings) -> Path:
    return settings.data_folder / "easel.db"


def database_address(settings: Settings) -> str:
    """Return where the database is, for messages: without the user and the password."""
    if not settings.on_postgres:
        return str(_sqlite_file(settings))
    hosts, _, path = re.sub("[?#]", "/", settings.database_url.partition("://")[2]).partition("/")
    hosts = hosts.rpartition("@")[2]
    # There is no host but a Unix socket, or a password has an unescaped `/`, and a part of it would be shown.
    if not hosts or "@" in path:
        return "the address in EASEL_DATABASE_URL"
    return ", ".join(
        host if re.search(r":\d+$", host) else f"{host}:{POSTGRES_PORT}" for host in hosts.split(",")
    )


def _unreachable_error(settings: Settings, problem: Unavailable) -> BadSettings:
    advice = (
        "start it, or correct EASEL_DATABASE_URL"
        if settings.on_postgres
        else "make it usable, or set EASEL_DATA to another folder"
    )
    reason = _reason(problem.__cause__)
    return BadSettings(
        problem=f"The database at {database_address(settings)} is unavailable ({reason}); {advice}."
    )


def _reason(problem: BaseException | None) -> str:
    match problem:
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return "unknown host name"
        case TimeoutError():
            return "connection timed out"
        case _:
            return str(problem).strip() or type(problem).__name__


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """A database as `inspect_database` found it."""

    version: int  # of the schema; 0: the database is empty
    newest: int  # the newest schema version of this code
    is_read_only: bool = False
    holder: str | None = None  # the process that has locked the database


async def inspect_database(settings: Settings) -> DatabaseInfo | None:
    """Inspect the database without changing it. Returns None if no database exists yet."""
    from easel.stores import migrations

    if settings.on_postgres:
        from easel.stores.postgres.inspect import inspect_postgres

        newest = migrations.available("postgres")[-1].version
        timeout = settings.database_timeout_seconds
        try:
            version, is_read_only = await inspect_postgres(settings.database_url, timeout=timeout)
        except Unavailable as problem:
            raise _unreachable_error(settings, problem) from problem
        return DatabaseInfo(version, newest, is_read_only)
    from easel.stores.sqlite.inspect import inspect_sqlite

    newest = migrations.available("sqlite")[-1].version
    info = await asyncio.to_thread(inspect_sqlite, _sqlite_file(settings))
    return None if info is None else DatabaseInfo(info.version, newest, holder=info.holder)


# -- parts of the database, for commands that run beside a running Easel -------------------------------------


async def verify_audit(settings: Settings, checkpoints: Sequence[str]) -> AsyncGenerator[ChainProgress]:
    """Verify the audit chain to its end or to the first break, read-only; yields the progress."""
    positions = [parse_position(text) for text in checkpoints]
    database = await _open_audit(settings)
    try:
        if not await database.is_migrated():
            raise BadSettings(
                problem="The schema of this database is too old; update it with `easel migrate`."
            )
        key = settings.secret_key or await database.audit.signing_key()
        async for reached in verify(database.audit, positions, key=key):
            yield reached
    finally:
        await database.close()


async def _open_audit(settings: Settings) -> "AdminStore":
    if settings.on_postgres:
        return await open_database(settings)
    from easel.stores.sqlite.shared_access import SharedSqlite

    path = _sqlite_file(settings)
    if not path.exists():
        raise BadSettings(
            problem=f"There is no database at {path}; set its folder with --data, or set EASEL_DATABASE_URL."
        )
    return SharedSqlite(path)


@contextlib.asynccontextmanager
async def open_admin_store(settings: Settings) -> "AsyncGenerator[AdminStore]":
    """Open the database, also while an Easel is running on the same SQLite file.

    Missing migrations are applied, which needs that no Easel is running.
    """
    async with contextlib.AsyncExitStack() as stack:
        path = _sqlite_file(settings)
        if not settings.on_postgres and path.exists():
            from easel.stores.sqlite.shared_access import SharedSqlite

            shared = SharedSqlite(path)
            stack.push_async_callback(shared.close)
            if await shared.is_migrated():
                yield shared
                return
        # An interactive command: fail fast instead of waiting for the database.
        yield await stack.enter_async_context(migrated_database(settings, wait_seconds=0))


@contextlib.asynccontextmanager
async def open_token_admin(settings: Settings) -> AsyncGenerator[Tokens]:
    """Open the administration of tokens."""
    async with open_admin_store(settings) as store:
        audit = Audit(store.audit)
        try:
            yield Tokens(store.tokens, audit)
        finally:
            await audit.close()


# -- blobs and the owner's token -----------------------------------------------------------------------------


def open_blobs(settings: Settings) -> BlobStore:
    """Open the blob store: a folder or a bucket."""
    from easel.stores.blobs import store as blobs

    return blobs.open_blobs(_blob_url(settings))


def blob_folder(settings: Settings) -> Path | None:
    """Return the folder of the blob store, or None for a bucket."""
    from easel.stores.blobs import store as blobs

    return blobs.folder_of(_blob_url(settings))


def _blob_url(settings: Settings) -> str:
    return settings.blob_url or str(settings.data_folder / "blobs")


def owner_token(settings: Settings) -> str:
    """Return EASEL_TOKEN, or the token in the data folder, which is generated at the first start."""
    return settings.token or generated_file(settings.data_folder / "owner-token")


def owner_credential(token: str) -> NewToken:
    """Return the owner's token as a credential of the account that the first migration creates."""
    return NewToken(
        token_id=OWNER_TOKEN_ID,
        account_id=OWNER,
        kind=TokenKind.USER,
        user_id=UserId(OWNER),
        role=Role.ADMIN,
        name="owner",
        node_id=None,
        digest=digest_of(token),
    )


def derive_key(signing_key: str, token: str, purpose: str) -> bytes:
    """Return a key for this purpose, the same on every instance until the owner's token changes.

    A new owner's token so invalidates all that was signed, and no signature helps to guess the token.
    """
    owner = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    key = hmac.new(signing_key.encode(), b"easel owner " + owner, hashlib.sha256).digest()
    return hmac.new(key, f"easel key {purpose}".encode(), hashlib.sha256).digest()


def generated_file(path: Path) -> str:
    """Return the secret in a file of the data folder, which is generated at first, readable by its owner."""
    try:
        secret = path.read_text("utf-8").strip()
    except FileNotFoundError:
        secret = _generate(path)
    if not secret:
        raise BadSettings(problem=f"{path} is empty; delete it, and the next start generates a new one.")
    return secret


def _generate(path: Path) -> str:
    _make_data_folder(path.parent)
    # If two processes start together, one write succeeds and both use its secret.
    with (
        contextlib.suppress(FileExistsError),
        fs.closing(os.open(path.parent, fs.READ_DIRECTORY)) as folder,
        fs.write_atomically(folder, path.name, mode=0o600, replace=False) as file,
    ):
        file.write(f"{secrets.token_urlsafe(32)}\n".encode())
    return path.read_text("utf-8").strip()


def _make_data_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        reason = problem.strerror
        raise BadSettings(
            problem=f"The data folder {folder} cannot be used ({reason}); choose another with --data."
        ) from None
