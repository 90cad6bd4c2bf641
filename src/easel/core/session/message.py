"""Messages of a session, by the user and by the assistant. Owns their stored form. RS-62"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.json_text import to_json
from easel.core.stream.marker import OffloadedValue, mentioned_artifacts
from easel.core.stream.message_text import Marker, MessageText, split_message, take_out_runs
from easel.ids import ArtifactId, MessageId, RunId, question_id


@dataclass(frozen=True, slots=True)
class Message:
    """A message to store.

    `content` is JSON: the text, or an object of the text and its `attachments` if Base64 over 2 KB was taken
    out. Long plain text stays whole. `deltas` and then `event` are added to the thread, for messages that are
    not in a run's log.
    """

    message_id: MessageId
    content: str
    offloaded: tuple[OffloadedValue, ...] = ()
    refers_to: frozenset[ArtifactId] = frozenset()
    event: Envelope | None = None
    role: str = "assistant"
    deltas: tuple[Envelope, ...] = ()  # of a text that does not fit into `event`


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    message_id: MessageId
    run_id: str
    role: str
    text: str
    attachments: tuple[Marker, ...]  # of the references in the text
    status: str | None
    error_message: str | None
    thread_seq: int
    created_at: datetime


def message(
    message_id: MessageId,
    text: str | MessageText,
    event: Envelope | None = None,
    role: str = "assistant",
    deltas: tuple[Envelope, ...] = (),
) -> Message:
    light = take_out_runs(text) if isinstance(text, str) else text
    content = to_json(
        {"text": light.text, "attachments": list(light.attachments)} if light.attachments else light.text
    )
    events = (*deltas, event) if event else deltas
    return Message(
        message_id,
        content,
        light.offloaded + tuple(value for sealed in events for value in sealed.offloaded),
        mentioned_artifacts(content, light.offloaded).union(*(sealed.refers_to for sealed in events)),
        event,
        role,
        deltas,
    )


def read_content(content: Any) -> MessageText:
    """Return the text of a stored message."""
    if isinstance(content, str):
        return MessageText(content)
    members = cast("dict[str, Any]", content)
    return MessageText(members["text"], tuple(members["attachments"]))


def question(run_id: RunId, text: MessageText) -> Message:
    """Return the user's message. It is added to the thread before all events of the run that answers it.

    A text that does not fit into one event reaches the thread in deltas before it. RS-35
    """
    message_id = question_id(run_id)
    provenance = Provenance("user", "chat", run_id)
    names = {"role": "user", "message_id": message_id, "run_id": run_id}
    event = seal("message.completed", {**names, "text": text}, provenance)
    pieces = split_message(text) if event.data.get("truncated") else []
    deltas = tuple(seal("message.delta", {**names, "text": piece}, provenance) for piece in pieces)
    return message(message_id, text, event, "user", deltas)
