"""Envelopes: the only form in which anything enters a log.

Owns the table of event types and `seal()`, the one maker of envelopes: each has a visibility that its author did not
choose, says who caused it where it changes state, and is light. Knows no log, no clock and no wire.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import OffloadedValue, mentioned, offload_event
from easel.errors import BadInput
from easel.ids import ArtifactId


class Stream(StrEnum):
    NARRATIVE = "narrative"
    STATE = "state"
    VISUALS = "visuals"
    SYSTEM = "system"


class Visibility(StrEnum):
    PUBLIC = "public"
    INTERNAL = "internal"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class EventType:
    name: str
    stream: Stream
    visibility: Visibility


_NARRATIVE, _STATE, _VISUALS = Stream.NARRATIVE, Stream.STATE, Stream.VISUALS
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
        EventType("whiteboard.write", _STATE, _PUBLIC),
        EventType("blackboard.write", _STATE, _PUBLIC),
        EventType("done", _STATE, _PUBLIC),
        EventType("canvas.created", _VISUALS, _PUBLIC),
        EventType("canvas.updated", _VISUALS, _PUBLIC),
        EventType("canvas.view.updated", _VISUALS, _PUBLIC),
        EventType("canvas.snapshot", _VISUALS, _PUBLIC),
        EventType("canvas.action.asked", _VISUALS, _PUBLIC),
        EventType("canvas.action.started", _VISUALS, _PUBLIC),
        EventType("canvas.action.output", _VISUALS, _PUBLIC),
        EventType("canvas.action.finished", _VISUALS, _PUBLIC),
        EventType("canvas.action.failed", _VISUALS, _PUBLIC),
        EventType("canvas.action.refused", _VISUALS, _PUBLIC),
        EventType("canvas.refresh.failed", _VISUALS, _PUBLIC),
        EventType("canvas.refresh.recovered", _VISUALS, _PUBLIC),
    )
}


@dataclass(frozen=True, slots=True)
class Provenance:
    agent_id: str
    node_id: str
    run_id: str
    edge_id: str | None = None


class Envelope(
    NamedTuple
):  # a tuple, because thousands are made a second and it is made in a third of the time
    """An event that may be logged. Only `seal()` makes one.

    `json` is `data` as it is stored and sent. `moved` is what was too heavy and has to be kept as artifacts before the
    event is; `refers_to` are all artifacts that the event speaks of.
    """

    type: str
    visibility: Visibility
    data: Mapping[str, Any]
    json: str
    offloaded: tuple[OffloadedValue, ...] = ()
    refers_to: frozenset[ArtifactId] = frozenset()

    @property
    def stream(self) -> Stream:
        return EVENT_TYPES[self.type].stream


def seal(event_type: str, data: Mapping[str, Any], provenance: Provenance) -> Envelope:
    """Visibility comes from the table and never from the data: a model cannot publish its thoughts. CC-10, CC-11, CC-16"""
    kind = EVENT_TYPES[event_type]
    given = (
        dict(data)
        if _OURS.isdisjoint(data)
        else {key: value for key, value in data.items() if key not in _OURS}
    )
    light, text, offloaded = offload_event(given)
    sealed = {**light, "visibility": kind.visibility.value}
    ours = _SAYING[kind.visibility]
    if kind.stream is not Stream.NARRATIVE:
        said, written = _checked(provenance)
        sealed["provenance"] = dict(said)
        ours = f'{ours},"provenance":{written}'
    text = (
        f"{text[:-1]},{ours}}}" if light else f"{{{ours}}}"
    )  # joined as text, so that the data is encoded once
    return Envelope(event_type, kind.visibility, sealed, text, offloaded, mentioned(text, offloaded))


_OURS = frozenset({"visibility", "provenance"})
_SAYING = {visibility: f'"visibility":"{visibility}"' for visibility in Visibility}


@lru_cache(maxsize=1_000)  # a run, and each execution of an action, says several things in a row
def _checked(provenance: Provenance) -> tuple[dict[str, str], str]:
    """Who caused it: never empty, so that no change of state is anonymous. CC-16, CC-18, CC-19"""
    said = {"agent_id": provenance.agent_id, "node_id": provenance.node_id, "run_id": provenance.run_id}
    if provenance.edge_id is not None:
        said["edge_id"] = provenance.edge_id
    for name, value in said.items():
        if not value or not value.isprintable() or len(value) > MAX_ID_LENGTH:
            raise BadInput(
                problem=f"{name} is 1 to {MAX_ID_LENGTH} printable characters: whoever changes something says who, where and in which run."
            )
    return said, to_json(said)


MAX_ID_LENGTH = 200
