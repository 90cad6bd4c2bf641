"""One Postgres for all workers of a pytest run: the first user starts it, the last one stops it.

Owns the coordination of independent processes: a folder with lock files, and a keeper process (`python -m
tests.support.postgres_shared FOLDER`) that runs the server. Every user holds a shared file lock and the
keeper waits for the exclusive one. A killed worker releases its lock too, so no count can be wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tests.support.postgres import START_SECONDS, STOP_SECONDS, Postgres
from tests.support.postgres_binaries import PostgresUnavailable
from tests.support.postgres_guard import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[2]
STATE_FILE, USERS_LOCK, START_LOCK, KEEPER_LOG = "server.json", "users.lock", "start.lock", "keeper.log"
# Two workers with their pools, and the processes of a journey, each with a pool of its own.
MAX_CONNECTIONS = 300

# Keepers outlive the call that started them; until this process ends it stays their parent.
started: list[subprocess.Popen[bytes]] = []


@contextlib.contextmanager
def locked(path: Path, kind: int) -> Iterator[IO[str]]:
    with path.open("a") as file:
        fcntl.flock(file, kind)
        yield file


@contextlib.contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """Yield the superuser's URL of the one server of this folder."""
    state = folder / STATE_FILE
    with contextlib.ExitStack() as stack:
        with locked(folder / START_LOCK, fcntl.LOCK_EX):
            # A keeper that is stopping holds the users' lock until its state file is removed.
            stack.enter_context(locked(folder / USERS_LOCK, fcntl.LOCK_SH))
            if not state.exists():
                start_keeper(folder)
        yield json.loads(state.read_text())["url"]


def start_keeper(folder: Path) -> None:
    with (folder / KEEPER_LOG).open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.support.postgres_shared", str(folder)],
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    started.append(keeper)
    wait_until(lambda: (folder / STATE_FILE).exists() or keeper.poll() is not None, 2 * START_SECONDS)
    if not (folder / STATE_FILE).exists():
        raise PostgresUnavailable((folder / KEEPER_LOG).read_text(errors="replace"))


def wait_for_shared_server_to_end(folder: Path) -> None:
    wait_until(lambda: not (folder / STATE_FILE).exists(), STOP_SECONDS)


def keep_shared_server(folder: Path) -> None:
    """Serve until the users' lock is free. No data outlives the session, so fsync is off."""
    state, draft = folder / STATE_FILE, folder / (STATE_FILE + ".new")
    with Postgres(fsync=False, max_connections=MAX_CONNECTIONS) as server:
        draft.write_text(json.dumps({"url": server.url()}))
        draft.rename(state)
        with locked(folder / USERS_LOCK, fcntl.LOCK_EX):
            server.close()
            state.unlink()


if __name__ == "__main__":
    keep_shared_server(Path(sys.argv[1]))
