"""Runs, sessions, messages, canvases and logs in both stores: conversion of rows to core values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec

from easel.core.principal import Role
from easel.core.run.run import Run
from easel.core.run.status import Status
from easel.core.session.message import StoredMessage, read_content
from easel.core.session.session import Session
from easel.core.stream.envelope import Envelope, Visibility
from easel.core.stream.json_text import to_json
from easel.core.stream.log import LoggedEvent
from easel.core.stream.message_text import Marker

OUTSIDE_THREAD = {"account_id": None, "session_id": None, "thread_seq": None}  # columns of an event
VISIBILITY = {visibility.value: visibility for visibility in Visibility}

Row = Mapping[str, Any]

_RUN_COLUMNS = tuple(field.name for field in fields(Run))
_SESSION_COLUMNS = tuple(field.name for field in fields(Session))
_MESSAGE_COLUMNS = ("message_id", "run_id", "role", "status", "error_message", "thread_seq", "created_at")


def list_statement(session_id: str | None, statuses: Sequence[Status]) -> str:
    """Return the name of the statement that lists runs with these filters. Each uses an index of its own."""
    listing = "list_runs" if session_id is None else "list_session_runs"
    return f"{listing}_by_status" if statuses else listing


def to_run(row: Row) -> Run:
    """Return the run of a row. The columns have the names of the fields of `Run`."""
    columns = {name: row[name] for name in _RUN_COLUMNS}
    columns["status"] = Status(columns["status"])
    columns["input_attachments"] = from_stored_attachments(columns["input_attachments"])
    return Run(**columns)


def roles_of_run(started_role: str, role_now: str | None) -> dict[str, Role | None]:
    """Return the fields of a claim with the roles of who started the run."""
    return {"started_role": Role(started_role), "role_now": None if role_now is None else Role(role_now)}


def to_stored_attachments(attachments: Sequence[Marker]) -> str | None:
    return to_json(list(attachments)) if attachments else None


def from_stored_attachments(stored: str | None) -> tuple[Marker, ...]:
    return tuple(msgspec.json.decode(stored)) if stored else ()


def to_session(row: Row) -> Session:
    return Session(**{name: row[name] for name in _SESSION_COLUMNS})


def to_message(row: Row) -> StoredMessage:
    columns = {name: row[name] for name in _MESSAGE_COLUMNS}
    text = read_content(msgspec.json.decode(row["content"]))
    return StoredMessage(**columns, text=text.text, attachments=text.attachments)


def to_events(rows: Iterable[Sequence[Any]]) -> list[LoggedEvent]:
    """Return a page of a log from rows of seq, type, visibility, time and payload."""
    return [
        LoggedEvent(seq, event_type, VISIBILITY[visible], at, data)
        for seq, event_type, visible, at, data in rows
    ]


def event_columns(event: Envelope) -> dict[str, str]:
    return {"event_type": event.type, "visibility": event.visibility.value, "payload": event.json}


def events_columns(events: Sequence[Envelope]) -> dict[str, list[str]]:
    """Return the events as one list per column."""
    return {
        "event_types": [event.type for event in events],
        "visibilities": [event.visibility.value for event in events],
        "payloads": [event.json for event in events],
    }


def split_key(key: str) -> tuple[str, str]:
    """Split the key of a log into the account id and the id of the session or canvas."""
    account_id, _, name = key.rpartition("/")
    return account_id, name


def search_pattern(search: str) -> str:
    """Return a regular expression that finds the text in upper or lower case.

    Both stores get the same result from it, independently of the locale of the database.
    """
    return "".join(map(_in_either_case, search))


def _in_either_case(character: str) -> str:
    forms = {character, character.lower(), character.upper(), character.title()}
    forms = sorted(form for form in forms if len(form) == 1)
    if len(forms) > 1:
        return f"[{''.join(forms)}]"
    return f"\\{character}" if character.isascii() and not character.isalnum() else character
