"""`easel doctor`: each check finds its problem, and none changes anything."""

from __future__ import annotations

import contextlib
import http.server
import re
import sqlite3
import threading
from typing import TYPE_CHECKING, ClassVar

import pytest

from easel.stores import migrations
from easel.stores.migrations import Migration
from tests.cli.commands import SECRET, invoke_easel
from tests.support.postgres import create_database, drop_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def test_all_checks_pass_in_an_empty_folder(tmp_path: Path) -> None:
    done = invoke_easel("doctor", DATA=str(tmp_path), PORT="0")
    assert done.returncode == 0, done.stdout
    assert "fail" not in done.stdout
    for name in ("Python", "Data folder", "Owner's token", "Port", "Database", "Blobs"):
        assert f"ok   {name}: " in done.stdout


def test_doctor_creates_nothing_and_names_no_missing_file(tmp_path: Path) -> None:
    done = invoke_easel("doctor", DATA=str(tmp_path / "easel"), PORT="0")
    assert done.returncode == 0, done.stdout
    assert contents(tmp_path) == {}
    assert "owner-token" not in done.stdout
    assert "ok   Database: SQLite, does not exist yet" in done.stdout


def test_unknown_setting_is_a_warning(tmp_path: Path) -> None:
    done = invoke_easel("doctor", DATABSE_URL="x", DATA=str(tmp_path), PORT="0")
    assert "warn EASEL_DATABSE_URL: unknown setting; did you mean EASEL_DATABASE_URL?" in done.stdout
    assert done.returncode == 0


def test_old_database_is_a_warning_and_is_not_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke_easel("migrate", DATA=str(tmp_path)).returncode == 0
    before = contents(tmp_path)
    ours = migrations.available("sqlite")
    monkeypatch.setattr(migrations, "available", lambda _: [*ours, Migration(2, "moods", "")])
    done = invoke_easel("doctor", DATA=str(tmp_path), PORT="0")
    assert "warn Database: SQLite, schema version 1; the next start migrates it to 2." in done.stdout
    assert contents(tmp_path) == before
    assert done.returncode == 0, done.stdout


def test_database_of_another_development_version_fails_and_is_not_changed(tmp_path: Path) -> None:
    assert invoke_easel("migrate", DATA=str(tmp_path)).returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "easel.db")) as database:
        database.execute("update schema_migrations set name = 'spine'")
        database.commit()
    before = contents(tmp_path)
    done = invoke_easel("doctor", DATA=str(tmp_path), PORT="0")
    assert "fail Database: " in done.stdout
    for command in (["up"], ["migrate"], ["token", "list"], ["audit", "verify"]):
        refused = invoke_easel(*command, DATA=str(tmp_path), PORT="0")
        assert refused.returncode != 0, command
        assert "its migration 0001 spine differs from this version's 0001 schema" in refused.stderr, command
        assert "`easel canvas export`" in refused.stderr
    assert contents(tmp_path)[str(tmp_path / "easel.db")] == before[str(tmp_path / "easel.db")]


def test_postgres_is_inspected_and_not_changed(
    tmp_path: Path, postgres: str, request: pytest.FixtureRequest
) -> None:
    url = create_database(postgres)
    request.addfinalizer(lambda: drop_database(postgres, url.rpartition("/")[2]))
    for _ in range(2):
        done = invoke_easel("doctor", DATA=str(tmp_path), PORT="0", DATABASE_URL=url)
        assert "empty; the first start creates its tables" in done.stdout, done.stdout
    invoke_easel("migrate", DATA=str(tmp_path), DATABASE_URL=url)
    migrated = invoke_easel("doctor", DATA=str(tmp_path), PORT="0", DATABASE_URL=url).stdout
    expected = r"ok   Database: Postgres at 127\.0\.0\.1:\d+, schema version \d+, writable$"
    assert re.search(expected, migrated, re.MULTILINE), migrated
    missing = invoke_easel("doctor", DATA=str(tmp_path), PORT="0", DATABASE_URL=url + "_missing").stdout
    assert re.search(r"fail Database: Postgres at 127\.0\.0\.1:\d+: .*does not exist", missing), missing


def test_unreachable_database_fails_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://u:{SECRET}@127.0.0.1:1/d"
    done = invoke_easel("doctor", DATA=str(tmp_path), PORT="0", DATABASE_URL=url)
    expected = "fail Database: The database at 127.0.0.1:1 is unavailable (connection refused); start it"
    assert expected in done.stdout
    assert SECRET not in done.stdout + done.stderr
    unescaped = "postgresql://u:half/whole@127.0.0.1:1/d"
    done = invoke_easel("doctor", DATA=str(tmp_path), PORT="0", DATABASE_URL=unescaped)
    assert "fail Database: " in done.stdout
    assert "whole" not in done.stdout


class _OtherProgram(http.server.BaseHTTPRequestHandler):
    """Another program on the port, which answers every request."""

    headers_received: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.headers_received.append(dict(self.headers))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass


@pytest.fixture
def taken_port() -> Iterator[str]:
    """The port of another program."""
    with http.server.HTTPServer(("127.0.0.1", 0), _OtherProgram) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        yield str(other.server_port)
        other.shutdown()
        thread.join()


def test_other_program_on_the_port_fails_and_gets_no_token(tmp_path: Path, taken_port: str) -> None:
    done = invoke_easel("doctor", DATA=str(tmp_path), PORT=taken_port, TOKEN="a-token-of-some-length")
    assert "fail Port: Port" in done.stdout
    assert done.returncode == 1
    assert _OtherProgram.headers_received
    assert not any("Authorization" in headers for headers in _OtherProgram.headers_received)


def test_every_failed_check_is_printed(taken_port: str) -> None:
    done = invoke_easel(
        "doctor",
        DATA="/dev/null/easel",
        PORT=taken_port,
        TOKEN="short",
        DATABASE_URL=f"postgresql://u:{SECRET}@127.0.0.1:1/d",
        BLOB_URL="ftp://x",
    )
    assert done.returncode == 1
    assert SECRET not in done.stdout + done.stderr
    for name in ("Data folder", "Owner's token", "Port", "Database", "Blobs"):
        assert f"fail {name}: " in done.stdout, done.stdout


def test_unusable_data_folder_fails_the_database_check() -> None:
    done = invoke_easel("doctor", DATA="/dev/null/easel", PORT="0")
    assert done.returncode == 1, done.stderr
    assert "fail Database" in done.stdout
