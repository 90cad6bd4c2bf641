"""Envelopes: the only form in which anything enters a log.

Owns the table of event types and `seal()`, the one maker of envelopes, so that each has a visibility that its
author did not choose and, where it changes state, says who caused it. Knows no log, no clock and no wire.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Stream(StrEnum):
    NARRATIVE = "narrative"
    STATE = "state"


class Visibility(StrEnum):
    PUBLIC = "public"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class EventType:
    name: str
    stream: Stream
    visibility: Visibility


_NARRATIVE, _STATE = Stream.NARRATIVE, Stream.STATE
_PUBLIC, _INTERNAL = Visibility.PUBLIC, Visibility.INTERNAL

EVENT_TYPES: Mapping[str, EventType] = {
    row.name: row
    for row in (
        EventType("message.delta", _NARRATIVE, _PUBLIC),
        EventType("message.completed", _NARRATIVE, _PUBLIC),
        EventType("tool.call", _NARRATIVE, _PUBLIC),
        EventType("tool.result", _NARRATIVE, _PUBLIC),
        EventType("reasoning.delta", _NARRATIVE, _INTERNAL),
        EventType("step.completed", _NARRATIVE, _INTERNAL),
        EventType("run.start", _STATE, _PUBLIC),
        EventType("run.status", _STATE, _PUBLIC),
        EventType("done", _STATE, _PUBLIC),
    )
}


@dataclass(frozen=True, slots=True)
class Provenance:
    agent_id: str
    node_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event that may be logged. Only `seal()` makes one."""

    type: str
    visibility: Visibility
    data: Mapping[str, Any]


def seal(event_type: str, data: Mapping[str, Any], provenance: Provenance) -> Envelope:
    """Visibility comes from the table and never from the data: a model cannot publish its thoughts. CC-10, CC-11"""
    kind = EVENT_TYPES[event_type]
    sealed = dict(data)
    sealed["visibility"] = kind.visibility.value
    if kind.stream is Stream.STATE:
        sealed["provenance"] = {"agent_id": provenance.agent_id, "node_id": provenance.node_id, "run_id": provenance.run_id}
    else:
        sealed.pop("provenance", None)
    return Envelope(event_type, kind.visibility, sealed)
