"""Envelopes: the only form in which an event enters a log.

Owns the table of event types and `seal()`, the only function that creates envelopes. Every envelope has the
visibility of its event type and data within the payload limit, and except in the narrative stream a
provenance. Does not know logs, clocks or wire formats.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from easel.core.principal import ActorKind
from easel.core.stream import payloads
from easel.core.stream.json_text import to_json
from easel.core.stream.message_text import MessageText, offload_message
from easel.core.stream.payload_limit import OffloadedValue, mentioned_artifacts, offload_event
from easel.errors import BadInput
from easel.ids import ArtifactId


class Stream(StrEnum):
    NARRATIVE = "narrative"
    STATE = "state"
    VISUALS = "visuals"
    ACCOUNT = "account"
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
    payload: type[payloads.Payload]


_NARRATIVE, _STATE, _VISUALS = Stream.NARRATIVE, Stream.STATE, Stream.VISUALS
_PUBLIC, _INTERNAL = Visibility.PUBLIC, Visibility.INTERNAL

EVENT_TYPES: Mapping[str, EventType] = {
    row.name: row
    for row in (
        EventType("message.delta", _NARRATIVE, _PUBLIC, payloads.MessageDelta),
        EventType("message.completed", _NARRATIVE, _PUBLIC, payloads.MessageCompleted),
        EventType("tool.call", _NARRATIVE, _PUBLIC, payloads.ToolCallPayload),
        EventType("tool.result", _NARRATIVE, _PUBLIC, payloads.ToolResultPayload),
        EventType("reasoning.delta", _NARRATIVE, _INTERNAL, payloads.ReasoningDelta),
        EventType("step.completed", _NARRATIVE, _INTERNAL, payloads.StepCompleted),
        EventType("run.start", _STATE, _PUBLIC, payloads.RunStart),
        EventType("run.status", _STATE, _PUBLIC, payloads.RunStatusPayload),
        EventType("whiteboard.write", _STATE, _PUBLIC, payloads.WhiteboardWrite),
        EventType("blackboard.write", _STATE, _PUBLIC, payloads.BlackboardWrite),
        EventType("done", _STATE, _PUBLIC, payloads.RunDone),
        EventType("canvas.created", _VISUALS, _PUBLIC, payloads.CanvasCreated),
        EventType("canvas.updated", _VISUALS, _PUBLIC, payloads.CanvasUpdated),
        EventType("canvas.view.updated", _VISUALS, _PUBLIC, payloads.CanvasViewUpdated),
        EventType("canvas.snapshot", _VISUALS, _PUBLIC, payloads.CanvasSnapshotTaken),
        EventType("canvas.action.asked", _VISUALS, _PUBLIC, payloads.ActionAskedPayload),
        EventType("canvas.action.started", _VISUALS, _PUBLIC, payloads.ActionStarted),
        EventType("canvas.action.output", _VISUALS, _PUBLIC, payloads.ActionOutput),
        EventType("canvas.action.finished", _VISUALS, _PUBLIC, payloads.ActionFinished),
        EventType("canvas.action.failed", _VISUALS, _PUBLIC, payloads.ActionFailedPayload),
        EventType("canvas.action.refused", _VISUALS, _PUBLIC, payloads.ActionRefusedPayload),
        EventType("canvas.refresh.failed", _VISUALS, _PUBLIC, payloads.RefreshFailed),
        EventType("canvas.refresh.recovered", _VISUALS, _PUBLIC, payloads.RefreshRecovered),
        EventType("canvas.document.changed", _VISUALS, _PUBLIC, payloads.DocumentChanged),
        EventType("canvas.lease.changed", _VISUALS, _PUBLIC, payloads.LeaseChanged),
        EventType("session.created", Stream.ACCOUNT, _PUBLIC, payloads.SessionCreated),
        EventType("session.renamed", Stream.ACCOUNT, _PUBLIC, payloads.SessionRenamed),
        EventType("session.removed", Stream.ACCOUNT, _PUBLIC, payloads.SessionRemoved),
    )
}


# The types whose `text` is a string with references, never a marker. RS-62
MESSAGE_EVENTS = frozenset({"message.delta", "message.completed", "reasoning.delta"})


@dataclass(frozen=True, slots=True)
class Provenance:
    agent_id: str
    node_id: str
    run_id: str
    edge_id: str | None = None
    kind: ActorKind = ActorKind.AGENT  # the default has the fewest rights. RS-68


class Envelope(NamedTuple):
    """An event, ready to be logged. Only `seal()` creates envelopes.

    `json` is the text of `data` as it is stored and sent. `offloaded` must be stored as artifacts before the
    event. `refers_to` are all artifacts that the event names. A named tuple, because creating a frozen
    dataclass takes three times as long.
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
    """Create an envelope. CC-10, CC-11, CC-16

    The visibility is that of the event type; a message that is `hidden` is internal (RS-36). Members
    `visibility` and `provenance` in the data are ignored, so that a model cannot publish internal events. In
    a message, `text` may be a `MessageText`.
    """
    kind = EVENT_TYPES[event_type]
    is_hidden = event_type == "message.completed" and data.get("hidden") is True
    visibility = Visibility.INTERNAL if is_hidden else kind.visibility
    accepted = (
        dict(data)
        if _RESERVED.isdisjoint(data)
        else {key: value for key, value in data.items() if key not in _RESERVED}
    )
    has_text = event_type in MESSAGE_EVENTS and isinstance(accepted.get("text"), (str, MessageText))
    light, text, offloaded = offload_message(accepted) if has_text else offload_event(accepted)
    sealed = {**light, "visibility": visibility.value}
    suffix = _VISIBILITY_JSON[visibility]
    if kind.stream is not Stream.NARRATIVE:
        members, provenance_json = _check_provenance(provenance)
        sealed["provenance"] = dict(members)
        suffix = f'{suffix},"provenance":{provenance_json}'
    # Joined as text, so that the data is encoded only once.
    text = f"{text[:-1]},{suffix}}}" if light else f"{{{suffix}}}"
    return Envelope(event_type, visibility, sealed, text, offloaded, mentioned_artifacts(text, offloaded))


_RESERVED = frozenset({"visibility", "provenance"})
_VISIBILITY_JSON = {visibility: f'"visibility":"{visibility}"' for visibility in Visibility}


@lru_cache(maxsize=1_000)  # a run or an execution has many events with the same provenance
def _check_provenance(provenance: Provenance) -> tuple[dict[str, str], str]:
    """Return the provenance as members and as JSON text. CC-16, CC-18, CC-19, RS-68

    Raises `BadInput` for an empty or invalid id, so that no change of state is anonymous.
    """
    members = {
        "kind": ActorKind(provenance.kind).value,
        "agent_id": provenance.agent_id,
        "node_id": provenance.node_id,
        "run_id": provenance.run_id,
    }
    if provenance.edge_id is not None:
        members["edge_id"] = provenance.edge_id
    for name, value in members.items():
        if not value or not value.isprintable() or len(value) > MAX_ID_LENGTH:
            raise BadInput(problem=f"{name} must be 1 to {MAX_ID_LENGTH} printable characters.")
    return members, to_json(members)


MAX_ID_LENGTH = 200
