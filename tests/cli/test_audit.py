"""`easel audit verify`: its output and exit codes, also while a server is writing to the chain."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING

import httpx2
import pytest

from easel.cli import audit
from tests.cli.commands import assert_refused, invoke_easel
from tests.requirements import rule
from tests.support.postgres import create_database, drop_database, execute
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIGN_INS = 12
CHECKPOINT = re.compile(r"^Checkpoint: (\d+:[0-9a-f]{64})$", re.MULTILINE)


def sign_in(server: EaselProcess, times: int = SIGN_INS) -> None:
    """Sign in often, which writes audit records."""
    with httpx2.Client(base_url=server.base_url, timeout=30) as browser:
        for _ in range(times):
            assert browser.get("/", params={"token": server.token}).status_code == 303


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield ""
        return
    postgres: str = request.getfixturevalue("postgres")
    created = create_database(postgres)
    yield created
    drop_database(postgres, created.rpartition("/")[2])


@pytest.fixture
def launcher(url: str, tmp_path: Path) -> Iterator[Launcher]:
    # Slow requests are not recorded, so that the number of records is known.
    with Launcher(tmp_path / "easel", url, {"DRAIN_SECONDS": "0.2", "SLOW_SECONDS": "1000"}) as launcher:
        yield launcher


def variables_of(launcher: Launcher) -> dict[str, str]:
    return {"DATA": str(launcher.folder / "data"), "DATABASE_URL": launcher.database_url or ""}


def execute_sql(launcher: Launcher, sql: str) -> None:
    if launcher.database_url:
        execute(launcher.database_url, sql)
    else:
        with sqlite3.connect(launcher.folder / "data" / "easel.db") as connection:
            connection.execute(sql)
        connection.close()


@rule("CC-06")
def test_intact_chain_is_verified_while_a_server_runs_and_afterwards(launcher: Launcher) -> None:
    server = launcher.up()
    server.wait_ready()
    sign_in(server)
    while_running = invoke_easel("audit", "verify", **variables_of(launcher))
    assert while_running.returncode == 0, while_running.stderr
    assert f"The audit chain is intact: {SIGN_INS} records." in while_running.stdout
    assert server.answers("/readyz") == 200
    server.terminate(30)
    afterwards = invoke_easel("audit", "verify", **variables_of(launcher))
    assert afterwards.returncode == 0
    assert afterwards.stdout == while_running.stdout
    checkpoint = CHECKPOINT.search(afterwards.stdout)
    assert checkpoint
    again = invoke_easel("audit", "verify", "--known", checkpoint[1], **variables_of(launcher))
    assert again.returncode == 0, again.stdout


TAMPERINGS = [
    ("update audit set record = replace(record, 'owner', 'mallory') where seq = 5", 5),
    ("delete from audit where seq = 7", 7),
    (f"delete from audit where seq = {SIGN_INS}", SIGN_INS),
]


@rule("CC-06")
def test_broken_chain_is_reported_with_its_record_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, launcher: Launcher
) -> None:
    server = launcher.up()
    server.wait_ready()
    sign_in(server)
    server.terminate(30)
    monkeypatch.setattr(audit, "PROGRESS_SECONDS", 0.0)
    intact = invoke_easel("audit", "verify", **variables_of(launcher))
    assert f"{SIGN_INS} of {SIGN_INS} records verified" in intact.stderr
    checkpoint = CHECKPOINT.search(intact.stdout)
    assert checkpoint
    for sql, seq in reversed(TAMPERINGS):
        execute_sql(launcher, sql)
        done = invoke_easel("audit", "verify", **variables_of(launcher))
        assert done.returncode == 1, done.stdout
        assert done.stdout.startswith(f"BROKEN at record {seq}: ")
        assert "intact" not in done.stdout
    execute_sql(launcher, "delete from audit")
    execute_sql(launcher, "update audit_head set last_seq = 0, last_hash = ''")
    empty = invoke_easel("audit", "verify", **variables_of(launcher))
    assert (empty.returncode, empty.stdout) == (0, "The audit chain is intact: 0 records.\n")
    emptied = invoke_easel("audit", "verify", "--known", checkpoint[1], **variables_of(launcher))
    assert emptied.returncode == 1
    assert emptied.stdout.startswith("BROKEN")


def test_missing_or_old_database_and_invalid_checkpoint_are_refused(tmp_path: Path) -> None:
    data = str(tmp_path)
    assert_refused(invoke_easel("audit", "verify", DATA=data), str(tmp_path / "easel.db"), "--data")
    assert not (tmp_path / "easel.db").exists(), "verifying creates no database"
    assert_refused(invoke_easel("audit", "verify", "--known", "12", DATA=data), "SEQ:HASH")
    (tmp_path / "easel.db").touch()
    assert_refused(invoke_easel("audit", "verify", DATA=data), "easel migrate")
