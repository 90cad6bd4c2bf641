"""The checks of `easel doctor`: each thing that Easel needs, whether it is available, and what to do if not.

The checks change nothing: missing folders are not created and an old database is not migrated.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from easel import settings as all_settings
from easel.assembly import storage
from easel.assembly.models import check_host_model
from easel.assembly.sandbox import choose_sandbox
from easel.assembly.server import listen
from easel.canvas_folder.api_client import RequestRefused, ServerUnreachable, client_for
from easel.errors import HostError
from easel.settings import MIN_TOKEN_LENGTH, Settings

MIN_FREE_BYTES = 500_000_000


class Verdict(Enum):
    OK = "ok"
    WARN = "warn"  # Easel works, but the setting may be a mistake
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    verdict: Verdict
    name: str
    text: str


OK, WARN, FAIL = Verdict


async def run_checks(settings: Settings, is_ready: bool | None = None) -> AsyncIterator[Check]:
    """Yield the checks in order. `is_ready`: whether the running Easel is ready; None if none runs."""
    version = sys.version.split()[0]
    yield Check(OK, "Python", version) if sys.version_info >= (3, 11) else Check(FAIL, "Python", version)
    for name, nearest in all_settings.unknown_variables().items():
        hint = f"did you mean {nearest}?" if nearest else "`easel settings` lists all of them."
        yield Check(WARN, name, f"unknown setting; {hint}")
    yield _check_data_folder(settings)
    yield _check_token(settings)
    yield _check_port(settings, is_ready)
    yield await _check_database(settings, is_ready)
    yield await _check_blobs(settings)
    yield _check_bash(settings)
    yield await _check_model(settings, is_ready)


async def lock_holder(settings: Settings) -> str | None:
    """Return the process that has locked the database of the data folder, or None."""
    found = None if settings.on_postgres else await storage.inspect_database(settings)
    return None if found is None else found.holder


def _folder_problem(folder: Path) -> str | None:
    """Return why the folder cannot be created or written to, or None if it can."""
    existing = _nearest_existing(folder)
    if not existing.is_dir():
        return f"{existing} is not a folder"
    return None if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is not writable"


def _nearest_existing(folder: Path) -> Path:
    for path in (folder.absolute(), *folder.absolute().parents):
        if os.path.lexists(path):
            return path
    return Path("/")


def _check_data_folder(settings: Settings) -> Check:
    folder, name = settings.data_folder, "Data folder"
    try:
        if problem := _folder_problem(folder):
            return Check(FAIL, name, f"{folder} cannot be used: {problem}; choose another with --data.")
        free = shutil.disk_usage(_nearest_existing(folder)).free
    except OSError as problem:
        return Check(FAIL, name, f"{folder} cannot be used ({problem.strerror}); choose another with --data.")
    note = "" if folder.exists() else " (does not exist yet; the first start creates it)"
    text = f"{folder}{note}, {free // 1_000_000} MB free"
    return Check(OK, name, text) if free >= MIN_FREE_BYTES else Check(FAIL, name, text)


def _check_token(settings: Settings) -> Check:
    name = "Owner's token"
    if settings.has_weak_token:
        return Check(
            FAIL, name, f"EASEL_TOKEN has fewer than {MIN_TOKEN_LENGTH} characters and can be guessed."
        )
    if settings.token:
        return Check(OK, name, "from EASEL_TOKEN")
    path = settings.data_folder / "owner-token"
    try:
        if not path.read_text("utf-8").strip():
            return Check(FAIL, name, f"{path} is empty; delete it, and the next start generates a new token.")
    except (FileNotFoundError, NotADirectoryError):
        return Check(OK, name, "none yet; the first start generates one in the data folder")
    except (OSError, UnicodeDecodeError) as problem:
        return Check(FAIL, name, f"{path} cannot be read ({problem}).")
    return Check(OK, name, f"in {path}")


def _check_port(settings: Settings, is_ready: bool | None) -> Check:
    address = f"{settings.host}:{settings.port}"
    if is_ready is True:
        return Check(OK, "Port", f"Easel is running on {address} and is ready")
    if is_ready is False:
        text = f"Easel is running on {address} but is not ready: it cannot write to its database"
        return Check(FAIL, "Port", text)
    try:
        listen(settings.host, settings.port).close()
    except HostError as problem:
        return Check(FAIL, "Port", problem.message)
    return Check(OK, "Port", f"{address} is free")


async def _check_database(settings: Settings, is_ready: bool | None) -> Check:
    name, address = "Database", storage.database_address(settings)
    kind = f"Postgres at {address}" if settings.on_postgres else "SQLite"
    try:
        info = await storage.inspect_database(settings)
    except HostError as problem:
        return Check(
            FAIL, name, problem.message if address in problem.message else f"{kind}: {problem.message}"
        )
    if info is None:
        if problem := _folder_problem(settings.data_folder):
            return Check(FAIL, name, f"{kind}: it cannot be created: {problem}.")
        return Check(OK, name, f"{kind}, does not exist yet; the first start creates it")
    if info.holder is not None:
        if is_ready is None:
            address = f"{settings.host}:{settings.port}"
            holder = f"process {info.holder}, which does not answer on {address}"
            return Check(FAIL, name, f"{kind}, locked by {holder}.")
        kind += ", in use by the running Easel"
    if info.is_read_only:
        return Check(FAIL, name, f"{kind}, schema version {info.version}, is read-only or a standby.")
    if info.version == 0:
        return Check(OK, name, f"{kind}, empty; the first start creates its tables")
    if info.version < info.newest:
        return Check(
            WARN,
            name,
            f"{kind}, schema version {info.version}; the next start migrates it to {info.newest}. "
            "Back it up first.",
        )
    newer = f", newer than this Easel's {info.newest}, which works" if info.version > info.newest else ""
    return Check(OK, name, f"{kind}, schema version {info.version}, writable{newer}")


async def _check_blobs(settings: Settings) -> Check:
    """Check the blob store: a folder by its permissions, a bucket by a write that is removed."""
    try:
        folder = storage.blob_folder(settings)
        if folder is None:
            await storage.open_blobs(settings).check()
            return Check(OK, "Blobs", settings.blob_url)
    except HostError as problem:
        return Check(FAIL, "Blobs", problem.message)
    if problem := _folder_problem(folder):
        return Check(FAIL, "Blobs", f"{folder} cannot be used: {problem}; set EASEL_BLOB_URL to another.")
    note = "" if folder.is_dir() else " (does not exist yet; created when needed)"
    return Check(OK, "Blobs", f"{folder}{note}")


async def _check_model(settings: Settings, is_ready: bool | None) -> Check:
    """Check the model by one small request: the owner's by the running Easel, otherwise the host's default.

    The settings of users are not read without a running Easel.
    """
    if is_ready is None:
        check = await check_host_model(settings)
        return Check(OK, "Model", check.text) if check.is_ok else Check(FAIL, "Model", check.text)
    try:
        answer = await asyncio.to_thread(client_for(settings, None, None).send, "POST", "/api/settings/check")
        return Check(OK, "Model", answer["text"]) if answer["ok"] else Check(FAIL, "Model", answer["text"])
    except (HostError, RequestRefused, ServerUnreachable) as problem:
        return Check(WARN, "Model", f"not checked, because the running Easel did not do it: {problem}")


def _check_bash(settings: Settings) -> Check:
    """Check the sandbox. Fails only if the configured mode cannot be used; Bash may be disabled. RS-61"""
    folder = settings.sandbox_folder
    if problem := _folder_problem(folder):
        return Check(
            FAIL,
            "Bash",
            f"The sandbox folder {folder} cannot be used: {problem}; set EASEL_SANDBOX_ROOT to another.",
        )
    try:
        return Check(OK, "Bash", choose_sandbox(settings).description)
    except HostError as problem:
        return Check(FAIL, "Bash", problem.message)
