"""A throw-away Postgres: started, broken on purpose, and always cleaned up.

    with Postgres() as server:
        url = server.create_database()

Owns the folder, the process and its end, and ends only what it started: each server has a guard process
(`postgres_guard`) for the day when the launcher itself is killed. Knows nothing of Easel.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

import asyncpg

from tests.support import postgres_guard
from tests.support.postgres_binaries import (
    PostgresUnavailable,
    copy_binaries,
    find_binaries,
    is_open_to_others,
    temporary_parent,
    unprivileged_account,
)
from tests.support.postgres_guard import remove, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

StopMode = Literal["fast", "immediate", "smart"]
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
    "smart": signal.SIGTERM,
}

SUPERUSER = "postgres"
START_SECONDS = 60.0
STOP_SECONDS = 60.0
PORT_ATTEMPTS = 5

# Small enough for several servers on a laptop; a test that needs more says so in `settings`.
TEST_SETTINGS: dict[str, str] = {
    "shared_buffers": "32MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] ",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def execute(url: str, sql: str) -> list[dict[str, Any]]:
    """Run SQL on a connection of its own, in a thread with its own loop, so that tests with and without a
    loop can call it.
    """

    async def once() -> list[dict[str, Any]]:
        connection = await asyncpg.connect(url, timeout=30)
        try:
            if ";" in sql.strip().rstrip(";"):
                await connection.execute(sql, timeout=60)
                return []
            return [dict(row) for row in await connection.fetch(sql, timeout=60)]
        finally:
            await connection.close(timeout=10)

    outcome: list[Any] = []

    def in_thread() -> None:
        try:
            outcome.append(asyncio.run(once()))
        except BaseException as problem:  # noqa: BLE001  carried over to the caller
            outcome.append(problem)

    thread = threading.Thread(target=in_thread, name="postgres-execute")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def on_same_server(url: str, dbname: str) -> str:
    """Return the URL of another database on the same server."""
    return f"{url.rpartition('/')[0]}/{quote(dbname, safe='')}"


def create_database(server_url: str, name: str | None = None, template: str = "template0") -> str:
    """Create a database, empty or as a copy of a template without connections. Returns its URL."""
    name = name or f"easel_{secrets.token_hex(6)}"
    execute(
        on_same_server(server_url, "postgres"), f"create database {quoted(name)} template {quoted(template)}"
    )
    return on_same_server(server_url, name)


def drop_database(server_url: str, name: str) -> None:
    """Drop a database even while clients are connected to it."""

    def is_dropped() -> bool:
        # Postgres ends the connections and waits five seconds for them; on a busy machine they may need
        # longer.
        with contextlib.suppress(asyncpg.ObjectInUseError):
            execute(
                on_same_server(server_url, "postgres"), f"drop database if exists {quoted(name)} with (force)"
            )
            return True
        return False

    if not wait_until(is_dropped, STOP_SECONDS):
        raise PostgresUnavailable(f"Somebody is still connected to {name}.")


class Postgres:
    """One server of our own on 127.0.0.1. `start` and `stop` may alternate; data and port stay
    until `close`.
    """

    def __init__(
        self,
        *,
        fsync: bool = True,
        max_connections: int = 100,
        settings: Mapping[str, str | int | float] | None = None,
        data_folder: Path | None = None,
        binaries: Path | None = None,
    ) -> None:
        """Set up the server. `data_folder` names a missing or empty folder for the data (a small tmpfs),
        which `close` empties.
        """
        self.settings: dict[str, str | int | float] = {
            **TEST_SETTINGS,
            "max_connections": max_connections,
            **(settings or {}),
        }
        if not fsync:
            self.settings |= {"fsync": "off", "full_page_writes": "off"}
        self._password = secrets.token_hex(8)
        self.port = free_port()
        self._binaries = binaries or find_binaries()
        self._given_data_folder = data_folder
        self._account = unprivileged_account()
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[Any] | None = None

    # -- life

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start the server, with fresh data the first time, and return once it answers."""
        if self.is_running:
            return self
        if self._folder is None:
            self._initialise()
            for _ in range(PORT_ATTEMPTS - 1):
                # Between our choice of a free port and the server's bind another process may take it.
                with contextlib.suppress(PostgresUnavailable):
                    self._launch()
                    return self
                if "could not bind" not in self.log():
                    break
                self.port = free_port()
        self._launch()
        return self

    def stop(self, mode: StopMode = "fast", timeout: float = STOP_SECONDS) -> None:
        """Stop the server and keep its data. `immediate` is a crash: no shutdown checkpoint, recovery at the
        next start.
        """
        server = self._server
        if server is None:
            return
        if server.poll() is None:
            server.send_signal(STOP_SIGNALS[mode])
            server.send_signal(signal.SIGCONT)  # a test may have frozen it
        server.wait(timeout)
        self._server = None

    def restart(self, mode: StopMode = "fast") -> Self:
        self.stop(mode)
        return self.start()

    def close(self) -> None:
        """Stop, by force if needed, and remove every trace. May be called twice."""
        try:
            self.stop("immediate", timeout=20)
        except subprocess.TimeoutExpired:
            assert self._server is not None
            self._server.kill()
            self._server.wait()
            self._server = None
        if self._folder is not None:
            remove(self.data_folder)
            remove(self._folder)
            self._folder = None
        if self._guard is not None:
            assert self._guard.stdin is not None
            # Without its folder the guard has nothing left to do and ends.
            self._guard.stdin.close()
            self._guard.wait(20)
            self._guard = None

    # -- inspection

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id, for tests that stop or freeze it."""
        if self._server is None:
            raise PostgresUnavailable("This Postgres is not running.")
        return self._server.pid

    @property
    def data_folder(self) -> Path:
        if self._given_data_folder is not None:
            return self._given_data_folder
        if self._folder is None:
            raise PostgresUnavailable("This Postgres has no data folder yet; start it first.")
        return self._folder / "data"

    def url(self, dbname: str = "postgres") -> str:
        return on_same_server(f"postgresql://{SUPERUSER}:{self._password}@127.0.0.1:{self.port}/", dbname)

    def log(self) -> str:
        """Return the server's log so far."""
        try:
            assert self._folder is not None
            return (self._folder / "postgres.log").read_text(errors="replace")
        except (OSError, AssertionError):
            return ""

    # -- databases

    def create_database(self, name: str | None = None, template: str = "template0") -> str:
        """Create a database, empty or as a copy of a template without connections. Returns its URL."""
        return create_database(self.url(), name, template)

    def drop_database(self, name: str) -> None:
        drop_database(self.url(), name)

    def execute(self, sql: str, dbname: str = "postgres") -> list[dict[str, Any]]:
        """Run SQL as the superuser and return its rows; several statements at once return none."""
        return execute(self.url(dbname), sql)

    # -- internals

    def _initialise(self) -> None:
        """Create the folder, its guard and the empty cluster. The guard starts before anything that could
        outlive us.
        """
        folder = Path(tempfile.mkdtemp(prefix="easel-pg-", dir=temporary_parent(self._account)))
        self._folder = folder
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", postgres_guard.__file__, str(folder), str(self.data_folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        if self._account and not is_open_to_others(self._binaries):
            # A wheel inside a private home cannot be read by the server's account, so its binaries are
            # copied.
            self._binaries = copy_binaries(self._binaries, folder / "install")
        self.data_folder.mkdir(parents=True, exist_ok=True)
        self.data_folder.chmod(0o700)
        password_file = folder / "password"
        password_file.write_text(self._password)
        for path in (folder, self.data_folder, password_file):
            if self._account:
                os.chown(path, self._account.uid, self._account.gid)
        command = [
            str(self._binaries / "initdb"),
            "--pgdata",
            str(self.data_folder),
            "--username",
            SUPERUSER,
            "--pwfile",
            str(password_file),
        ]
        # `password` keeps out other accounts of this machine without key stretching per connection.
        command += ["--auth", "password", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        made = subprocess.run(
            command,
            **self._process_options(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise PostgresUnavailable(f"initdb failed:\n{made.stdout}{made.stderr}")

    def _launch(self) -> None:
        assert self._folder is not None
        (self._folder / "postgres.log").touch()
        places = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self._folder}
        options = [f"--{name}={value}" for name, value in {**self.settings, **places}.items()]
        with (self._folder / "postgres.log").open("ab") as log:
            self._server = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", str(self.data_folder), *options],
                **self._process_options(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for pytest, which then stops the server
            )
        if (
            not wait_until(lambda: self._is_ready() or not self.is_running, START_SECONDS)
            or not self.is_running
        ):
            self.stop("immediate", timeout=20)
            raise PostgresUnavailable(f"Postgres did not start:\n{self.log()[-4000:]}")

    def _is_ready(self) -> bool:
        """Read the last line of the pid file, as `pg_ctl` does; its first line distinguishes a stale file
        from ours.
        """
        try:
            lines = (self.data_folder / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        assert self._server is not None
        return len(lines) >= 8 and lines[0].strip() == str(self._server.pid) and lines[7].strip() == "ready"

    def _process_options(self) -> dict[str, Any]:
        assert self._folder is not None
        kept = {
            name: value for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if (value := os.environ.get(name))
        }
        options: dict[str, Any] = {"env": {**kept, "LC_ALL": "C"}, "cwd": self._folder}
        return options | (self._account.subprocess_options() if self._account else {})
