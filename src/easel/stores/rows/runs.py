"""Rows of the tables that every store has, as the values of the core."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec

from easel.core.canvas.canvas import Canvas
from easel.core.run.run import Run
from easel.core.run.status import Status
from easel.core.session.message import StoredMessage
from easel.core.session.session import Session
from easel.core.stream.envelope import Visibility
from easel.core.stream.log import LoggedEvent

VISIBILITY = {visibility.value: visibility for visibility in Visibility}

Row = Mapping[str, Any]
Time = Callable[[Any], datetime] | None  # how a stored time is read, where the driver does not

_OF_RUN = tuple(field.name for field in fields(Run))
_OF_SESSION = tuple(field.name for field in fields(Session))
_OF_MESSAGE = tuple(field.name for field in fields(StoredMessage))


def to_run(row: Row, time: Time = None) -> Run:
    """The columns are named like the fields."""
    given = _timed(
        {name: row[name] for name in _OF_RUN},
        time,
        "created_at",
        "started_at",
        "finished_at",
        "cancel_requested_at",
    )
    given["status"] = Status(given["status"])
    return Run(**given)


def to_session(row: Row, time: Time = None) -> Session:
    return Session(**_timed({name: row[name] for name in _OF_SESSION}, time, "created_at", "last_message_at"))


def to_canvas(row: Row, time: Time = None) -> Canvas:
    created_at, updated_at = row["created_at"], row["updated_at"]
    return Canvas(
        user_id=row["user_id"],
        canvas_id=row["canvas_id"],
        agent_id=row["agent_id"],
        title=row["title"],
        owner_session_key=row["owner_session_key"],
        spec_json=row["spec"],
        state=msgspec.json.decode(row["state"]),
        revision=row["revision"],
        last_seq=row["last_seq"],
        spec_revision=row["spec_revision"],
        is_accepted=bool(row["is_accepted"]),
        created_at=created_at if time is None else time(created_at),
        updated_at=updated_at if time is None else time(updated_at),
    )


def to_message(row: Row, time: Time = None) -> StoredMessage:
    given = _timed({name: row[name] for name in _OF_MESSAGE}, time, "created_at")
    return StoredMessage(**{**given, "content": msgspec.json.decode(given["content"])})


def to_events(
    rows: Iterable[Sequence[Any]], time: Callable[[Any], datetime] = lambda at: at
) -> list[LoggedEvent]:
    """A page of any log: seq, type, visibility, time and data, in this order."""
    return [
        LoggedEvent(seq, event_type, VISIBILITY[visible], time(at), data)
        for seq, event_type, visible, at, data in rows
    ]


def _timed(given: dict[str, Any], time: Time, *names: str) -> dict[str, Any]:
    if time is not None:
        given |= {name: time(given[name]) for name in names if given[name] is not None}
    return given


def split_key(key: str) -> tuple[str, str]:
    """The owner and the name of a log that is named by its user."""
    user_id, _, name = key.rpartition("/")
    return user_id, name


def search_pattern(search: str) -> str:
    """What is searched for as a pattern that both stores read alike, whatever the database's language: anywhere, in either case, and
    nothing in it is special."""
    return "".join(map(_in_either_case, search))


def _in_either_case(sign: str) -> str:
    forms = sorted({form for form in (sign, sign.lower(), sign.upper(), sign.title()) if len(form) == 1})
    if len(forms) > 1:
        return f"[{''.join(forms)}]"
    return f"\\{sign}" if sign.isascii() and not sign.isalnum() else sign
