"""The Postgres launcher: servers start, fail and come back as asked, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.support import postgres_shared
from tests.support.postgres import Postgres, create_database, drop_database, execute
from tests.support.postgres_binaries import (
    PostgresUnavailable,
    copy_binaries,
    find_binaries,
    major_version,
    wheel_folders,
)
from tests.support.postgres_guard import command_of, postmaster_of, wait_until
from tests.support.postgres_shared import PROJECT, shared_server, wait_for_shared_server_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator

GONE_SECONDS = 60.0  # a guard waits for its server to stop, and the machine may be busy
ONE_ROW = "create table kept (n int); insert into kept values (1)"


def processes_naming(text: str) -> list[int]:
    """Return the processes whose command line has this text: the server and its guard both name
    their folder.
    """
    pids = subprocess.run(
        ["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=True
    ).stdout.split()
    return [int(pid) for pid in pids if text in command_of(int(pid))]


def is_gone(folder: Path) -> bool:
    return not folder.exists() and not processes_naming(str(folder))


def owner_of(pid: int) -> int:
    return int(
        subprocess.run(
            ["ps", "-o", "uid=", "-p", str(pid)], capture_output=True, text=True, check=True
        ).stdout
    )


def test_server_starts_serves_and_leaves_nothing_behind() -> None:
    with Postgres() as server:
        folder = server.data_folder.parent
        assert server.is_running
        assert owner_of(server.pid) != 0
        assert postmaster_of(server.data_folder) == server.pid
        assert server.execute(
            "select current_setting('fsync') as fsync, current_setting('listen_addresses') as listens"
        ) == [{"fsync": "on", "listens": "127.0.0.1"}]
        # The server and its guard. A child process of the server has its command line for a moment.
        assert wait_until(lambda: len(processes_naming(str(folder))) == 2, GONE_SECONDS)
    assert is_gone(folder)
    server.close()  # a second close is harmless


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server for the tests that stop none."""
    with Postgres(
        fsync=False, max_connections=7, settings={"work_mem": "3MB", "deadlock_timeout": 250}
    ) as started:
        yield started


def test_settings_reach_the_server(server: Postgres) -> None:
    shown = {row["name"]: row["setting"] for row in server.execute("select name, setting from pg_settings")}
    assert (shown["fsync"], shown["max_connections"], shown["work_mem"], shown["deadlock_timeout"]) == (
        "off",
        "7",
        "3072",
        "250",
    )
    # A commit that was answered survives `stop("immediate")`, fsync or not.
    assert shown["synchronous_commit"] == "on"


def test_data_and_address_survive_every_kind_of_stop_and_a_frozen_server_can_be_closed() -> None:
    with Postgres() as server:
        folder = server.data_folder.parent
        url = server.create_database("keeps")
        execute(url, ONE_ROW)
        for mode in ("fast", "immediate", "smart"):
            before = server.pid
            server.stop(mode)
            assert not server.is_running
            with pytest.raises(OSError):
                execute(url, "select 1")
            server.start()
            assert server.pid != before
            assert execute(url, "select n from kept") == [{"n": 1}]
        assert (
            server.log().count("database system was not properly shut down") == 1
        )  # `immediate` is a crash, the others are not
        os.kill(server.pid, signal.SIGSTOP)
    assert is_gone(folder)


def test_smart_stop_waits_for_clients_and_reports_them() -> None:
    with Postgres() as server:
        # A client that stays: a backend of another process, for as long as its input is open.
        code = (
            f"import asyncio, asyncpg, sys\nasync def main():\n    connection = await "
            f"asyncpg.connect({server.url()!r}); print(flush=True); sys.stdin.read()\nasyncio.run(main())"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client:
            assert client.stdout is not None
            assert client.stdout.readline(), "it is connected"
            with pytest.raises(subprocess.TimeoutExpired):
                server.stop("smart", timeout=0.3)
            assert server.is_running
            server.stop("fast")
            assert client.stdin is not None
            client.stdin.close()


def test_databases_are_separate_can_be_copied_and_are_dropped_by_force(server: Postgres) -> None:
    first = server.create_database("first")
    execute(first, ONE_ROW)
    copy = server.create_database(template="first")
    assert execute(copy, "select n from kept") == [{"n": 1}]
    odd = server.create_database('odd "name" /')
    assert execute(odd, "select to_regclass('kept') as found") == [{"found": None}]
    server.drop_database('odd "name" /')
    server.drop_database(copy.rpartition("/")[2])
    server.drop_database("was never there")
    names = {row["datname"] for row in server.execute("select datname from pg_database")}
    assert names == {"postgres", "template0", "template1", "first"}


async def test_database_is_dropped_while_a_client_is_connected(postgres: str) -> None:
    url = create_database(postgres)
    connection = await asyncpg.connect(url)
    drop_database(postgres, url.rpartition("/")[2])
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.fetchval("select 1")
    connection.terminate()


def test_wrong_password_is_refused(server: Postgres) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        execute(server.url().replace(":", ":not", 2).replace(":not//", "://"), "select 1")


def test_chosen_data_folder_is_emptied_again() -> None:
    with tempfile.TemporaryDirectory(prefix="easel-chosen-") as chosen:
        Path(chosen).chmod(0o711)
        data = Path(chosen) / "data"
        with Postgres(data_folder=data) as server:
            assert (data / "PG_VERSION").exists()
            assert server.execute("select current_setting('data_directory') as place") == [
                {"place": str(data)}
            ]
        assert list(Path(chosen).iterdir()) == []


def test_server_that_cannot_start_reports_why_and_leaves_nothing() -> None:
    server = Postgres(settings={"no_such_setting": 1})
    with pytest.raises(PostgresUnavailable, match="no_such_setting"), server:
        pass
    assert processes_naming("no_such_setting") == []
    assert server.log() == ""


def test_port_taken_by_another_process_is_left_alone(server: Postgres) -> None:
    second = Postgres(fsync=False)
    second.port = server.port
    with second:
        assert second.port != server.port
        assert second.execute("select 1 as one") == [{"one": 1}]


LAUNCHER = """
import sys
from tests.support.postgres import Postgres
server = Postgres(fsync=False).start()
print(server.data_folder.parent, server.pid, flush=True)
sys.stdin.read()
"""


def test_guard_cleans_up_after_a_killed_launcher() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        folder, pid = launcher.stdout.readline().split()
        assert command_of(int(pid))
        launcher.kill()
    assert wait_until(lambda: is_gone(Path(folder)), GONE_SECONDS)


def test_pid_file_that_names_another_process_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n{tmp_path}\n")
    assert postmaster_of(tmp_path) is None
    assert postmaster_of(tmp_path / "nothing") is None


def test_binaries_of_the_wheel_serve_without_a_system_postgres() -> None:
    folders = list(wheel_folders())
    assert folders, "the test environment carries the wheel"
    with Postgres(fsync=False, binaries=folders[0]) as server:
        version = server.execute("select current_setting('server_version_num')::int / 10000 as major")
        assert version == [{"major": major_version(folders[0])}]


def test_binaries_in_a_private_folder_are_brought_to_the_servers_account(tmp_path: Path) -> None:
    """A clone in root's home: the server's account cannot read the wheel there."""
    tmp_path.chmod(0o700)
    private = copy_binaries(next(wheel_folders()), tmp_path)
    with Postgres(fsync=False, binaries=private) as server:
        assert server.execute("select 1 as one") == [{"one": 1}]


def test_folder_without_postgres_has_version_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EASEL_TEST_POSTGRES_BIN", str(tmp_path))
    with pytest.raises(PostgresUnavailable, match="EASEL_TEST_POSTGRES_BIN"):
        find_binaries()


# --- the shared server --------------------------------------------------------------------------------------


def test_users_share_one_server_and_the_last_one_stops_it(tmp_path: Path) -> None:
    with shared_server(tmp_path) as first:
        with shared_server(tmp_path) as second:
            assert first == second
        assert execute(first, "select 1 as one") == [{"one": 1}]
    wait_for_shared_server_to_end(tmp_path)
    with pytest.raises(OSError):
        execute(first, "select 1")


USER = """
import sys
import tempfile
from pathlib import Path
from tests.support.postgres_shared import shared_server
with shared_server(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


def test_killed_user_releases_the_shared_server(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-c", USER, str(tmp_path)]
        users = [
            stack.enter_context(
                subprocess.Popen(
                    command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(3)
        ]
        urls = {user.stdout.readline() for user in users if user.stdout}
        assert len(urls) == 1
        for user in users:
            user.kill()
    wait_for_shared_server_to_end(tmp_path)
    assert not (tmp_path / postgres_shared.STATE_FILE).exists()
    assert wait_until(lambda: not processes_naming(str(tmp_path)), GONE_SECONDS)


async def test_each_test_gets_an_empty_database(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        assert (
            await connection.fetchval(
                "select count(*) from pg_class where relnamespace = 'public'::regnamespace"
            )
            == 0
        )
    finally:
        await connection.close()
