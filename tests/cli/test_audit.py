"""`easel audit verify` as its users meet it: what it prints, how it ends, and that it can look while others write."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING

import httpx2
import pytest
from typer.testing import CliRunner

from easel.cli import app as cli
from tests.cli.test_cli import easel, refused
from tests.requirements import rule
from tests.support.postgres import create_database, drop_database, execute
from tests.support.processes import EaselProcess, Launcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIGN_INS = 12
END = re.compile(r"^Its end is (\d+):([0-9a-f]{64})$", re.MULTILINE)


def sign_in(server: EaselProcess, times: int = SIGN_INS) -> None:
    """Records, by doing what is recorded."""
    with httpx2.Client(base_url=server.base_url, timeout=30) as browser:
        for _ in range(times):
            assert browser.get("/", params={"token": server.token}).status_code == 303


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield ""
        return
    postgres: str = request.getfixturevalue("postgres")
    made = create_database(postgres)
    yield made
    drop_database(postgres, made.rpartition("/")[2])


@pytest.fixture
def launcher(url: str, tmp_path: Path) -> Iterator[Launcher]:
    # However slow the machine is, there is no record of that beside those that the test makes.
    with Launcher(tmp_path / "easel", url, {"DRAIN_SECONDS": "0.2", "SLOW_SECONDS": "1000"}) as started:
        yield started


def where(launcher: Launcher) -> dict[str, str]:
    return {"DATA": str(launcher.folder / "data"), "DATABASE_URL": launcher.database_url or ""}


def by_hand(launcher: Launcher, sql: str) -> None:
    if launcher.database_url:
        execute(launcher.database_url, sql)
    else:
        with sqlite3.connect(launcher.folder / "data" / "easel.db") as connection:
            connection.execute(sql)
        connection.close()


def test_it_explains_itself_with_an_example() -> None:
    shell = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    help_of_it = shell.invoke(cli.app, ["audit", "verify", "--help"]).output
    assert re.search(r"Example: .*easel audit verify", help_of_it)
    assert "--known" in help_of_it
    assert "audit" in shell.invoke(cli.app, ["--help"]).output
    assert "verify" in shell.invoke(cli.app, ["audit", "--help"]).output


@rule("CC-06")
def test_a_whole_chain_is_told_with_its_end_while_easel_runs_and_after_it(launcher: Launcher) -> None:
    server = launcher.up()
    server.wait_ready()
    sign_in(server)
    while_it_runs = easel("audit", "verify", **where(launcher))
    assert while_it_runs.returncode == 0, while_it_runs.stderr
    assert f"The audit chain is whole: {SIGN_INS} records." in while_it_runs.stdout
    assert server.answers("/readyz") == 200
    server.terminate(30)
    after_it = easel("audit", "verify", **where(launcher))
    assert after_it.returncode == 0
    assert after_it.stdout == while_it_runs.stdout
    end = END.search(after_it.stdout)
    assert end
    again = easel("audit", "verify", "--known", f"{end[1]}:{end[2]}", **where(launcher))
    assert again.returncode == 0, again.stdout


TAMPERINGS = [
    ("update audit set record = replace(record, 'owner', 'mallory') where seq = 5", 5),
    ("delete from audit where seq = 7", 7),
    (f"delete from audit where seq = {SIGN_INS}", SIGN_INS),
]


@rule("CC-06")
def test_a_broken_chain_ends_it_with_one_and_the_place(launcher: Launcher) -> None:
    server = launcher.up()
    server.wait_ready()
    sign_in(server)
    end = END.search(easel("audit", "verify", **where(launcher)).stdout)
    assert end
    server.terminate(30)
    for sql, place in reversed(TAMPERINGS):
        by_hand(launcher, sql)
        done = easel("audit", "verify", **where(launcher))
        assert done.returncode == 1, done.stdout
        assert done.stdout.startswith(f"BROKEN at record {place}: ")
        assert "whole" not in done.stdout
        assert "Traceback" not in done.stderr
    by_hand(launcher, "delete from audit")
    by_hand(launcher, "update audit_head set last_seq = 0, last_hash = ''")
    empty = easel("audit", "verify", **where(launcher))
    assert (empty.returncode, empty.stdout) == (0, "The audit chain is whole: 0 records.\n")
    emptied = easel("audit", "verify", "--known", f"{end[1]}:{end[2]}", **where(launcher))
    assert emptied.returncode == 1
    assert "There is a checkpoint for record" in emptied.stdout


def test_how_far_a_long_check_has_come_is_told(monkeypatch: pytest.MonkeyPatch, launcher: Launcher) -> None:
    server = launcher.up()
    server.wait_ready()
    sign_in(server)
    monkeypatch.setattr(cli, "TELL_SECONDS", 0.0)
    variables = {f"EASEL_{name}": value for name, value in where(launcher).items()}
    done = CliRunner(env=variables).invoke(cli.app, ["audit", "verify"])
    assert done.exit_code == 0, done.output
    assert f"{SIGN_INS} of {SIGN_INS} records, whole so far" in done.stderr


def test_what_cannot_be_verified_is_refused_in_one_sentence(tmp_path: Path) -> None:
    refused(easel("audit", "verify", DATA=str(tmp_path)), str(tmp_path / "easel.db"), "--data")
    assert not (tmp_path / "easel.db").exists(), "looking makes nothing"
    refused(easel("audit", "verify", "--known", "12", DATA=str(tmp_path)), "SEQ:HASH")
    sqlite3.connect(tmp_path / "easel.db").close()
    (tmp_path / "easel.db").touch()
    refused(easel("audit", "verify", DATA=str(tmp_path)), "easel migrate")
