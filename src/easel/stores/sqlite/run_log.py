"""The log of a run in SQLite: appending batches, thread positions, messages, references, turns and pruning.

`runs` calls these functions with the writer's connection, within a transaction. The statements are in
`sql/sqlite/runs.sql`.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from easel.core.run.batch import Appended, Batch, thread_positions
from easel.core.run.run import Claim, NewRun, Run
from easel.core.run.status import Status
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope
from easel.ids import ArtifactId, RunId, WorkerId
from easel.stores import named_sql
from easel.stores.nouns.documents import report_drafts
from easel.stores.rows.runs import OUTSIDE_THREAD, event_columns
from easel.stores.sqlite.documents import SQL as DOCUMENTS_SQL
from easel.stores.sqlite.statements import fetch_rows, run_steps

SQL = named_sql.load("sqlite", "runs")
MAX_GIVEN_SLOTS = 1_000  # per transaction, after a limit was removed
MAX_TRIMMED_EVENTS = 5_000  # per transaction, to bound the delay of other writes

Row = Any  # a sqlite3.Row; the types of its columns depend on the statement


def fetch_all(connection: sqlite3.Connection, name: str, **arguments: Any) -> list[Row]:
    return fetch_rows(connection, SQL[name], arguments, arguments.get("now", 0))


def fetch_one(connection: sqlite3.Connection, name: str, **arguments: Any) -> Row | None:
    return next(iter(fetch_all(connection, name, **arguments)), None)


def append(
    connection: sqlite3.Connection,
    batch: Batch,
    now: int,
    lease_now: int,
    *,
    max_versions: int,
    max_runs: int,
) -> Appended | None:
    """Append a batch to its run's log. Returns None if the claim is no longer valid. RX-13, RX-29

    `max_versions` is for the documents whose drafts the batch reports, `max_runs` for the runs of an account.
    """
    claim, fence = batch.claim, fence_arguments(batch.claim)
    arguments = {
        "count": len(batch.events),
        "batch_no": batch.number,
        "error": batch.error,
        "now": now,
        "lease_now": lease_now,
    }
    if batch.ends_as is None:
        stored = fetch_one(connection, "append_batch", **arguments, **fence)
    else:
        stored = fetch_one(connection, "append_last_batch", ends_as=batch.ends_as.value, **arguments, **fence)
    if stored is None:
        return _first_answer(connection, batch)
    thread_seq = add_events(connection, claim, stored["last_seq"] - len(batch.events), batch.events, now)
    if batch.answer is not None and thread_seq is not None:
        add_message(connection, claim, batch.answer, thread_seq, now, status=batch.ends_as, error=batch.error)
        add_references(connection, claim, batch.answer.refers_to)
    _add_hidden_messages(connection, batch)
    if batch.reported:
        report = report_drafts(claim.account_id, batch.reported, max_versions)
        run_steps(connection, DOCUMENTS_SQL, report, now)
    turn_passed = batch.ends_as is not None and pass_turn(connection, claim, max_runs, now) is not None
    return Appended(stored["last_seq"], thread_seq, is_cancel_requested(stored), turn_passed)


def _add_hidden_messages(connection: sqlite3.Connection, batch: Batch) -> None:
    """Store the hidden messages of a batch: after the answer if the batch ends the run. CT-51"""
    for message in batch.hidden:
        fetch_all(
            connection,
            "add_hidden_message",
            run_id=batch.claim.run_id,
            message_id=message.message_id,
            content=message.content,
            follows_answer=int(batch.ends_as is not None),
        )
        add_references(connection, batch.claim, message.refers_to)


def _first_answer(connection: sqlite3.Connection, batch: Batch) -> Appended | None:
    """Return the first answer to a batch that is already stored, None if it is not stored. RX-29"""
    row = fetch_one(
        connection,
        "repeated_batch",
        batch_no=batch.number,
        count=len(batch.events),
        **fence_arguments(batch.claim),
    )
    if row is None:
        return None
    # Whether the turn was passed is not stored. If it was not, claiming so costs one notification.
    turn_passed = batch.ends_as is not None
    return Appended(row["last_seq"], row["thread_seq"], is_cancel_requested(row), turn_passed)


def add_events(
    connection: sqlite3.Connection, run: Run | Claim, last_seq: int, events: Sequence[Envelope], now: int
) -> int | None:
    """Store events after position `last_seq` of the run's log; narrative events also get thread positions.

    Returns the last thread position taken, None if there is none.
    """
    places = thread_positions(events)
    session = {"account_id": run.account_id, "session_id": run.session_id}
    count = sum(place is not None for place in places)
    head = (
        fetch_all(connection, "extend_thread", count=count, **session)[0]["last_thread_seq"]
        if count
        else None
    )
    rows = (
        {
            **event_columns(event),
            "run_id": run.run_id,
            "seq": seq,
            "patch": None,
            "now": now,
            **(
                OUTSIDE_THREAD
                if place is None or head is None
                else {**session, "thread_seq": head - count + place}
            ),
        }
        for seq, (event, place) in enumerate(zip(events, places, strict=True), last_seq + 1)
    )
    connection.executemany(SQL["add_event"].sql, rows)
    add_references(connection, run, frozenset[ArtifactId]().union(*(event.refers_to for event in events)))
    return head


def add_question_deltas(
    connection: sqlite3.Connection, run: NewRun, question: Message, thread_seq: int, now: int
) -> None:
    """Store the deltas of a long message before it in the thread, and before the run's log: `seq` <= 0."""
    count = len(question.deltas)
    connection.executemany(
        SQL["add_event"].sql,
        (
            {
                **event_columns(delta),
                **run_key(run),
                "seq": nth - count,
                "thread_seq": thread_seq - count - 1 + nth,
                "patch": None,
                "now": now,
            }
            for nth, delta in enumerate(question.deltas, 1)
        ),
    )


def add_message(
    connection: sqlite3.Connection,
    run: NewRun | Run | Claim,
    message: Message,
    thread_seq: int,
    now: int,
    *,
    status: Status | None = None,
    error: str | None = None,
) -> None:
    fetch_all(
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
        **run_key(run),
    )


def add_references(
    connection: sqlite3.Connection, run: NewRun | Run | Claim, artifacts: frozenset[ArtifactId]
) -> None:
    """Store references from the run to artifacts, which are then kept as long as the run."""
    for artifact_id in sorted(artifacts):
        fetch_all(
            connection, "add_reference", account_id=run.account_id, run_id=run.run_id, artifact_id=artifact_id
        )


class PassedTurn(NamedTuple):
    """The turn of a session was passed to its next run, which prefers the worker `prefers`."""

    prefers: WorkerId | None


def pass_turn(
    connection: sqlite3.Connection, ended: Run | Claim, max_runs: int, now: int
) -> PassedTurn | None:
    """Pass the turn of the session to its oldest waiting run. Returns None if no run can be claimed now.

    If an account may execute only `max_runs` runs at once, that run waits for a slot, and the slot of the
    ended run goes to the run that has waited longest.
    """
    worker_id = ended.worker_id if isinstance(ended, Claim) else None
    session = fetch_one(connection, "pass_turn", worker_id=worker_id, **run_key(ended))
    next_run: str | None = session["active_run_id"] if session else None
    if max_runs:
        if next_run is not None:
            fetch_all(connection, "wait_for_slot", run_id=next_run)
        return PassedTurn(None) if give_slots(connection, ended.account_id, max_runs, now) else None
    if session is None or next_run is None:
        return None
    passed = PassedTurn(session["last_worker_id"])
    _give_turn(connection, ended.account_id, next_run, passed.prefers, now)
    return passed


def give_slots(connection: sqlite3.Connection, account_id: str, max_runs: int, now: int) -> int:
    """Give turns to runs that wait for a slot of their account. Returns how many. 0 `max_runs`: no limit."""
    free = MAX_GIVEN_SLOTS
    if max_runs:
        free = (
            max_runs - fetch_all(connection, "count_slots", account_id=account_id, limit=max_runs)[0]["used"]
        )
    waiting = fetch_all(connection, "list_slotless", account_id=account_id, limit=free)
    for row in waiting:
        _give_turn(connection, account_id, row["run_id"], None, now)
    return len(waiting)


def _give_turn(
    connection: sqlite3.Connection, account_id: str, run_id: str, prefers: WorkerId | None, now: int
) -> None:
    fetch_all(
        connection,
        "give_turn",
        run_id=run_id,
        account_id=account_id,
        preferred_worker=prefers,
        now=now,
    )


def trim_logs(connection: sqlite3.Connection, run_ids: Sequence[RunId]) -> list[RunId]:
    """Trim logs to their last event, up to MAX_TRIMMED_EVENTS in total. Returns the runs still to trim."""
    budget = MAX_TRIMMED_EVENTS
    for nth, run_id in enumerate(run_ids):
        if budget <= 0:
            return list(run_ids[nth:])
        log = fetch_one(connection, "trim_log", run_id=run_id, step=budget)
        if log is None:
            continue
        trimmed = {"run_id": run_id, "oldest_seq": log["oldest_seq"]}
        connection.execute(SQL["trim_thread"].sql, trimmed)
        budget -= connection.execute(SQL["delete_events"].sql, trimmed).rowcount
        if log["is_unfinished"]:
            return list(run_ids[nth:])
    return []


def run_key(run: NewRun | Run | Claim) -> dict[str, str]:
    return {"run_id": run.run_id, "account_id": run.account_id, "session_id": run.session_id}


def fence_arguments(claim: Claim) -> dict[str, Any]:
    return {"run_id": claim.run_id, "worker_id": claim.worker_id, "attempt": claim.attempt}


def is_cancel_requested(row: Row) -> bool:
    # Not computed in SQL: in a `returning` clause of SQLite 3.38 to 3.40, `is not null` is always true.
    return row["cancel_requested_at"] is not None
