"""What `easel doctor` looks at: each thing Easel needs here, whether it is there, and what to do if not."""

import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from easel import assembly, settings
from easel.errors import HostError
from easel.settings import Settings

LEAST_FREE_BYTES = 500_000_000
LEAST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    is_good: bool
    says: str


async def checks(wanted: Settings, is_ready: bool | None = None) -> AsyncIterator[Check]:
    """`is_ready`: what the Easel says that runs here already, if one does."""
    yield Check("Python", sys.version_info >= (3, 11), sys.version.split()[0])
    for name in settings.unknown_variables():
        yield Check(name, True, "this version has no such setting; `easel settings` lists them all.")
    yield _data_folder(wanted)
    yield _token(wanted)
    yield _port(wanted, is_ready)
    yield await _database(wanted, is_ready)
    yield await _blobs(wanted)
    yield _bash(wanted)


def _data_folder(wanted: Settings) -> Check:
    folder = wanted.data_folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = folder / ".probe"
        probe.write_text("x")
        probe.unlink()
    except OSError as problem:
        return Check("Data folder", False, f"{folder} cannot be written ({problem.strerror}); choose another with --data.")
    free = shutil.disk_usage(folder).free
    return Check("Data folder", free >= LEAST_FREE_BYTES, f"{folder}, {free // 1_000_000} MB free")


def _token(wanted: Settings) -> Check:
    if wanted.token and len(wanted.token) < LEAST_TOKEN:
        return Check(
            "Owner's token", False, f"EASEL_TOKEN has fewer than {LEAST_TOKEN} characters; anyone who can reach the port can guess it."
        )
    return Check("Owner's token", True, "from EASEL_TOKEN" if wanted.token else f"kept in {wanted.data_folder / 'owner-token'}")


def _port(wanted: Settings, is_ready: bool | None) -> Check:
    if is_ready is not None:
        how = "and is ready" if is_ready else "but is not ready: it cannot write to its database now"
        return Check("Port", is_ready, f"Easel runs on {wanted.host}:{wanted.port} {how}")
    try:
        assembly.listening(wanted.host, wanted.port).close()
    except HostError as problem:
        return Check("Port", False, problem.message)
    return Check("Port", True, f"{wanted.host}:{wanted.port} is free")


async def _database(wanted: Settings, is_ready: bool | None) -> Check:
    kind = "Postgres" if wanted.on_postgres else "SQLite"
    try:
        opened = await assembly.open_database(wanted)
        try:
            applied = await opened.migrate()
            await opened.runs.probe()
            version = await opened.schema_version()
        finally:
            await opened.close()
    except HostError as problem:
        if is_ready and isinstance(problem.__cause__, BlockingIOError):  # RS-50: one process has it, and that one is well
            return Check("Database", True, f"{kind}, in use by the Easel that runs")
        return Check("Database", False, f"{kind}: {problem.message}")
    return Check(
        "Database", True, f"{kind}, schema version {version}, writable" + (f", applied {len(applied)} migrations" if applied else "")
    )


def _bash(wanted: Settings) -> Check:
    """No Bash is nothing bad in itself; a mode that was asked for and cannot be had is. RS-61"""
    try:
        assembly.session_folders(wanted).check()
        return Check("Bash", True, assembly.sandbox(wanted).says)
    except HostError as problem:
        return Check("Bash", False, problem.message)


async def _blobs(wanted: Settings) -> Check:
    try:
        await assembly.open_blobs(wanted).check()
    except HostError as problem:
        return Check("Blobs", False, problem.message)
    return Check("Blobs", True, wanted.blob_url or str(wanted.data_folder / "blobs"))
