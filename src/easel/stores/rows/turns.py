"""The earlier turns of a session in both stores: conversion of rows to core values."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from easel.core.run.past_turn import PastTurn
from easel.core.run.status import Status
from easel.core.session.message import read_content
from easel.core.stream.log import LoggedEvent
from easel.ids import RunId
from easel.stores.rows.runs import Row, to_events


def to_past_turn(row: Row) -> PastTurn:
    hidden: list[tuple[bool, Any]] = msgspec.json.decode(row["hidden"]) if row["hidden"] else []
    texts = [(bool(follows), read_content(content).text) for follows, content in hidden]
    return PastTurn(
        run_id=RunId(row["run_id"]),
        message=row["input_text"],
        answer=read_content(msgspec.json.decode(row["answer"])).text if row["answer"] else "",
        status=Status(row["status"]),
        error_message=row["error_message"],
        has_log=bool(row["has_log"]),
        updates_before=tuple(text for follows, text in texts if not follows),
        updates_after=tuple(text for follows, text in texts if follows),
    )


def to_logs(
    rows: Iterable[Sequence[Any]], time: Callable[[Any], datetime] = lambda at: at
) -> dict[RunId, list[LoggedEvent]]:
    """Return the events of each log from rows of the run and its event, in order."""
    logs: dict[RunId, list[Sequence[Any]]] = {}
    for row in rows:
        logs.setdefault(RunId(row[0]), []).append(row[1:])
    return {run_id: to_events(events, time) for run_id, events in logs.items()}
