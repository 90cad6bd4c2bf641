"""Messages of a session, by the user and by the assistant. Owns their stored form."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import OffloadedValue, mentioned_artifacts, offload_large_values
from easel.ids import ArtifactId, MessageId, RunId, question_id


@dataclass(frozen=True, slots=True)
class Message:
    """A message to store.

    `content` is JSON: the text, or a marker if the text has Base64 over 2 KB and was offloaded (RS-35). Long
    plain text is not offloaded. `event` is added to the thread, for messages that are not in a run's log.
    """

    message_id: MessageId
    content: str
    offloaded: tuple[OffloadedValue, ...] = ()
    refers_to: frozenset[ArtifactId] = frozenset()
    event: Envelope | None = None
    offloaded_text: ArtifactId | None = None  # the artifact with the complete text, if it was offloaded
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
    event_refers_to = event.refers_to if event else frozenset[ArtifactId]()
    text_artifact = offloaded[0].artifact_id if offloaded else None
    return Message(
        message_id,
        content,
        offloaded + (event.offloaded if event else ()),
        mentioned_artifacts(content, offloaded) | event_refers_to,
        event,
        text_artifact,
        role,
    )


def question(run_id: RunId, text: str) -> Message:
    """Return the user's message. It is added to the thread before all events of the run that answers it."""
    message_id = question_id(run_id)
    data = {"role": "user", "message_id": message_id, "run_id": run_id, "text": text}
    return message(
        message_id, text, seal("message.completed", data, Provenance("user", "chat", run_id)), "user"
    )
