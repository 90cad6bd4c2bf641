"""Runs, their queue and their claims in SQLite. The rules are in the statements of `sql/sqlite/runs.sql`.

Postgres changes several tables in one statement; SQLite needs several statements in one transaction. SQLite
has one writer, so no other write can interleave.
"""

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from easel.core.run.batch import Appended, Batch, CancelAnswer, Enqueued
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status
from easel.core.session.events import CREATED, RENAMED
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope
from easel.core.stream.json_text import to_json
from easel.errors import IdempotencyConflict, TooMany, Unavailable
from easel.ids import AccountId, CanvasId, RunId, WorkerId
from easel.stores import named_sql
from easel.stores.nouns.runs import QUEUE_RETRY_SECONDS, SqlRuns
from easel.stores.nouns.sessions import append_event
from easel.stores.rows.runs import (
    OUTSIDE_THREAD,
    event_columns,
    from_stored_attachments,
    roles_of_run,
    to_run,
    to_stored_attachments,
)
from easel.stores.sqlite import run_log
from easel.stores.sqlite.documents import SQL as DOCUMENTS_SQL
from easel.stores.sqlite.documents import preempt_leases
from easel.stores.sqlite.run_log import (
    Row,
    fence_arguments,
    fetch_all,
    fetch_one,
    is_cancel_requested,
    run_key,
)
from easel.stores.sqlite.statements import SqliteStatements, run_steps
from easel.stores.sqlite.times import microseconds

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SESSIONS_SQL = named_sql.load("sqlite", "sessions")
MAX_ENQUEUE_ATTEMPTS = 5  # while other requests delete the session
PRUNE_BATCH_SIZE = 500  # runs per call of `prune`


class SqliteRuns(SqlRuns):
    def __init__(self, database: "SqliteDatabase", max_account_runs: int = 0) -> None:
        super().__init__(SqliteStatements(database, "runs", "turns"))
        self._database = database
        self._max_runs = max_account_runs

    async def enqueue(self, new: NewRun) -> Enqueued:
        for _ in range(MAX_ENQUEUE_ATTEMPTS):
            enqueued = await self._database.write(
                lambda connection: _enqueue(connection, new, self._max_runs, self._now())
            )
            if enqueued is not None:
                return enqueued
            await self._database.deletions.finish_session(new.account_id, new.session_id)
        raise Unavailable(what="The session")

    async def request_cancel(
        self,
        account_id: AccountId,
        run_id: RunId,
        closing: Sequence[Envelope] | None,
        answer: Message | None = None,
    ) -> CancelAnswer | None:
        return await self._database.write(
            lambda connection: _request_cancel(
                connection, account_id, run_id, Closing(closing, answer, self._max_runs), self._now()
            )
        )

    async def claim_queued(
        self,
        worker_id: WorkerId,
        capacity: int,
        seconds: float,
        after_turn: int,
        opening: Envelope | None = None,
        *,
        prefer_seconds: float = 0,
    ) -> list[Claim]:
        prefers_since = self._now() - microseconds(prefer_seconds)
        claims = await self._claim(
            "claim_queued",
            worker_id,
            seconds,
            opening,
            capacity=max(capacity, 0),
            after_turn=after_turn,
            prefers_since=prefers_since,
        )
        return sorted(claims, key=lambda claim: claim.turn_no)

    async def claim_expired(
        self,
        worker_id: WorkerId,
        capacity: int,
        seconds: float,
        *,
        last_chance: bool | None = None,
        opening: Envelope | None = None,
    ) -> list[Claim]:
        return await self._claim(
            "claim_expired", worker_id, seconds, opening, capacity=max(capacity, 0), last_chance=last_chance
        )

    async def _claim(
        self, name: str, worker_id: WorkerId, seconds: float, opening: Envelope | None, **arguments: Any
    ) -> list[Claim]:
        def work(connection: sqlite3.Connection) -> list[Claim]:
            now = self._now()
            rows = fetch_all(
                connection,
                name,
                worker_id=worker_id,
                now=now,
                **self._lease(seconds),
                opens=int(opening is not None),
                **arguments,
            )
            claims = [_to_claim(connection, worker_id, row) for row in rows]
            if claims and name == "claim_queued":
                fetch_all(connection, "pass_turns", turn_no=max(claim.turn_no for claim in claims))
            if opening is None:
                return claims
            return [_open_log(connection, claim, opening, now) for claim in claims]

        return await self._database.write(work)

    async def claim_unacknowledged(
        self, worker_id: WorkerId, acknowledged: Collection[RunId], seconds: float, *, opened: bool
    ) -> list[Claim]:
        def work(connection: sqlite3.Connection) -> list[Claim]:
            rows = fetch_all(
                connection,
                "claim_unacknowledged",
                worker_id=worker_id,
                acknowledged=list(acknowledged),
                opened=int(opened),
                now=self._now(),
                **self._lease(seconds),
            )
            return [_to_claim(connection, worker_id, row) for row in rows]

        return await self._database.write(work)

    async def renew(self, claims: Sequence[Claim], seconds: float) -> dict[RunId, bool | None]:
        if not claims:
            return {}

        def work(connection: sqlite3.Connection) -> dict[RunId, bool | None]:
            lease = self._lease(seconds)
            rows = (
                fetch_one(connection, "renew_claim", **fence_arguments(claim), **lease) for claim in claims
            )
            return {RunId(row["run_id"]): is_cancel_requested(row) for row in rows if row}

        return await self._database.write(work)

    async def append(self, batch: Batch) -> Appended | None:
        return await self._database.write(
            lambda connection: run_log.append(
                connection,
                batch,
                self._now(),
                self._database.lease_clock(),
                max_versions=self._database.documents.max_versions,
                max_runs=self._max_runs,
            )
        )

    async def give_slots(self) -> int:
        given = 0
        async for account_id in self._slotless_accounts():
            given += await self._database.write(
                lambda connection, of=account_id: run_log.give_slots(
                    connection, of, self._max_runs, self._now()
                )
            )
        return given

    async def prune(self, older_than_seconds: float) -> list[RunId]:
        before = self._now() - microseconds(older_than_seconds)
        old = await self._sql.rows("list_prunable_runs", before=before, limit=PRUNE_BATCH_SIZE)
        remaining = run_ids = [RunId(row["run_id"]) for row in old]
        while remaining:
            remaining = await self._database.write(
                lambda connection, to_trim=remaining: run_log.trim_logs(connection, to_trim)
            )
        return run_ids

    def _now(self) -> int:
        return self._database.clock()

    def _lease(self, seconds: float) -> dict[str, int]:
        """Return the time of the clock of claims, and the expiry of a claim that is made or renewed now."""
        lease_now = self._database.lease_clock()
        return {"lease_now": lease_now, "until": lease_now + microseconds(seconds)}


def _enqueue(connection: sqlite3.Connection, new: NewRun, max_runs: int, now: int) -> Enqueued | None:
    """Store a run and its message. Returns None if the session is deleted and not purged yet."""
    if new.idempotency_key is not None:
        earlier = fetch_one(
            connection, "run_by_key", account_id=new.account_id, idempotency_key=new.idempotency_key
        )
        if earlier is not None:
            if earlier["request_digest"] != new.request_digest:
                raise IdempotencyConflict(what="idempotency key", key=new.idempotency_key)
            return Enqueued(to_run(earlier), is_new=False)
        fetch_all(connection, "release_key", account_id=new.account_id, idempotency_key=new.idempotency_key)
    queued_count = _count_queued(connection, new) if new.max_queued else None
    key = run_key(new)
    question = new.question
    spoken = len(question.deltas) + 1 if question else 0
    listed = {"account_id": new.account_id, "session_id": new.session_id, "title": new.title}
    account_seq: int | None = None
    session = fetch_one(connection, "continue_session", now=now, spoken=spoken, **key)
    if session is None:
        opening = {"title": new.title, "spoken": spoken, "started_by": new.started_by}
        session = fetch_one(connection, "open_session", now=now, **opening, **key)
        if session is None:
            return None
        account_seq = run_steps(connection, SESSIONS_SQL, append_event(CREATED, listed, new.by), now)
    elif session["title"] is None and new.title is not None:
        fetch_all(connection, "title_session", **listed)
        account_seq = run_steps(connection, SESSIONS_SQL, append_event(RENAMED, listed, new.by), now)
    has_turn = bool(session["has_turn"])
    is_ready = has_turn and not max_runs
    stored = fetch_all(
        connection,
        "enqueue_run",
        input_text=new.input_text,
        max_attempts=new.max_attempts,
        idempotency_key=new.idempotency_key,
        request_digest=new.request_digest,
        input_attachments=to_stored_attachments(new.input_attachments),
        started_by=new.started_by,
        started_role=new.started_role.value,
        queue_no=fetch_all(connection, "take_queue_no")[0]["queue_no"],
        is_ready=int(is_ready),
        turn_at=now if is_ready else None,
        preferred_worker=session["last_worker_id"] if is_ready else None,
        waits_for_slot=int(has_turn and not is_ready),
        now=now,
        **key,
    )
    if max_runs:
        run_log.give_slots(connection, new.account_id, max_runs, now)
    prefers: WorkerId | None = stored[0]["preferred_worker"]
    if question is None:
        return Enqueued(
            to_run(stored[0]),
            is_new=True,
            prefers=prefers,
            account_seq=account_seq,
            queued_count=queued_count,
        )
    preempt = preempt_leases(new.account_id, new.session_id, of_run=None, by_run=new.run_id, reason="message")
    preempted = run_steps(connection, DOCUMENTS_SQL, preempt, now)
    thread_seq: int = session["last_thread_seq"]
    run_log.add_question_deltas(connection, new, question, thread_seq, now)
    run_log.add_message(connection, new, question, thread_seq, now)
    run_log.add_references(connection, new, question.refers_to)
    return Enqueued(
        to_run(stored[0]),
        is_new=True,
        thread_seq=thread_seq,
        prefers=prefers,
        preempted=preempted,
        account_seq=account_seq,
        queued_count=queued_count,
    )


def _count_queued(connection: sqlite3.Connection, new: NewRun) -> int:
    """Return how many queued runs the account has with this one. Raises `TooMany` if they are too many."""
    [row] = fetch_all(connection, "count_queued", account_id=new.account_id, limit=new.max_queued)
    if row["queued"] >= new.max_queued:
        raise TooMany.of_account("queued_runs", new.max_queued, QUEUE_RETRY_SECONDS)
    return row["queued"] + 1


class Closing(NamedTuple):
    """The last events of a run that is cancelled while queued, its message in the thread, and the limit of
    runs of its account."""

    events: Sequence[Envelope] | None
    answer: Message | None
    max_runs: int


def _request_cancel(
    connection: sqlite3.Connection, account_id: AccountId, run_id: RunId, closing: Closing, now: int
) -> CancelAnswer | None:
    row = fetch_one(connection, "get_run", account_id=account_id, run_id=run_id)
    if row is None:
        return None
    run = to_run(row)
    if run.is_terminal:
        return CancelAnswer(run, changed=False)
    if run.status is Status.RUNNING:
        flagged = to_run(fetch_all(connection, "flag_cancel", run_id=run_id, now=now)[0])
        preempted = _preempt_run(connection, run, now)
        return CancelAnswer(flagged, changed=run.cancel_requested_at is None, preempted=preempted)
    if closing.events is None:
        return CancelAnswer(run, changed=False, must_retry=True)
    rows = fetch_all(connection, "cancel_queued", run_id=run_id, count=len(closing.events), now=now)
    cancelled = to_run(rows[0])
    thread_seq = run_log.add_events(connection, run, run.last_seq, closing.events, now)
    if closing.answer is not None:
        if closing.answer.event is not None:  # that event is not in the run's log, only in the thread
            session = {"account_id": run.account_id, "session_id": run.session_id}
            thread_seq = fetch_all(connection, "extend_thread", count=1, **session)[0]["last_thread_seq"]
        if thread_seq is not None:
            run_log.add_message(connection, run, closing.answer, thread_seq, now, status=cancelled.status)
            run_log.add_references(connection, run, closing.answer.refers_to)
    passed = run_log.pass_turn(connection, cancelled, closing.max_runs, now)
    return CancelAnswer(
        cancelled,
        changed=True,
        turn_passed=passed is not None,
        thread_seq=thread_seq,
        prefers=passed.prefers if passed else None,
        preempted=_preempt_run(connection, run, now),
    )


def _preempt_run(connection: sqlite3.Connection, run: Run, now: int) -> tuple[CanvasId, ...]:
    """End the leases of a run that is cancelled. A queued run has them from an attempt before. CT-18"""
    preempt = preempt_leases(
        run.account_id, run.session_id, of_run=run.run_id, by_run=run.run_id, reason="cancel"
    )
    return run_steps(connection, DOCUMENTS_SQL, preempt, now)


def _open_log(connection: sqlite3.Connection, claim: Claim, opening: Envelope, now: int) -> Claim:
    """Store the opening event of a claimed run, unless its attempts are used up.

    Returns the claim with the log position before that event.
    """
    if claim.is_exhausted:
        return claim
    fetch_all(
        connection,
        "add_event",
        **event_columns(opening),
        **OUTSIDE_THREAD,
        run_id=claim.run_id,
        seq=claim.last_seq,
        patch=to_json({"attempt": claim.attempt, "provenance": {"run_id": claim.run_id}}),
        now=now,
    )
    return replace(claim, last_seq=claim.last_seq - 1)


def _to_claim(connection: sqlite3.Connection, worker_id: WorkerId, row: Row) -> Claim:
    columns: dict[str, Any] = dict(row)
    del columns["cancel_requested_at"]
    columns["input_attachments"] = from_stored_attachments(columns["input_attachments"])
    # Not a subquery of the `returning` clause, which some versions of SQLite compute wrongly.
    session = {"account_id": row["account_id"], "session_id": row["session_id"]}
    newest = connection.execute(DOCUMENTS_SQL["list_newest_documents"].sql, {**session, "limit": 1})
    has_document = bool(newest.fetchall())
    columns |= roles_of_run(row["started_role"], _role_of_starter(connection, row))
    return Claim(
        worker_id=worker_id, cancel_requested=is_cancel_requested(row), has_document=has_document, **columns
    )


def _role_of_starter(connection: sqlite3.Connection, row: Row) -> str | None:
    """Return the role that the person who started the run has in its account now, None for no role."""
    if row["started_by"] in (None, row["account_id"]):  # a person is admin of their own account
        return None if row["started_by"] is None else "admin"
    ids = {"account_id": row["account_id"], "started_by": row["started_by"]}
    found = fetch_one(connection, "role_of_starter", **ids)
    return None if found is None else found["role"]
