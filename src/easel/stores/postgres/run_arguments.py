"""Arguments of the statements in `sql/postgres/runs.sql`; several rows are passed as one array per column."""

from collections.abc import Sequence
from typing import Any

from easel.core.run.batch import Batch, thread_positions
from easel.core.run.run import NewRun
from easel.core.session.events import CREATED, session_event
from easel.core.session.message import Message
from easel.core.stream.envelope import Envelope
from easel.stores.rows.documents import ENDED_BY_MESSAGE
from easel.stores.rows.runs import events_columns, to_stored_attachments


def enqueue_arguments(new: NewRun, max_runs: int) -> dict[str, Any]:
    return {
        "max_runs": max_runs,
        "max_queued": new.max_queued,
        "run_id": new.run_id,
        "account_id": new.account_id,
        "session_id": new.session_id,
        "input_text": new.input_text,
        "max_attempts": new.max_attempts,
        "idempotency_key": new.idempotency_key,
        "request_digest": new.request_digest,
        "input_attachments": to_stored_attachments(new.input_attachments),
        "started_by": new.started_by,
        "started_role": new.started_role.value,
        "title": new.title,
        "session_event": session_event(CREATED, new.session_id, new.title, new.by).json,
        "ended_lease": ENDED_BY_MESSAGE.json,
        **_question_arguments(new.question),
    }


def _question_arguments(question: Message | None) -> dict[str, Any]:
    if question is None or question.event is None:
        return {
            "message_id": None,
            "content": None,
            "payload": None,
            "deltas": [],
            "spoken": 0,
            "refers_to": [],
        }
    return {
        "message_id": question.message_id,
        "content": question.content,
        "payload": question.event.json,
        "deltas": [delta.json for delta in question.deltas],
        "spoken": len(question.deltas) + 1,
        "refers_to": sorted(question.refers_to),
    }


def closing_arguments(events: Sequence[Envelope], answer: Message | None) -> dict[str, Any]:
    places = thread_positions(events)
    has_own_event = answer is not None and answer.event is not None
    sources = (*events, *([answer] if answer else []))
    return {
        **events_columns(events),
        "spoken": sum(place is not None for place in places) + has_own_event,
        "spoken_nths": places,
        "message_id": answer.message_id if answer else None,
        "content": answer.content if answer else None,
        "payload": answer.event.json if answer and answer.event else None,
        "refers_to": sorted(frozenset[str]().union(*(source.refers_to for source in sources))),
    }


def append_arguments(batches: Sequence[Batch]) -> dict[str, list[Any]]:
    claims = [batch.claim for batch in batches]
    places = [thread_positions(batch.events) for batch in batches]
    # The claims whose session must be locked: their batch ends the run or has narrative events.
    in_thread = [
        batch.claim
        for batch, spoken in zip(batches, places, strict=True)
        if batch.ends_as is not None or any(spoken)
    ]
    return {
        "run_ids": [claim.run_id for claim in claims],
        "owner_ids": [claim.worker_id for claim in claims],
        "attempts": [claim.attempt for claim in claims],
        "batch_nos": [batch.number for batch in batches],
        "counts": [len(batch.events) for batch in batches],
        "spoken": [sum(place is not None for place in spoken) for spoken in places],
        "ends_as": [batch.ends_as.value if batch.ends_as else None for batch in batches],
        "errors": [batch.error for batch in batches],
        "message_ids": [batch.answer.message_id if batch.answer else None for batch in batches],
        "contents": [batch.answer.content if batch.answer else None for batch in batches],
        "speaking_run_ids": [claim.run_id for claim in in_thread],
        "account_ids": [claim.account_id for claim in in_thread],
        "session_ids": [claim.session_id for claim in in_thread],
        "event_run_ids": [batch.claim.run_id for batch in batches for _ in batch.events],
        "event_nths": [nth for batch in batches for nth in range(1, len(batch.events) + 1)],
        "spoken_nths": [place for spoken in places for place in spoken],
        **events_columns([event for batch in batches for event in batch.events]),
        **_reference_arguments(batches),
    }


def _reference_arguments(batches: Sequence[Batch]) -> dict[str, list[str]]:
    pairs: set[tuple[str, str]] = set()
    for batch in batches:
        for source in (*batch.events, *batch.hidden, *([batch.answer] if batch.answer else [])):
            pairs.update((batch.claim.run_id, artifact_id) for artifact_id in source.refers_to)
    ordered = sorted(pairs)
    return {
        "referring_run_ids": [run_id for run_id, _ in ordered],
        "refers_to": [artifact_id for _, artifact_id in ordered],
    }
