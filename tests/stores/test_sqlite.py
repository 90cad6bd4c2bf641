"""Behaviour of SQLite alone: one process, one writer with group commit, concurrent readers, disk failures."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from easel.core.run.status import Status
from easel.errors import BadSettings, Unavailable
from easel.ids import OWNER, RunId, SessionId
from easel.stores.sqlite import SqliteDatabase, executor, open_sqlite
from tests.requirements import case, rule
from tests.stores.harness import (
    TIMEOUT_SECONDS,
    assert_stored,
    delta_batch,
    event_types,
    get_run,
    new_run,
    read_log,
    sqlite_at,
    start_run,
    start_runs,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PROJECT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def busy_writer(database: SqliteDatabase) -> AsyncIterator[None]:
    """Keep the writer inside a transaction; writes submitted in the block wait for the next one."""
    started, may_end = threading.Event(), threading.Event()

    def work(_: sqlite3.Connection) -> None:
        started.set()
        may_end.wait(TIMEOUT_SECONDS)

    busy = asyncio.create_task(database.write(work))
    try:
        assert await asyncio.to_thread(started.wait, TIMEOUT_SECONDS)
        yield
    finally:
        may_end.set()
        await busy


def count(connection: sqlite3.Connection, table: str) -> int:
    return connection.execute(f"select count(*) from {table}").fetchall()[0][0]


def add_user(name: str) -> Any:
    return lambda connection: connection.execute(
        "insert into accounts (account_id) values (?)", (name,)
    ).fetchall()


# --- the writer ---------------------------------------------------------------------------------------------


async def test_pending_writes_share_one_commit(database: SqliteDatabase) -> None:
    claims = await start_runs(database.runs, *(new_run(f"s{nth}") for nth in range(200)))
    before = database.commits
    async with busy_writer(database):
        appends = asyncio.gather(*(database.runs.append(delta_batch(claim, 1, "x")) for claim in claims))
        await asyncio.sleep(0)  # all are queued now
    assert [assert_stored(answer).last_seq for answer in await appends] == [1] * 200
    assert database.commits == before + 2, "the running transaction, and one for all two hundred"


async def test_concurrent_writers_need_far_fewer_commits_than_writes(database: SqliteDatabase) -> None:
    claims = await start_runs(database.runs, *(new_run(f"s{nth}") for nth in range(32)))
    before = database.commits

    async def write(claim: Any) -> None:
        for number in range(1, 21):
            assert_stored(await database.runs.append(delta_batch(claim, number, "x")))

    await asyncio.gather(*map(write, claims))
    assert database.commits - before < 32 * 20 / 4


async def test_failed_write_is_rolled_back_without_the_others(database: SqliteDatabase) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        add_user("half-done")(connection)
        raise LookupError("no")

    before = database.commits
    async with busy_writer(database):
        pending = asyncio.gather(
            database.write(add_user("first")),
            database.write(fails),
            database.write(add_user("first")),
            database.write(add_user("last")),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    answers = await pending
    assert [type(answer) for answer in answers] == [list, LookupError, sqlite3.IntegrityError, list]
    assert database.commits == before + 2
    names = await database.read(
        lambda connection: [
            row["account_id"]
            for row in connection.execute("select account_id from accounts order by account_id").fetchall()
        ]
    )
    assert names == ["first", "last", "owner"]


async def test_write_returns_after_the_commit(database: SqliteDatabase) -> None:
    started, may_end = threading.Event(), threading.Event()

    def blocks(_: sqlite3.Connection) -> None:
        started.set()
        may_end.wait(TIMEOUT_SECONDS)

    async with busy_writer(database):
        first, second = (
            asyncio.create_task(database.write(add_user("guest"))),
            asyncio.create_task(database.write(blocks)),
        )
        await asyncio.sleep(0)
    assert await asyncio.to_thread(started.wait, TIMEOUT_SECONDS)
    # The first write is done, but its transaction is kept open by the second.
    assert await database.read(lambda connection: count(connection, "accounts")) == 1
    assert not first.done()
    may_end.set()
    await asyncio.gather(first, second)
    assert await database.read(lambda connection: count(connection, "accounts")) == 2


async def test_reads_succeed_during_a_write_transaction(database: SqliteDatabase) -> None:
    claim = await start_run(database.runs)
    async with busy_writer(database), asyncio.timeout(TIMEOUT_SECONDS):
        assert (await get_run(database.runs, claim.run_id)).status is Status.RUNNING
        assert await database.runs.heads([claim.run_id]) == {claim.run_id: 0}


async def test_long_read_does_not_delay_other_reads(database: SqliteDatabase) -> None:
    started, may_end = threading.Event(), threading.Event()

    def blocks(_: sqlite3.Connection) -> None:
        started.set()
        may_end.wait(TIMEOUT_SECONDS)

    long = asyncio.create_task(database.read(blocks))
    assert await asyncio.to_thread(started.wait, TIMEOUT_SECONDS)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await database.runs.probe()
        assert await database.read(lambda connection: count(connection, "probes")) == 1
    may_end.set()
    await long


async def test_write_of_a_cancelled_caller_is_committed(database: SqliteDatabase) -> None:
    claim = await start_run(database.runs)
    async with busy_writer(database):
        pending = asyncio.create_task(database.runs.append(delta_batch(claim, 1, "x")))
        await asyncio.sleep(0)
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
    assert assert_stored(await database.runs.append(delta_batch(claim, 2, "y"))).last_seq == 2


async def test_write_beyond_the_queue_limit_is_unavailable(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "MAX_PENDING_JOBS", 5)
    async with busy_writer(database):
        queued = asyncio.gather(*(database.write(add_user(f"u{nth}")) for nth in range(4)))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await database.write(add_user("too-many"))
    await queued
    await database.write(add_user("below-the-limit"))


async def test_reader_cannot_write(database: SqliteDatabase) -> None:
    with pytest.raises(Unavailable):
        await database.read(add_user("sneaky"))
    assert await database.read(lambda connection: count(connection, "accounts")) == 1


# --- durability ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pending, pragma", [("full", 2), ("normal", 1)])
async def test_writer_uses_the_configured_synchronous_mode(path: Path, pending: str, pragma: int) -> None:
    async with sqlite_at(path, synchronous=pending) as database:

        def settings(connection: sqlite3.Connection) -> list[Any]:
            return [
                connection.execute(f"pragma {name}").fetchall()[0][0]
                for name in ("synchronous", "journal_mode", "foreign_keys")
            ]

        assert await database.write(settings) == [pragma, "wal", 1]


async def test_unknown_synchronous_mode_is_refused(path: Path) -> None:
    with pytest.raises(BadSettings, match="full or normal, not 'off'"):
        await open_sqlite(path, synchronous="off")


async def test_close_finishes_queued_writes_and_checkpoints_the_wal(path: Path) -> None:
    database = await open_sqlite(path)
    await database.migrate()
    async with busy_writer(database):
        pending = [asyncio.create_task(database.runs.enqueue(new_run(f"s{nth}"))) for nth in range(50)]
        await asyncio.sleep(0)
        closing_task = asyncio.create_task(database.close())
        await asyncio.sleep(0)
    await closing_task
    assert all(task.done() for task in pending)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["easel.db", "easel.lock"]
    with pytest.raises(Unavailable):
        await database.runs.probe()
    await database.close()
    async with sqlite_at(path) as again:
        assert (await again.runs.queue_depth()).ready == 50


WRITES_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from tests.stores.harness import *

async def main():
    database = await open_sqlite(Path(sys.argv[1]))
    await database.migrate()
    claims = await start_runs(database.runs, *(new_run(f"s{nth}") for nth in range(4)))

    async def write(claim):
        for number in range(1, 1_000_000):
            answer = assert_stored(await database.runs.append(delta_batch(claim, number, "x", "y")))
            print(claim.run_id, answer.last_seq, flush=True)

    await asyncio.gather(*map(write, claims))

asyncio.run(main())
"""


@contextmanager
def writing_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that appends to the same file as fast as it can and prints what was acknowledged."""
    child = subprocess.Popen(
        [sys.executable, "-c", WRITES_UNTIL_KILLED, str(path)], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait(TIMEOUT_SECONDS)
        assert child.stdout is not None
        child.stdout.close()


@case("D1")
@rule("RX-01")
async def test_acknowledged_writes_survive_kill_9(path: Path) -> None:
    acknowledged: dict[RunId, int] = {}
    with writing_process(path) as child:
        assert child.stdout is not None
        for _ in range(400):
            run_id, last_seq = child.stdout.readline().split()
            acknowledged[RunId(run_id)] = int(last_seq)
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:
            if line.endswith("\n"):
                run_id, last_seq = line.split()
                acknowledged[RunId(run_id)] = int(last_seq)
    async with sqlite_at(path) as database:
        assert len(acknowledged) == 4
        for run_id, last_seq in acknowledged.items():
            run = await get_run(database.runs, run_id)
            assert run.last_seq >= last_seq
            assert [event.seq for event in await read_log(database.runs, run_id)] == list(
                range(1, run.last_seq + 1)
            )


@rule("RS-50")
async def test_second_process_is_refused_with_the_id_of_the_first(path: Path) -> None:
    with writing_process(path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(
            BadSettings,
            match=rf"in use by process {child.pid},.*several processes need Postgres: set EASEL_DATABASE_URL",
        ):
            await open_sqlite(path)
    async with sqlite_at(path) as database:  # a killed process holds no lock
        await database.runs.probe()


async def test_second_opening_in_the_same_process_is_refused(database: SqliteDatabase, path: Path) -> None:
    with pytest.raises(BadSettings, match=f"process {os.getpid()}"):
        await open_sqlite(path)
    await database.runs.probe()


async def test_files_are_readable_by_their_owner_only(path: Path) -> None:
    async with sqlite_at(path) as database:
        await database.runs.probe()
        assert path.parent.stat().st_mode & 0o777 == 0o700
        modes = {entry.name: entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()}
    assert modes == dict.fromkeys(["easel.db", "easel.db-shm", "easel.db-wal", "easel.lock"], 0o600)


# --- failures of the disk ----------------------------------------------------------------------------------


@contextmanager
def full_disk() -> Iterator[None]:
    """Let writes beyond the first 4 KB of any file fail, so that no page fits into the WAL."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@case("D5")
async def test_full_disk_refuses_writes_allows_reads_and_recovers(database: SqliteDatabase) -> None:
    runs = database.runs
    claim = await start_run(runs)
    assert_stored(await runs.append(delta_batch(claim, 1, "kept")))
    before = await get_run(runs, claim.run_id)
    with full_disk():
        for _ in range(3):
            answers = await asyncio.gather(
                runs.append(delta_batch(claim, 2, "lost")),
                runs.enqueue(new_run("lost")),
                runs.probe(),
                return_exceptions=True,
            )
            assert [type(answer) for answer in answers] == [Unavailable] * 3, answers
        assert await get_run(runs, claim.run_id) == before
        assert await event_types(runs, claim.run_id) == ["message.delta"]
    await runs.probe()
    assert assert_stored(await runs.append(delta_batch(claim, 2, "found"))).last_seq == 2
    assert await runs.list_runs(OWNER, session_id=SessionId("lost"), statuses=[], before=None, limit=5) == []


async def test_file_locked_by_another_program_is_unavailable_until_unlocked(path: Path) -> None:
    async with sqlite_at(path, busy_seconds=0.05) as database:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        with pytest.raises(Unavailable):
            await database.runs.probe()
        other.execute("rollback")
        other.close()
        await database.runs.probe()


async def test_failed_read_is_unavailable_and_the_next_one_succeeds(
    database: SqliteDatabase, path: Path
) -> None:
    def fails(_: sqlite3.Connection) -> None:
        sqlite3.connect(path.parent / "none" / "none.db")

    with pytest.raises(Unavailable) as refused:
        await database.read(fails)
    assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
    assert await database.read(lambda connection: count(connection, "accounts")) == 1


async def test_faulty_statement_is_not_reported_as_unavailable(database: SqliteDatabase) -> None:
    for run in (database.read, database.write):
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await run(lambda connection: count(connection, "missing"))


def test_file_that_is_not_a_database_is_refused_and_unchanged(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database")
    with pytest.raises(BadSettings, match="is not a SQLite database"):
        asyncio.run(open_sqlite(path))
    assert path.read_text() == "not a database"
