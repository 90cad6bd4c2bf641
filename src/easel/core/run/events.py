"""The events of a run's log, each made in one place."""

from collections.abc import Mapping
from typing import Any

from easel.core.run.conversation import Step, ToolCall, ToolResult
from easel.core.run.status import Status
from easel.core.session.message import Message, message
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.ids import MessageId, RunId, answer_id

YET_TO_BE_CLAIMED = RunId("run_yet_to_be_claimed")


class RunEvents:
    """Seals the events that one actor adds to one run."""

    def __init__(self, run_id: RunId, *, agent_id: str, node_id: str) -> None:
        self._run_id = run_id
        self._provenance = Provenance(agent_id, node_id, run_id)

    def _seal(self, event_type: str, data: Mapping[str, Any]) -> Envelope:
        return seal(event_type, data, self._provenance)

    def started(self, attempt: int) -> Envelope:
        return self._seal("run.start", {"attempt": attempt})

    @classmethod
    def opening(cls, *, agent_id: str, node_id: str) -> Envelope:
        """`run.start` of a run that is yet to be claimed: the claim itself knows, and fills in, which run and which attempt."""
        return cls(YET_TO_BE_CLAIMED, agent_id=agent_id, node_id=node_id).started(0)

    def delta(self, message_id: MessageId, text: str) -> Envelope:
        return self._seal("message.delta", {"message_id": message_id, "text": text})

    def thought(self, message_id: MessageId, text: str) -> Envelope:
        return self._seal("reasoning.delta", {"message_id": message_id, "text": text})

    def step(self, number: int, step: Step) -> Envelope:
        calls = [{"call_id": call.call_id, "tool": call.tool, "args": call.args} for call in step.calls]
        return self._seal("step.completed", {"step": number, "text": step.text, "calls": calls})

    def calling(self, call: ToolCall) -> Envelope:
        return self._seal(
            "tool.call",
            {"call_id": call.call_id, "run_id": self._run_id, "tool": call.tool, "args": call.args},
        )

    def called(self, result: ToolResult) -> Envelope:
        outcome = {"error": result.value} if result.is_error else {"result": result.value}
        return self._seal(
            "tool.result", {"call_id": result.call_id, "run_id": self._run_id, "tool": result.tool, **outcome}
        )

    def ending(self, message_id: MessageId, text: str, status: Status, error: str | None) -> list[Envelope]:
        """How a claimed run ends: the assistant's message, the status, and `done`, after which nothing follows."""
        why = {"error": error} if error else {}
        message = {
            "role": "assistant",
            "message_id": message_id,
            "run_id": self._run_id,
            "text": text,
            "status": status.value,
            **why,
        }
        return [self._seal("message.completed", message), *self.stopping(status, error)]

    def stopping(self, status: Status, error: str | None = None) -> list[Envelope]:
        """How a run ends that never started: no message, only its status and `done`."""
        outcome = {"status": status.value, **({"error": error} if error else {})}
        return [self._seal("run.status", outcome), self._seal("done", outcome)]


def never_begun(run_id: RunId) -> Message:
    """Return the message that closes a run cancelled before it started; its log has no assistant message."""
    message_id = answer_id(run_id)
    data = {
        "role": "assistant",
        "message_id": message_id,
        "run_id": run_id,
        "text": "",
        "status": Status.CANCELLED.value,
    }
    return message(message_id, "", seal("message.completed", data, Provenance("user", "chat", run_id)))
