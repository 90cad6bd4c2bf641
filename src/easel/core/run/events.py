"""The events of a run's log. Owns the data of each event type; `seal()` adds visibility and provenance."""

from collections.abc import Mapping
from typing import Any

from easel.core.document.document import Author
from easel.core.principal import ActorKind
from easel.core.run.conversation import ContextStart, Step, ToolCall, ToolResult, Usage
from easel.core.run.instructions import Instructions
from easel.core.run.status import Status
from easel.core.session.message import Message, message
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.message_text import MessageText
from easel.ids import MessageId, RunId, answer_id

UNCLAIMED_RUN_ID = RunId("run_yet_to_be_claimed")  # in a `run.start` that the store completes at a claim


class RunEvents:
    """Seals the events that one actor adds to one run.

    `attempt` is in the deltas of a worker: the next attempt repeats the text of an unfinished step. So is
    `try_number`, if it is not 1: a worker repeats a step whose answer broke off. RS-80
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
        self.try_number = 1
        self._provenance = Provenance(agent_id, node_id, run_id, kind=kind)

    def _seal(self, event_type: str, data: Mapping[str, Any]) -> Envelope:
        return seal(event_type, data, self._provenance)

    def start(self, attempt: int) -> Envelope:
        return self._seal("run.start", {"attempt": attempt})

    def delta(self, message_id: MessageId, text: str) -> Envelope:
        return self._seal("message.delta", self._piece(message_id, text))

    def thought(self, message_id: MessageId, text: str) -> Envelope:
        return self._seal("reasoning.delta", self._piece(message_id, text))

    def _piece(self, message_id: MessageId, text: str) -> dict[str, Any]:
        number = {"try": self.try_number} if self.try_number > 1 else {}
        return {"message_id": message_id, "text": text, **self._attempt, **number}

    def step(
        self,
        number: int,
        step: Step,
        start: ContextStart | None = None,
        instructions: Instructions | None = None,
    ) -> Envelope:
        """Return the event of a model's answer, with what a later worker needs to send it back.

        `instructions` are those of the run, with its first step only.
        """
        calls = [{"call_id": call.call_id, "tool": call.tool, "args": call.args} for call in step.calls]
        data: dict[str, Any] = {"step": number, "text": step.text, "calls": calls}
        if step.usage is not None:
            data["usage"] = step.usage.to_json()
        if step.provider_data is not None:
            data["provider"] = {"name": step.provider_data.provider, "data": step.provider_data.data}
            data["prefix"] = step.prefix
        if start is not None:
            data["context"] = start.to_json()
        if instructions is not None:
            data["instructions"] = instructions.to_text()
        return self._seal("step.completed", data)

    def hidden_update(self, message_id: MessageId, text: str | MessageText, author: Author) -> Envelope:
        """Return the event of a hidden canvas update, which is internal. CT-51, RS-36"""
        data = {
            "role": "user",
            "message_id": message_id,
            "run_id": self._run_id,
            "text": text,
            "hidden": True,
            "author": author.kind.value,
        }
        return self._seal("message.completed", data)

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
        text: str | MessageText,
        status: Status,
        error: str | None,
        *,
        is_truncated: bool = False,
        usage: Usage | None = None,
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
        return [self._seal("message.completed", message), *self.end_without_message(status, error, usage)]

    def end_without_message(
        self, status: Status, error: str | None = None, usage: Usage | None = None
    ) -> list[Envelope]:
        """Return the last events of a run that never started: its status and `done`."""
        outcome = {"status": status.value, **({"error": error} if error else {})}
        tokens = {"usage": usage.to_json()} if usage else {}
        return [self._seal("run.status", outcome), self._seal("done", {**outcome, **tokens})]


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
