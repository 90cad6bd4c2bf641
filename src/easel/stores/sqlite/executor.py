"""Threads that run SQLite statements, so that no statement blocks the event loop.

There is one writer thread with group commit, and reader threads that neither wait for the writer nor delay
it. Owns the order of jobs, the connections of the threads, and how failures are reported. Knows no table.
"""

import asyncio
import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import structlog

from easel.errors import Unavailable
from easel.stores.sqlite.connection import is_transient

Answer = TypeVar("Answer")
Work = Callable[[sqlite3.Connection], Answer]

MAX_PENDING_JOBS = 10_000  # more are refused at once: the disk is too slow for them
CLOSE_SECONDS = 30.0  # maximum wait for a thread to finish its queued jobs

log = structlog.get_logger("sqlite")


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work[Any]
    answer: "asyncio.Future[Any]"


@dataclass(frozen=True, slots=True)
class _Outcome:
    job: _Job
    value: Any = None
    problem: BaseException | None = None


class _Executor(ABC):
    """Accepts jobs on the event loop, runs them in threads, and sets their results on the event loop."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection], threads: int) -> None:
        self._name = name
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._pending_count = 0
        self._is_closed = False
        # Daemon threads: the program may exit without closing the database, as answered writes are committed.
        self._threads = [
            Thread(target=self._serve, name=f"sqlite-{name}", daemon=True) for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Work[Answer]) -> Answer:
        """Run `work` in a thread and return its result. Cancelling the caller does not cancel the work."""
        if self._is_closed or self._pending_count >= MAX_PENDING_JOBS:
            raise Unavailable(what="The database")
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._pending_count += 1
        self._jobs.put(_Job(work, answer))
        return await answer

    async def close(self) -> None:
        """Finish all queued jobs, then end the threads."""
        if self._is_closed:
            return
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join, CLOSE_SECONDS)

    @abstractmethod
    def _serve(self) -> None:
        """Run jobs in this thread until None is taken from the queue."""

    def _report(self, outcomes: Sequence[_Outcome]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed, so no caller waits
            self._loop.call_soon_threadsafe(self._settle, outcomes)

    def _settle(self, outcomes: Sequence[_Outcome]) -> None:
        self._pending_count -= len(outcomes)
        for outcome in outcomes:
            answer = outcome.job.answer
            if answer.done():
                continue  # the caller was cancelled
            if outcome.problem is not None:
                answer.set_exception(outcome.problem)
            else:
                answer.set_result(outcome.value)


class _ThreadConnection:
    """The connection of one thread: opened at first use, and reopened after a transient failure."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._connect = connect
        self._open: sqlite3.Connection | None = None
        self._is_failing = False

    def get(self) -> sqlite3.Connection:
        if self._open is None:
            self._open = self._connect()
        return self._open

    def note_success(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.info("database.available", executor=self._name)

    def discard(self, problem: sqlite3.Error) -> None:
        """Close the connection after a failure. Only the first of consecutive failures is logged."""
        if not self._is_failing:
            self._is_failing = True
            log.error(
                "database.unavailable",
                executor=self._name,
                problem=str(problem),
                code=getattr(problem, "sqlite_errorname", None),
            )
        self.close()

    def close(self) -> None:
        if self._open is not None:
            with contextlib.suppress(sqlite3.Error):  # closing rolls back an open transaction
                self._open.close()
            self._open = None


def _unavailable(cause: BaseException) -> Unavailable:
    problem = Unavailable(what="The database")
    problem.__cause__ = cause
    return problem


class ReaderThreads(_Executor):
    """Threads with a connection each. A job sees all transactions committed before it started."""

    def _serve(self) -> None:
        connection = _ThreadConnection(self._name, self._connect)
        while (job := self._jobs.get()) is not None:
            self._report([self._read(connection, job)])
        connection.close()

    def _read(self, connection: _ThreadConnection, job: _Job) -> _Outcome:
        try:
            value = job.work(connection.get())
        except sqlite3.Error as problem:
            if not is_transient(problem):
                return _Outcome(job, problem=problem)
            connection.discard(problem)
            return _Outcome(job, problem=_unavailable(problem))
        except Exception as problem:  # noqa: BLE001 - raised again in the caller
            return _Outcome(job, problem=problem)
        connection.note_success()
        return _Outcome(job, value)


class WriterThread(_Executor):
    """One thread with one transaction at a time. All pending jobs share the next transaction and its fsync.

    A single job is committed at once; under load, many jobs are committed together. Each of them has a
    savepoint, so that a failed job is rolled back without the others. Results are set after the commit.
    """

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self.commits = 0
        super().__init__(name, connect, threads=1)

    def _serve(self) -> None:
        connection = _ThreadConnection(self._name, self._connect)
        is_closing = False
        while not is_closing:
            jobs, is_closing = self._take_all()
            if jobs:
                self._report(self._transact(connection, jobs))
                jobs.clear()  # while the thread waits, it must not keep the results of the last batch
        with contextlib.suppress(sqlite3.Error):
            # Copy the WAL into the file. If that fails, the next start reads the WAL.
            connection.get().execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.close()

    def _take_all(self) -> tuple[list[_Job], bool]:
        """Wait for a job and take all pending jobs. Returns them, and whether to close afterwards."""
        jobs: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return jobs, False
        return jobs, True

    def _transact(self, opened: _ThreadConnection, jobs: Sequence[_Job]) -> list[_Outcome]:
        try:
            connection = opened.get()
            connection.execute("begin immediate")
            outcomes = (
                [_run_in_savepoint(connection, job) for job in jobs]
                if len(jobs) > 1
                else [_run_alone(connection, jobs[0])]
            )
            if connection.in_transaction:
                connection.execute("commit")
        except sqlite3.Error as problem:
            opened.discard(problem)
            return [_Outcome(job, problem=_unavailable(problem)) for job in jobs]
        opened.note_success()
        self.commits += 1
        return outcomes


def _run_in_savepoint(connection: sqlite3.Connection, job: _Job) -> _Outcome:
    connection.execute("savepoint job")
    try:
        outcome = _Outcome(job, job.work(connection))
    except Exception as problem:
        if is_transient(problem):
            raise
        connection.execute("rollback to job")
        outcome = _Outcome(job, problem=problem)
    connection.execute("release job")
    return outcome


def _run_alone(connection: sqlite3.Connection, job: _Job) -> _Outcome:
    """Run the only job of a transaction. It needs no savepoint: a failure rolls back the transaction."""
    try:
        return _Outcome(job, job.work(connection))
    except Exception as problem:
        if is_transient(problem):
            raise
        connection.execute("rollback")
        return _Outcome(job, problem=problem)
