"""What `easel doctor` looks at: each thing Easel needs here, whether it is there, and what to do if not.

It looks and changes nothing: what is not there yet is not made, and an older database stays as old as it is.
"""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from easel import settings
from easel.assembly import storage
from easel.assembly.sandbox import choose_sandbox
from easel.assembly.server import listen
from easel.errors import HostError
from easel.settings import MIN_TOKEN_LENGTH, Settings

MIN_FREE_BYTES = 500_000_000


class Verdict(Enum):
    GOOD = "ok"
    ODD = "??"  # works, and may not be what was meant
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    verdict: Verdict
    says: str


def good(what: str, says: str) -> Check:
    return Check(what, Verdict.GOOD, says)


def odd(what: str, says: str) -> Check:
    return Check(what, Verdict.ODD, says)


def bad(what: str, says: str) -> Check:
    return Check(what, Verdict.BAD, says)


async def checks(wanted: Settings, is_ready: bool | None = None) -> AsyncIterator[Check]:
    """`is_ready`: what the Easel says that runs here already, if one does."""
    yield Check(
        "Python", Verdict.GOOD if sys.version_info >= (3, 11) else Verdict.BAD, sys.version.split()[0]
    )
    for name in settings.unknown_variables():
        meant = settings.nearest(name)
        hint = f"did you mean {meant}?" if meant else "`easel settings` lists them all."
        yield odd(name, f"this version has no such setting; {hint}")
    yield _data_folder(wanted)
    yield _token(wanted)
    yield _port(wanted, is_ready)
    yield await _database(wanted, is_ready)
    yield await _blobs(wanted)
    yield _bash(wanted)


def _problem_with(folder: Path) -> str | None:
    """Why nothing could be written there; None: it could, in a folder that would have to be made perhaps."""
    there = _nearest(folder)
    if not there.is_dir():
        return f"{there} is no folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written to"


def _nearest(folder: Path) -> Path:
    """The folder itself, or of those above it the first that is there."""
    for one in (folder.absolute(), *folder.absolute().parents):
        if os.path.lexists(one):
            return one
    return Path("/")


def _data_folder(wanted: Settings) -> Check:
    folder = wanted.data_folder
    try:
        if problem := _problem_with(folder):
            return bad("Data folder", f"{folder} cannot be used: {problem}; choose another with --data.")
        free = shutil.disk_usage(_nearest(folder)).free
    except OSError as problem:
        return bad(
            "Data folder", f"{folder} cannot be used ({problem.strerror}); choose another with --data."
        )
    verdict = Verdict.GOOD if free >= MIN_FREE_BYTES else Verdict.BAD
    there = "" if folder.exists() else " (not there yet: the first start makes it)"
    return Check("Data folder", verdict, f"{folder}{there}, {free // 1_000_000} MB free")


def _token(wanted: Settings) -> Check:
    if wanted.has_weak_token:
        return bad(
            "Owner's token",
            f"EASEL_TOKEN has fewer than {MIN_TOKEN_LENGTH} characters; anyone who can reach the port can guess it.",
        )
    if wanted.token:
        return good("Owner's token", "from EASEL_TOKEN")
    kept = wanted.data_folder / "owner-token"
    try:
        if not kept.read_text("utf-8").strip():
            return bad(
                "Owner's token", f"{kept} is empty; delete it, and a new token is made at the next start."
            )
    except (FileNotFoundError, NotADirectoryError):
        return good("Owner's token", "none yet: the first start makes one and keeps it in the data folder")
    except (OSError, UnicodeDecodeError) as problem:
        return bad("Owner's token", f"{kept} cannot be read ({problem}).")
    return good("Owner's token", f"kept in {kept}")


def _port(wanted: Settings, is_ready: bool | None) -> Check:
    if is_ready is not None:
        how = "and is ready" if is_ready else "but is not ready: it cannot write to its database now"
        return Check(
            "Port",
            Verdict.GOOD if is_ready else Verdict.BAD,
            f"Easel runs on {wanted.host}:{wanted.port} {how}",
        )
    try:
        listen(wanted.host, wanted.port).close()
    except HostError as problem:
        return bad("Port", problem.message)
    return good("Port", f"{wanted.host}:{wanted.port} is free")


async def _database(wanted: Settings, is_ready: bool | None) -> Check:
    place = storage.database_address(wanted)
    kind = f"Postgres at {place}" if wanted.on_postgres else "SQLite"
    try:
        seen = await storage.inspect_database(wanted)
    except HostError as problem:
        return bad("Database", problem.message if place in problem.message else f"{kind}: {problem.message}")
    if seen is None and (problem := _problem_with(wanted.data_folder)):
        return bad("Database", f"{kind}: there is no place for it: {problem}.")
    if seen is None:
        return good("Database", f"{kind}, none yet: the first start makes it")
    if seen.holder is not None and is_ready is None:
        return bad(
            "Database",
            f"{kind}, in use by process {seen.holder}, which does not answer on {wanted.host}:{wanted.port}.",
        )
    kind += ", in use by the Easel that runs" if seen.holder is not None else ""
    if seen.is_read_only:
        return bad(
            "Database",
            f"{kind}, schema version {seen.version}, and it takes no writes: it is a standby, or was made read-only.",
        )
    if seen.version == 0:
        return good("Database", f"{kind}, empty: the first start makes its tables")
    if seen.version < seen.newest:
        return odd(
            "Database",
            f"{kind}, schema version {seen.version}; this Easel has {seen.newest}. Back up: the next start brings it there.",
        )
    newer = f", newer than this Easel's {seen.newest}, which works" if seen.version > seen.newest else ""
    return good("Database", f"{kind}, schema version {seen.version}, writable{newer}")


async def holder(wanted: Settings) -> str | None:
    """The process that has the database of the data folder to itself, if one has."""
    seen = None if wanted.on_postgres else await storage.inspect_database(wanted)
    return None if seen is None else seen.holder


def _bash(wanted: Settings) -> Check:
    """No Bash is nothing bad in itself; a mode that was asked for and cannot be had is. RS-61"""
    if problem := _problem_with(wanted.sandbox_folder):
        return bad(
            "Bash",
            f"The sandbox folder {wanted.sandbox_folder} cannot be used: {problem}; set EASEL_SANDBOX_ROOT to another.",
        )
    try:
        return good("Bash", choose_sandbox(wanted).says)
    except HostError as problem:
        return bad("Bash", problem.message)


async def _blobs(wanted: Settings) -> Check:
    """A folder is looked at. Of a bucket, only a write says whether it takes any: a few bytes aside, which are removed at once."""
    try:
        folder = storage.blob_folder(wanted)
        if folder is None:
            await storage.open_blobs(wanted).check()
            return good("Blobs", wanted.blob_url)
    except HostError as problem:
        return bad("Blobs", problem.message)
    if problem := _problem_with(folder):
        return bad("Blobs", f"{folder} cannot be used: {problem}; set EASEL_BLOB_URL to another.")
    return good(
        "Blobs", str(folder) if folder.is_dir() else f"{folder} (not there yet: made when it is needed)"
    )
