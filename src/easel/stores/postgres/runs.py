"""Runs, their queue and their logs in Postgres.

The rules are in the statements of `sql/postgres/runs.sql`.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import asyncpg

from easel.core.run.batch import Appended, Batch, CancelAnswer, Enqueued
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope
from easel.errors import IdempotencyConflict, TooMany, Unavailable
from easel.ids import AccountId, RunId, WorkerId
from easel.stores import named_sql
from easel.stores.nouns.documents import report_drafts
from easel.stores.nouns.runs import QUEUE_RETRY_SECONDS, SqlRuns
from easel.stores.postgres.batcher import SKIPPED, AppendBatcher, Skipped
from easel.stores.postgres.documents import SQL as DOCUMENTS_SQL
from easel.stores.postgres.documents import preempt_run
from easel.stores.postgres.run_arguments import append_arguments, closing_arguments, enqueue_arguments
from easel.stores.postgres.statements import PostgresStatements, run_steps
from easel.stores.rows.runs import from_stored_attachments, roles_of_run, to_run

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "runs")
MAX_BATCHES = 128  # batches of different runs per commit
MAX_TRANSACTIONS = 2  # one runs its statements while the other waits for its fsync
MAX_ENQUEUE_ATTEMPTS = 5  # while other requests delete the session or use the same idempotency key
IDEMPOTENCY_INDEX = "runs_idempotency_idx"
PRUNE_BATCH_SIZE = 500  # runs per call of `prune`
MAX_TRIMMED_EVENTS = 5_000  # per transaction, so that the session is locked only briefly


class PostgresRuns(SqlRuns):
    def __init__(self, database: "PostgresDatabase", max_account_runs: int = 0) -> None:
        super().__init__(PostgresStatements(database, "runs", "turns"))
        self._database = database
        self._max_runs = max_account_runs
        self._appends = AppendBatcher(
            self._append_all,
            max_items=MAX_BATCHES,
            max_calls=MAX_TRANSACTIONS,
            max_seconds=2 * database.timeout,  # one call that times out, and a second one for each item alone
        )

    async def close(self) -> None:
        await self._appends.close()

    async def enqueue(self, new: NewRun) -> Enqueued:
        for _ in range(MAX_ENQUEUE_ATTEMPTS):
            if new.idempotency_key is not None and (earlier := await self._find_by_key(new)):
                return earlier
            try:
                row = await self._database.row(SQL["enqueue_run"], **enqueue_arguments(new, self._max_runs))
            except asyncpg.RaiseError as problem:
                raise TooMany.of_account("queued_runs", new.max_queued, QUEUE_RETRY_SECONDS) from problem
            except asyncpg.UniqueViolationError as problem:
                if problem.constraint_name != IDEMPOTENCY_INDEX:
                    raise
                # Another request has just stored this key, or its run belongs to a deleted session.
                key = {"account_id": new.account_id, "idempotency_key": new.idempotency_key}
                await self._database.rows(SQL["release_key"], **key)
                continue
            if row is not None:
                thread_seq = row["thread_seq"] if new.question else None
                return Enqueued(
                    to_run(row),
                    is_new=True,
                    thread_seq=thread_seq,
                    prefers=row["preferred_worker"],
                    preempted=tuple(row["preempted"] or ()),
                    account_seq=row["account_seq"],
                    queued_count=row["queued_count"],
                )
            await self._database.deletions.finish_session(new.account_id, new.session_id)
        raise Unavailable(what="The session")

    async def _find_by_key(self, new: NewRun) -> Enqueued | None:
        row = await self._database.row(
            SQL["run_by_key"], account_id=new.account_id, idempotency_key=new.idempotency_key
        )
        if row is None:
            return None
        if row["request_digest"] != new.request_digest:
            raise IdempotencyConflict(what="idempotency key", key=new.idempotency_key)
        return Enqueued(to_run(row), is_new=False)

    async def request_cancel(
        self,
        account_id: AccountId,
        run_id: RunId,
        closing: Sequence[Envelope] | None,
        answer: Message | None = None,
    ) -> CancelAnswer | None:
        run = await self.get(account_id, run_id)
        if run is None:
            return None
        async with self._database.connection() as connection, connection.transaction():
            await _fetch(connection, "lock_session", account_id=account_id, session_id=run.session_id)
            locked = await _fetch(connection, "lock_run", account_id=account_id, run_id=run_id)
            if not locked:  # deleted with its session since the first read
                return None
            run = to_run(locked[0])
            if run.is_terminal:
                return CancelAnswer(run, changed=False)
            if run.status is Status.RUNNING:
                return CancelAnswer(
                    to_run((await _fetch(connection, "flag_cancel", run_id=run_id))[0]),
                    changed=run.cancel_requested_at is None,
                    preempted=await run_steps(connection, DOCUMENTS_SQL, preempt_run(run)),
                )
            if closing is None:
                return CancelAnswer(run, changed=False, must_retry=True)
            row = (
                await _fetch(connection, "cancel_queued", run_id=run_id, **closing_arguments(closing, answer))
            )[0]
            cancelled = to_run(row)
            passed = await self._pass_turns(connection, [cancelled], [None])
            prefers = next(iter(passed.values()), None)
            return CancelAnswer(
                cancelled,
                changed=True,
                turn_passed=bool(passed),
                thread_seq=row["thread_seq"],
                prefers=prefers,
                preempted=await run_steps(connection, DOCUMENTS_SQL, preempt_run(run)),
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
        arguments = {
            "worker_id": worker_id,
            "capacity": capacity,
            "seconds": seconds,
            **_opening_arguments(opening),
        }
        taken = await self._database.rows(
            SQL["claim_queued"], after_turn=after_turn, prefer_seconds=prefer_seconds, **arguments
        )
        return sorted((_to_claim(worker_id, row) for row in taken), key=lambda claim: claim.turn_no)

    async def claim_expired(
        self,
        worker_id: WorkerId,
        capacity: int,
        seconds: float,
        *,
        last_chance: bool | None = None,
        opening: Envelope | None = None,
    ) -> list[Claim]:
        arguments = {
            "worker_id": worker_id,
            "capacity": capacity,
            "seconds": seconds,
            **_opening_arguments(opening),
        }
        taken = await self._database.rows(SQL["claim_expired"], last_chance=last_chance, **arguments)
        return [_to_claim(worker_id, row) for row in taken]

    async def claim_unacknowledged(
        self, worker_id: WorkerId, acknowledged: Collection[RunId], seconds: float, *, opened: bool
    ) -> list[Claim]:
        arguments = {
            "worker_id": worker_id,
            "acknowledged": list(acknowledged),
            "seconds": seconds,
            "opened": opened,
        }
        return [
            _to_claim(worker_id, row)
            for row in await self._database.rows(SQL["claim_unacknowledged"], **arguments)
        ]

    async def renew(self, claims: Sequence[Claim], seconds: float) -> dict[RunId, bool | None]:
        if not claims:
            return {}
        rows = await self._database.rows(
            SQL["renew_claims"],
            worker_id=claims[0].worker_id,
            run_ids=[claim.run_id for claim in claims],
            attempts=[claim.attempt for claim in claims],
            seconds=seconds,
        )
        return {RunId(row["run_id"]): row["cancel_requested"] for row in rows}

    async def append(self, batch: Batch) -> Appended | None:
        if batch.hidden or batch.reported:
            return await self._append_report(batch)
        return await self._appends.submit(batch)

    async def _append_report(self, batch: Batch) -> Appended | None:
        """Append a batch with hidden messages in a transaction of its own. CT-34, CT-51"""
        claim, statement = batch.claim, SQL["append_batches"]
        ids = {"account_id": claim.account_id, "run_id": claim.run_id}
        async with self._database.connection() as connection, connection.transaction():
            await _fetch(connection, "lock_session", account_id=claim.account_id, session_id=claim.session_id)
            await _fetch(connection, "lock_run", **ids)
            rows = await connection.fetch(statement.sql, *statement.arguments(append_arguments([batch])))
            row = rows[0] if rows and rows[0]["last_seq"] is not None else None
            if row is not None:
                await _fetch(
                    connection,
                    "add_hidden_messages",
                    run_id=claim.run_id,
                    message_ids=[message.message_id for message in batch.hidden],
                    contents=[message.content for message in batch.hidden],
                    follows_answer=batch.ends_as is not None,
                )
                ended = [claim] if batch.ends_as is not None else []
                passed = await self._pass_turns(connection, ended, [row["thread_seq"]] * len(ended))
                report = report_drafts(
                    claim.account_id, batch.reported, self._database.documents.max_versions
                )
                await run_steps(connection, DOCUMENTS_SQL, report)
                return Appended(row["last_seq"], row["thread_seq"], row["cancel_requested"], bool(passed))
        return await self._first_answer(batch)

    async def _append_all(self, batches: Sequence[Batch]) -> list[Appended | Skipped | None]:
        """Append batches of several runs in one transaction. The claim of each run is checked separately.

        Skips batches whose session or run another transaction has locked.
        """
        arguments = append_arguments(batches)
        statement = SQL["append_batches"]
        ending = [batch.claim for batch in batches if batch.ends_as is not None]
        passed: dict[tuple[str, str], WorkerId | None] = {}
        async with self._database.connection() as connection:
            if not ending:  # the common case: a single statement, which commits itself
                grown = await connection.fetch(statement.sql, *statement.arguments(arguments))
            else:
                async with connection.transaction():
                    # This statement locks the sessions, so that `pass_turn` sees all runs enqueued before.
                    grown = await connection.fetch(statement.sql, *statement.arguments(arguments))
                    stored = {
                        row["run_id"]: row["thread_seq"] for row in grown if row["last_seq"] is not None
                    }
                    ended = [claim for claim in ending if claim.run_id in stored]
                    thread_seqs = [stored[claim.run_id] for claim in ended]
                    passed = await self._pass_turns(connection, ended, thread_seqs)
        rows = {row["run_id"]: row for row in grown}
        missing = [batch.claim.run_id for batch in batches if batch.claim.run_id not in rows]
        locked = await self.heads(missing) if missing else {}  # the other missing runs were deleted
        answers: list[Appended | Skipped | None] = []
        for batch in batches:
            claim, row = batch.claim, rows.get(batch.claim.run_id)
            if claim.run_id in locked:
                answers.append(SKIPPED)
            elif row is None or row["last_seq"] is None:
                answers.append(await self._first_answer(batch))
            else:
                turn_passed = (claim.account_id, claim.session_id) in passed
                answers.append(
                    Appended(row["last_seq"], row["thread_seq"], row["cancel_requested"], turn_passed)
                )
        return answers

    async def _pass_turns(
        self, connection: "Connection", ended: Sequence[Run | Claim], thread_seqs: Sequence[int | None]
    ) -> dict[tuple[str, str], WorkerId | None]:
        """Pass the turns of ended runs to the next runs of their sessions, and their slots in the account.

        `thread_seqs` are the new ends of the threads, None: unchanged. Returns the preferred worker of the
        next run by the key of its session, for sessions that have a next run; with a limit for the runs of an
        account, the sessions of accounts of which a run got a slot.
        """
        if not ended:
            return {}
        passed = await _fetch(
            connection,
            "pass_turn",
            account_ids=[run.account_id for run in ended],
            session_ids=[run.session_id for run in ended],
            run_ids=[run.run_id for run in ended],
            thread_seqs=list(thread_seqs),
            worker_ids=[run.worker_id if isinstance(run, Claim) else None for run in ended],
            max_runs=self._max_runs,
        )
        if not self._max_runs:
            return {(row["account_id"], row["session_id"]): row["preferred_worker"] for row in passed}
        # In the order of the accounts, whose rows are locked.
        given = {
            account_id: (
                await _fetch(connection, "give_slots", account_id=account_id, max_runs=self._max_runs)
            )[0]["given"]
            for account_id in sorted({run.account_id for run in ended})
        }
        return {(run.account_id, run.session_id): None for run in ended if given[run.account_id]}

    async def give_slots(self) -> int:
        given = 0
        async for account_id in self._slotless_accounts():
            [row] = await self._sql.rows("give_slots", account_id=account_id, max_runs=self._max_runs)
            given += row["given"]
        return given

    async def _first_answer(self, batch: Batch) -> Appended | None:
        claim = batch.claim
        row = await self._database.row(
            SQL["repeated_batch"],
            run_id=claim.run_id,
            worker_id=claim.worker_id,
            attempt=claim.attempt,
            batch_no=batch.number,
            count=len(batch.events),
        )
        # Whether the turn was passed is not stored. If it was not, claiming so costs one notification.
        return (
            Appended(row["last_seq"], row["thread_seq"], row["cancel_requested"], batch.ends_as is not None)
            if row
            else None
        )

    async def prune(self, older_than_seconds: float) -> list[RunId]:
        while old := await self._database.rows(
            SQL["list_prunable_runs"], seconds=older_than_seconds, limit=PRUNE_BATCH_SIZE
        ):
            sessions: dict[tuple[str, str], set[str]] = {}
            for row in old:
                sessions.setdefault((row["account_id"], row["session_id"]), set()).add(row["run_id"])
            trimmed = [
                row for key, run_ids in sessions.items() for row in await self._trim_logs(*key, run_ids)
            ]
            # Logs that had only their last event are not pruned, but are not listed again.
            if not trimmed or any(row["had_events"] for row in trimmed):
                return [RunId(row["run_id"]) for row in trimmed if row["had_events"]]
        return []

    async def _trim_logs(self, account_id: str, session_id: str, run_ids: set[str]) -> list[Any]:
        """Trim the logs of a session in short transactions. Returns the rows of the runs that are trimmed."""
        ids = {"account_id": account_id, "session_id": session_id}
        trimmed: list[Any] = []
        while run_ids and (
            rows := await self._database.rows(
                SQL["trim_logs"], run_ids=list(run_ids), step=MAX_TRIMMED_EVENTS, **ids
            )
        ):
            done = [row for row in rows if row["is_trimmed"]]
            trimmed += done
            run_ids = run_ids.difference(row["run_id"] for row in done)
        return trimmed


async def _fetch(connection: "Connection", name: str, **arguments: Any) -> list[Any]:
    return await connection.fetch(SQL[name].sql, *SQL[name].arguments(arguments))


def _opening_arguments(event: Envelope | None) -> dict[str, str | None]:
    if event is None:
        return {"opening": None, "event_type": None, "visibility": None}
    return {"opening": event.json, "event_type": event.type, "visibility": event.visibility.value}


def _to_claim(worker_id: WorkerId, row: Any) -> Claim:
    columns: dict[str, Any] = dict(row)
    columns["input_attachments"] = from_stored_attachments(columns["input_attachments"])
    columns |= roles_of_run(columns["started_role"], columns["role_now"])
    return Claim(worker_id=worker_id, **columns)
