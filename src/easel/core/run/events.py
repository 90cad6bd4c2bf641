"""The events of a run's log. Owns the data of each event type; `seal()` adds visibility and provenance."""

from collections.abc import Mapping
from typing import Any

from easel.core.principal import ActorKind
from easel.core.run.conversation import Step, ToolCall, ToolResult
from easel.core.run.status import Status
from easel.core.session.message import Message, message
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.ids import MessageId, RunId, answer_id

UNCLAIMED_RUN_ID = RunId("run_yet_to_be_claimed")


class RunEvents:
    """Seals the events that one actor adds to one run.

    `attempt` is in the deltas of a worker: the next attempt repeats the text of an unfinished step.
    """

    def __init__(
        self,
        run_id: RunId,
        *,
        agent_id: str,
        node_id: str,
        kind: ActorKind = ActorKind.AGENT,
        attempt: int | None = None,
    ) -> None:
        self._run_id = run_id
        self._attempt = {} if attempt is None else {"attempt": attempt}
        self._provenance = Provenance(agent_id, node_id, run_id, kind=kind)

    def _seal(self, event_type: str, data: Mapping[str, Any]) -> Envelope:
        return seal(event_type, data, self._provenance)

    def start(self, attempt: int) -> Envelope:
        return self._seal("run.start", {"attempt": attempt})

    @classmethod
    def unclaimed_start(cls, *, agent_id: str, node_id: str) -> Envelope:
        """Return a template of `run.start`. The store fills in run id and attempt when a run is claimed."""
        return cls(UNCLAIMED_RUN_ID, agent_id=agent_id, node_id=node_id).start(0)

    def delta(self, message_id: MessageId, text: str) -> Envelope:
        return self._seal("message.delta", {"message_id": message_id, "text": text, **self._attempt})

    def thought(self, message_id: MessageId, text: str) -> Envelope:
        return self._seal("reasoning.delta", {"message_id": message_id, "text": text, **self._attempt})

    def step(self, number: int, step: Step) -> Envelope:
        calls = [{"call_id": call.call_id, "tool": call.tool, "args": call.args} for call in step.calls]
        return self._seal("step.completed", {"step": number, "text": step.text, "calls": calls})

    def tool_call(self, call: ToolCall) -> Envelope:
        return self._seal(
            "tool.call",
            {"call_id": call.call_id, "run_id": self._run_id, "tool": call.tool, "args": call.args},
        )

    def tool_result(self, result: ToolResult) -> Envelope:
        outcome = {"error": result.value} if result.is_error else {"result": result.value}
        return self._seal(
            "tool.result", {"call_id": result.call_id, "run_id": self._run_id, "tool": result.tool, **outcome}
        )

    def end_with_message(
        self,
        message_id: MessageId,
        text: str,
        status: Status,
        error: str | None,
        *,
        is_truncated: bool = False,
    ) -> list[Envelope]:
        """Return the last events of a claimed run: the assistant's message, the status, and `done`."""
        reason = {"error": error} if error else {}
        message = {
            "role": "assistant",
            "message_id": message_id,
            "run_id": self._run_id,
            "text": text,
            "status": status.value,
            **reason,
            **({"truncated": True} if is_truncated else {}),
        }
        return [self._seal("message.completed", message), *self.end_without_message(status, error)]

    def end_without_message(self, status: Status, error: str | None = None) -> list[Envelope]:
        """Return the last events of a run that never started: its status and `done`."""
        outcome = {"status": status.value, **({"error": error} if error else {})}
        return [self._seal("run.status", outcome), self._seal("done", outcome)]


def message_of_unstarted_run(run_id: RunId) -> Message:
    """Return the empty assistant message for the thread, for a run that was cancelled before it started."""
    message_id = answer_id(run_id)
    data = {
        "role": "assistant",
        "message_id": message_id,
        "run_id": run_id,
        "text": "",
        "status": Status.CANCELLED.value,
    }
    return message(message_id, "", seal("message.completed", data, Provenance("user", "chat", run_id)))
