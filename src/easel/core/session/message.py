"""Messages of a session: what a person asked and what the assistant answered, whole."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import OffloadedValue, mentioned, offload_large_values
from easel.ids import ArtifactId, MessageId, RunId, question_id


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it is stored: `content` is JSON, a string or the marker of one that was moved. RS-35

    Long plain text stays whole here. `event` is how the thread hears of it, for a message that no run's log tells.
    """

    message_id: MessageId
    content: str
    offloaded: tuple[OffloadedValue, ...] = ()
    refers_to: frozenset[ArtifactId] = frozenset()
    event: Envelope | None = None
    moved_text: ArtifactId | None = None  # where the text is, if it was moved
    role: str = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    message_id: MessageId
    run_id: str
    role: str
    content: Any
    status: str | None
    error_message: str | None
    thread_seq: int
    created_at: datetime


def message(
    message_id: MessageId, text: str, event: Envelope | None = None, role: str = "assistant"
) -> Message:
    light, offloaded = offload_large_values(text)
    content = to_json(light)
    said = event.refers_to if event else frozenset[ArtifactId]()
    text_in = offloaded[0].artifact_id if offloaded else None
    return Message(
        message_id,
        content,
        offloaded + (event.offloaded if event else ()),
        mentioned(content, offloaded) | said,
        event,
        text_in,
        role,
    )


def question(run_id: RunId, text: str) -> Message:
    """What a person asked: told in the thread alone, before the run that answers it says anything."""
    message_id = question_id(run_id)
    data = {"role": "user", "message_id": message_id, "run_id": run_id, "text": text}
    return message(
        message_id, text, seal("message.completed", data, Provenance("user", "chat", run_id)), "user"
    )
