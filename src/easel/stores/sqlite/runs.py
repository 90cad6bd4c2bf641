"""Runs, their queue and their logs in SQLite. The rules are in the statements of `sql/sqlite/runs.sql`.

What Postgres does in one statement with several effects, SQLite does in several statements of one transaction; there is
one writer, so nothing comes between them.
"""

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from easel.core.run.batch import Appended, Batch, CancelAnswer, Enqueued, QueueDepth, spoken_places
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status, is_terminal
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope
from easel.core.stream.log import LAST_CURSOR, Bounds, LoggedEvent
from easel.errors import IdempotencyConflict
from easel.ids import ArtifactId, RunId, SessionId, UserId, WorkerId
from easel.stores import named_sql
from easel.stores.rows.runs import events_of, run_of
from easel.stores.sqlite.times import microseconds, time_of

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "runs")
PRUNED_AT_ONCE = 500  # runs per call
DROPPED_AT_ONCE = 5_000  # events per transaction: other writers wait for no more than that

Row = Any  # sqlite3.Row: what it holds is known by the statement alone


class SqliteRuns:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def enqueue(self, new: NewRun) -> Enqueued:
        return await self._database.write(lambda connection: _enqueue(connection, new, self._now()))

    async def get(self, user_id: UserId, run_id: RunId) -> Run | None:
        row = await self._read_row("get_run", user_id=user_id, run_id=run_id)
        return _run(row) if row else None

    async def list_runs(
        self,
        user_id: UserId,
        *,
        session_id: SessionId | None,
        statuses: Sequence[Status],
        before: int | None,
        limit: int,
    ) -> list[Run]:
        found = await self._read(
            "list_runs" if session_id is None else "list_session_runs",
            user_id=user_id,
            session_id=session_id,
            statuses=_json([status.value for status in statuses]),
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [_run(row) for row in found]

    async def request_cancel(
        self,
        user_id: UserId,
        run_id: RunId,
        closing: Sequence[Envelope] | None,
        answer: Message | None = None,
    ) -> CancelAnswer | None:
        return await self._database.write(
            lambda connection: _request_cancel(
                connection, user_id, run_id, Closing(closing, answer), self._now()
            )
        )

    async def claim_queued(
        self,
        worker_id: WorkerId,
        room: int,
        seconds: float,
        after_turn: int,
        opening: Envelope | None = None,
        *,
        prefer_seconds: float = 0,
    ) -> list[Claim]:
        prefers_since = self._now() - microseconds(prefer_seconds)
        given = {"room": max(room, 0), "after_turn": after_turn, "prefers_since": prefers_since}
        taken = await self._claim("claim_queued", worker_id, seconds, opening, **given)
        return sorted(taken, key=lambda claim: claim.turn_no)

    async def claim_expired(
        self,
        worker_id: WorkerId,
        room: int,
        seconds: float,
        *,
        last_chance: bool | None = None,
        opening: Envelope | None = None,
    ) -> list[Claim]:
        return await self._claim(
            "claim_expired", worker_id, seconds, opening, room=max(room, 0), last_chance=last_chance
        )

    async def _claim(
        self, name: str, worker_id: WorkerId, seconds: float, opening: Envelope | None, **given: Any
    ) -> list[Claim]:
        def work(connection: sqlite3.Connection) -> list[Claim]:
            now = self._now()
            until = now + microseconds(seconds)
            rows = _rows(
                connection,
                name,
                worker_id=worker_id,
                now=now,
                until=until,
                opens=int(opening is not None),
                **given,
            )
            claims = [_claim(worker_id, row) for row in rows]
            return (
                claims if opening is None else [_opened(connection, claim, opening, now) for claim in claims]
            )

        return await self._database.write(work)

    async def claim_unheard(
        self, worker_id: WorkerId, heard: Collection[RunId], seconds: float, *, opened: bool
    ) -> list[Claim]:
        def work(connection: sqlite3.Connection) -> list[Claim]:
            now = self._now()
            given = {
                "worker_id": worker_id,
                "heard": _json(list(heard)),
                "opened": int(opened),
                "now": now,
                "until": now + microseconds(seconds),
            }
            return [_claim(worker_id, row) for row in _rows(connection, "claim_unheard", **given)]

        return await self._database.write(work)

    async def renew(self, claims: Sequence[Claim], seconds: float) -> dict[RunId, bool]:
        if not claims:
            return {}

        def work(connection: sqlite3.Connection) -> dict[RunId, bool]:
            now = self._now()
            until = now + microseconds(seconds)
            kept = [
                _row(connection, "renew_claim", **_fence(claim), now=now, until=until) for claim in claims
            ]
            return {RunId(row["run_id"]): _is_asked(row) for row in kept if row}

        return await self._database.write(work)

    async def cancels_asked(self, worker_id: WorkerId) -> set[RunId]:
        return {RunId(row["run_id"]) for row in await self._read("cancels_asked", worker_id=worker_id)}

    async def append(self, batch: Batch) -> Appended | None:
        return await self._database.write(lambda connection: _append(connection, batch, self._now()))

    async def hand_back(self, claim: Claim) -> bool:
        return await self._database.write(
            lambda connection: _row(connection, "hand_back", **_fence(claim)) is not None
        )

    async def bounds(self, user_id: UserId, run_id: RunId) -> Bounds | None:
        row = await self._read_row("log_bounds", user_id=user_id, run_id=run_id)
        return Bounds(row["oldest_seq"], row["last_seq"], is_terminal(Status(row["status"]))) if row else None

    async def heads(self, run_ids: Sequence[RunId]) -> dict[RunId, int]:
        return {
            RunId(row["run_id"]): row["last_seq"]
            for row in await self._read("log_heads", run_ids=_json(run_ids))
        }

    async def events_after(self, run_id: RunId, cursor: int, limit: int) -> list[LoggedEvent]:
        found = await self._read("events_after", run_id=run_id, cursor=cursor, limit=limit)
        return events_of(found, time_of)

    async def queue_depth(self) -> QueueDepth:
        return QueueDepth(**dict((await self._read("queue_depth"))[0]))

    async def prune(self, older_than_seconds: float) -> int:
        old = await self._read(
            "prunable_runs", before=self._now() - microseconds(older_than_seconds), limit=PRUNED_AT_ONCE
        )
        waiting = [RunId(row["run_id"]) for row in old]
        while waiting:
            waiting = await self._database.write(
                lambda connection, run_ids=waiting: _shorten(connection, run_ids)
            )
        return len(old)

    async def probe(self) -> None:
        await self._database.write(lambda connection: _row(connection, "probe", now=self._now()))

    def _now(self) -> int:
        return self._database.clock()

    async def _read(self, name: str, **given: Any) -> list[Row]:
        return await self._database.read(lambda connection: _rows(connection, name, **given))

    async def _read_row(self, name: str, **given: Any) -> Row | None:
        return next(iter(await self._read(name, **given)), None)


def _rows(connection: sqlite3.Connection, name: str, **given: Any) -> list[Row]:
    # Read to the end: a statement that still stands open would keep its transaction from being committed.
    return connection.execute(SQL[name].sql, given).fetchall()


def _row(connection: sqlite3.Connection, name: str, **given: Any) -> Row | None:
    return next(iter(_rows(connection, name, **given)), None)


def _enqueue(connection: sqlite3.Connection, new: NewRun, now: int) -> Enqueued:
    if new.idempotency_key is not None:
        earlier = _row(connection, "run_by_key", user_id=new.user_id, idempotency_key=new.idempotency_key)
        if earlier is not None:
            if earlier["request_digest"] != new.request_digest:
                raise IdempotencyConflict(what="idempotency key", key=new.idempotency_key)
            return Enqueued(_run(earlier), is_new=False)
    whose = _whose(new)
    question = new.question
    session = _rows(
        connection, "open_session", now=now, title=new.title, spoken=int(question is not None), **whose
    )[0]
    has_turn = bool(session["has_turn"])
    numbers = _rows(connection, "take_numbers", arrivals=1, turns=int(has_turn))[0]
    stored = _rows(
        connection,
        "enqueue_run",
        input_text=new.input_text,
        max_attempts=new.max_attempts,
        idempotency_key=new.idempotency_key,
        request_digest=new.request_digest,
        input_artifact=new.input_artifact,
        queue_no=numbers["queue_no"],
        turn_no=numbers["turn_no"] if has_turn else None,
        turn_at=now if has_turn else None,
        preferred_worker=session["last_worker_id"] if has_turn else None,
        now=now,
        **whose,
    )
    prefers: WorkerId | None = stored[0]["preferred_worker"]
    if question is None:
        return Enqueued(_run(stored[0]), is_new=True, prefers=prefers)
    thread_seq: int = session["last_thread_seq"]
    _add_message(connection, whose, question, thread_seq, now)
    _refer(connection, new, question.refers_to)
    return Enqueued(_run(stored[0]), is_new=True, thread_seq=thread_seq, prefers=prefers)


class Closing(NamedTuple):
    """How a run's log ends if nobody holds the run, and the message that it then leaves behind."""

    events: Sequence[Envelope] | None
    answer: Message | None


def _request_cancel(
    connection: sqlite3.Connection, user_id: UserId, run_id: RunId, closing: Closing, now: int
) -> CancelAnswer | None:
    row = _row(connection, "get_run", user_id=user_id, run_id=run_id)
    if row is None:
        return None
    run = _run(row)
    if run.is_terminal:
        return CancelAnswer(run, changed=False)
    if run.status is Status.RUNNING:
        flagged = _run(_rows(connection, "flag_cancel", run_id=run_id, now=now)[0])
        return CancelAnswer(flagged, changed=run.cancel_requested_at is None)
    if closing.events is None:
        return CancelAnswer(run, changed=False, look_again=True)
    cancelled = _run(_rows(connection, "cancel_queued", run_id=run_id, count=len(closing.events), now=now)[0])
    thread_seq = _log(connection, run, run.last_seq, closing.events, now)
    if closing.answer is not None:
        if closing.answer.event is not None:  # told in the thread alone
            whose = {"user_id": run.user_id, "session_id": run.session_id}
            thread_seq = _rows(connection, "speak", spoken=1, **whose)[0]["last_thread_seq"]
        if thread_seq is not None:
            _add_message(connection, _whose(run), closing.answer, thread_seq, now, status=cancelled.status)
            _refer(connection, run, closing.answer.refers_to)
    passed = _pass_turn(connection, cancelled, now)
    prefers = passed.prefers if passed else None
    return CancelAnswer(
        cancelled, changed=True, turn_passed=passed is not None, thread_seq=thread_seq, prefers=prefers
    )


def _opened(connection: sqlite3.Connection, claim: Claim, opening: Envelope, now: int) -> Claim:
    if claim.is_exhausted:
        return claim
    _rows(
        connection,
        "open_log",
        run_id=claim.run_id,
        seq=claim.last_seq,
        attempt=claim.attempt,
        now=now,
        **stored_event(opening),
    )
    return replace(claim, last_seq=claim.last_seq - 1)


def _append(connection: sqlite3.Connection, batch: Batch, now: int) -> Appended | None:
    fence = _fence(batch.claim)
    given = {"count": len(batch.events), "batch_no": batch.number, "error": batch.error, "now": now, **fence}
    if batch.ends_as is None:
        grown = _row(connection, "append_batch", **given)
    else:
        grown = _row(connection, "append_last_batch", ends_as=batch.ends_as.value, **given)
    if grown is None:
        first = _row(connection, "repeated_batch", batch_no=batch.number, count=len(batch.events), **fence)
        # Whether the turn was passed is not kept: saying so once more only rings the bell once more.
        return (
            Appended(first["last_seq"], first["thread_seq"], _is_asked(first), batch.ends_as is not None)
            if first
            else None
        )
    claim = batch.claim
    thread_seq = _log(connection, claim, grown["last_seq"] - len(batch.events), batch.events, now)
    if batch.answer is not None and thread_seq is not None:
        _add_message(
            connection, _whose(claim), batch.answer, thread_seq, now, status=batch.ends_as, error=batch.error
        )
        _refer(connection, claim, batch.answer.refers_to)
    passed = batch.ends_as is not None and _pass_turn(connection, claim, now) is not None
    return Appended(grown["last_seq"], thread_seq, _is_asked(grown), passed)


def _log(
    connection: sqlite3.Connection, run: Run | Claim, last_seq: int, events: Sequence[Envelope], now: int
) -> int | None:
    """Events after `last_seq`, the narrative ones at their place in the thread too; the last such place."""
    spoken = spoken_places(events)
    whose = {"user_id": run.user_id, "session_id": run.session_id}
    count = sum(place is not None for place in spoken)
    head = _rows(connection, "speak", spoken=count, **whose)[0]["last_thread_seq"] if count else None
    nowhere = {"user_id": None, "session_id": None, "thread_seq": None}
    places = (
        {
            **stored_event(event),
            "run_id": run.run_id,
            "seq": seq,
            "now": now,
            **(nowhere if place is None or head is None else {**whose, "thread_seq": head - count + place}),
        }
        for seq, (event, place) in enumerate(zip(events, spoken, strict=True), last_seq + 1)
    )
    connection.executemany(SQL["add_event"].sql, places)
    _refer(connection, run, frozenset[ArtifactId]().union(*(event.refers_to for event in events)))
    return head


def _add_message(
    connection: sqlite3.Connection,
    whose: dict[str, str],
    message: Message,
    thread_seq: int,
    now: int,
    *,
    status: Status | None = None,
    error: str | None = None,
) -> None:
    _rows(
        connection,
        "add_message",
        message_id=message.message_id,
        role=message.role,
        content=message.content,
        status=status.value if status else None,
        error=error,
        thread_seq=thread_seq,
        payload=message.event.json if message.event else None,
        now=now,
        **whose,
    )


def _refer(
    connection: sqlite3.Connection, run: NewRun | Run | Claim, artifacts: frozenset[ArtifactId]
) -> None:
    for artifact_id in sorted(artifacts):
        _rows(connection, "refer_to", user_id=run.user_id, run_id=run.run_id, artifact_id=artifact_id)


def _whose(run: NewRun | Run | Claim) -> dict[str, str]:
    return {"run_id": run.run_id, "user_id": run.user_id, "session_id": run.session_id}


class Passed(NamedTuple):
    """The turn of another run of the session has come."""

    prefers: WorkerId | None


def _pass_turn(connection: sqlite3.Connection, ended: Run | Claim, now: int) -> Passed | None:
    worker_id = ended.worker_id if isinstance(ended, Claim) else None
    session = _row(connection, "pass_turn", worker_id=worker_id, now=now, **_whose(ended))
    if session is None or session["active_run_id"] is None:
        return None
    passed = Passed(session["last_worker_id"])
    turn_no = _rows(connection, "take_numbers", arrivals=0, turns=1)[0]["turn_no"]
    _rows(
        connection,
        "give_turn",
        run_id=session["active_run_id"],
        turn_no=turn_no,
        preferred_worker=passed.prefers,
        now=now,
    )
    return passed


def _shorten(connection: sqlite3.Connection, run_ids: Sequence[RunId]) -> list[RunId]:
    """Shortens the logs one after another until enough was dropped for one transaction; what is left to do."""
    room = DROPPED_AT_ONCE
    for nth, run_id in enumerate(run_ids):
        if room <= 0:
            return list(run_ids[nth:])
        log = _row(connection, "shorten_log", run_id=run_id, step=room)
        if log is None:
            continue
        dropped = {"run_id": run_id, "oldest_seq": log["oldest_seq"]}
        connection.execute(SQL["forget_thread"].sql, dropped)
        room -= connection.execute(SQL["drop_events"].sql, dropped).rowcount
        if log["is_unfinished"]:
            return list(run_ids[nth:])
    return []


def _fence(claim: Claim) -> dict[str, Any]:
    return {"run_id": claim.run_id, "worker_id": claim.worker_id, "attempt": claim.attempt}


def stored_event(event: Envelope) -> dict[str, str]:
    return {"event_type": event.type, "visibility": event.visibility.value, "payload": event.json}


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


def _run(row: Row) -> Run:
    return run_of(row, time_of)


def _claim(worker_id: WorkerId, row: Row) -> Claim:
    given: dict[str, Any] = dict(row)
    del given["cancel_requested_at"]
    return Claim(worker_id=worker_id, cancel_requested=_is_asked(row), **given)


def _is_asked(row: Row) -> bool:
    # Asked here and not in SQL: SQLite 3.38 to 3.40 take `is not null` in a `returning` clause for true, whatever is stored.
    return row["cancel_requested_at"] is not None
