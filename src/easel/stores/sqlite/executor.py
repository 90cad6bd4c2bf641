"""Lanes between the event loop and SQLite: threads that own connections, so that no statement ever blocks the loop.

One write lane with group commit, and read lanes beside it that neither wait for the writer nor hold it up. Owns who runs
when, and what happens to the others when one piece of work fails or the disk does. Knows no table.
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
from easel.stores.sqlite.connection import is_passing

Answer = TypeVar("Answer")
Work = Callable[[sqlite3.Connection], Answer]

MAX_WAITING = 10_000  # more than that and the disk does not keep up: who asks is told at once instead of waiting in vain
CLOSE_SECONDS = 30.0  # how long a thread may take to end what it began

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


class _Lane(ABC):
    """Takes work on the loop, does it in threads, answers on the loop."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection], threads: int) -> None:
        self._name = name
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._waiting = 0
        self._is_closed = False
        # Daemons: a program that ends without closing its database loses nothing that was answered.
        self._threads = [
            Thread(target=self._serve, name=f"sqlite-{name}", daemon=True) for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def do(self, work: Work[Answer]) -> Answer:
        """Cancelling the wait does not undo the work: it belongs to the lane."""
        if self._is_closed or self._waiting >= MAX_WAITING:
            raise Unavailable(what="The database")
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting += 1
        self._jobs.put(_Job(work, answer))
        return await answer

    async def close(self) -> None:
        """Ends after all work that was asked for before."""
        if self._is_closed:
            return
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join, CLOSE_SECONDS)

    @abstractmethod
    def _serve(self) -> None:
        """What each thread does until it takes None from the queue."""

    def _tell(self, outcomes: Sequence[_Outcome]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, outcomes)

    def _settle(self, outcomes: Sequence[_Outcome]) -> None:
        self._waiting -= len(outcomes)
        for outcome in outcomes:
            answer = outcome.job.answer
            if answer.done():
                continue  # who asked has stopped waiting
            if outcome.problem is not None:
                answer.set_exception(outcome.problem)
            else:
                answer.set_result(outcome.value)


class _Held:
    """A thread's own connection: opened when needed, given up when the disk or the file fails, so that it mends itself."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._connect = connect
        self._open: sqlite3.Connection | None = None
        self._is_lost = False

    def get(self) -> sqlite3.Connection:
        if self._open is None:
            self._open = self._connect()
        return self._open

    def works(self) -> None:
        if self._is_lost:
            self._is_lost = False
            log.info("database.back", lane=self._name)

    def lost(self, problem: sqlite3.Error) -> None:
        if not self._is_lost:
            self._is_lost = True
            log.error(
                "database.lost",
                lane=self._name,
                problem=str(problem),
                code=getattr(problem, "sqlite_errorname", None),
            )
        self.close()

    def close(self) -> None:
        if self._open is not None:
            with contextlib.suppress(sqlite3.Error):  # closing rolls back what was begun
                self._open.close()
            self._open = None


def _unavailable(cause: BaseException) -> Unavailable:
    problem = Unavailable(what="The database")
    problem.__cause__ = cause
    return problem


class ReaderThreads(_Lane):
    """Each thread has a connection of its own; every piece of work sees the last commit before it began."""

    def _serve(self) -> None:
        held = _Held(self._name, self._connect)
        while (job := self._jobs.get()) is not None:
            self._tell([self._once(held, job)])
        held.close()

    def _once(self, held: _Held, job: _Job) -> _Outcome:
        try:
            value = job.work(held.get())
        except sqlite3.Error as problem:
            if not is_passing(problem):
                return _Outcome(job, problem=problem)
            held.lost(problem)
            return _Outcome(job, problem=_unavailable(problem))
        except Exception as problem:  # noqa: BLE001  it belongs to whoever asked, and is raised there
            return _Outcome(job, problem=problem)
        held.works()
        return _Outcome(job, value)


class WriterThread(_Lane):
    """One thread, one transaction at a time: all that is waiting goes into the next one and shares its fsync.

    Alone, a write is committed at once; under load hundreds are committed together. Each has a savepoint, so that one
    that fails leaves nothing behind and harms no other. Nobody is answered before the commit.
    """

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self.commits = 0
        super().__init__(name, connect, threads=1)

    def _serve(self) -> None:
        held = _Held(self._name, self._connect)
        is_ending = False
        while not is_ending:
            jobs, is_ending = self._take_all()
            if jobs:
                self._tell(self._transact(held, jobs))
        with contextlib.suppress(sqlite3.Error):
            # The next start finds one whole file; if this fails the WAL is simply read back.
            held.get().execute("pragma wal_checkpoint(truncate)").fetchall()
        held.close()

    def _take_all(self) -> tuple[list[_Job], bool]:
        """Waits for the first, then takes what else is there; whether the end was among it."""
        jobs: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return jobs, False
        return jobs, True

    def _transact(self, held: _Held, jobs: Sequence[_Job]) -> list[_Outcome]:
        try:
            connection = held.get()
            connection.execute("begin immediate")
            outcomes = (
                [_once(connection, job) for job in jobs] if len(jobs) > 1 else [_alone(connection, jobs[0])]
            )
            if connection.in_transaction:
                connection.execute("commit")
        except sqlite3.Error as problem:
            held.lost(problem)
            return [_Outcome(job, problem=_unavailable(problem)) for job in jobs]
        held.works()
        self.commits += 1
        return outcomes


def _once(connection: sqlite3.Connection, job: _Job) -> _Outcome:
    connection.execute("savepoint job")
    try:
        outcome = _Outcome(job, job.work(connection))
    except Exception as problem:
        if is_passing(problem):
            raise
        connection.execute("rollback to job")
        outcome = _Outcome(job, problem=problem)
    connection.execute("release job")
    return outcome


def _alone(connection: sqlite3.Connection, job: _Job) -> _Outcome:
    """A job that shares its transaction with none needs no savepoint: what it did goes with all of it."""
    try:
        return _Outcome(job, job.work(connection))
    except Exception as problem:
        if is_passing(problem):
            raise
        connection.execute("rollback")
        return _Outcome(job, problem=problem)
