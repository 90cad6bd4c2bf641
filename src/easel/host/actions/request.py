"""The request to run an action, as callers send it, and its outcome, as they get it. CV-36, CV-45

Owns the checks that need no store. Does not know whether the action exists or may run.
"""

import secrets
from dataclasses import dataclass
from typing import Any

from easel.core.action.execution import ExecutionStatus, actor_of
from easel.core.action.transitions import ActionStart
from easel.core.principal import Principal
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.core.values.fingerprint import fingerprint
from easel.core.values.paths import refuse_nul
from easel.core.values.references import format_path, leaves
from easel.errors import BadInput
from easel.host.canvases.transactions import now_ms
from easel.ids import new_event_id

MAX_REQUEST_ID_LENGTH = 200
CLIENT, REFRESH = "client", "refresh"  # origins of a request


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRequest:
    """A request to run an action. `trigger` is its origin: a client or a refresh job."""

    canvas_id: str
    action_id: str
    input: Any
    client_id: str
    expected_revision: int | None = None
    request_id: str | None = None
    trigger: str = CLIENT
    has_gesture: bool = True  # False: the code of a page asks, without a gesture of a person

    def validate(self) -> None:
        """Raise BadInput for a malformed request id or a too deeply nested input."""
        name = self.request_id
        if name is not None and (not 0 < len(name) <= MAX_REQUEST_ID_LENGTH or not name.isprintable()):
            raise BadInput(problem=f"requestId must be 1 to {MAX_REQUEST_ID_LENGTH} printable characters.")
        if is_too_deep(self.input):
            raise BadInput(problem=f"input must not be nested deeper than {MAX_DEPTH} levels.")
        for path, leaf in leaves(self.input):
            if isinstance(leaf, str) and "\x00" in leaf:
                refuse_nul(leaf, f"input{format_path(path)}")

    @property
    def digest(self) -> str:
        """The digest of the request's content; a repeated request must have the same digest."""
        return fingerprint([self.action_id, self.input, self.expected_revision])

    @property
    def is_repeatable(self) -> bool:
        """Whether the caller may safely send the request again after a lost reply."""
        return self.request_id is not None or self.expected_revision is not None

    def to_start(self, principal: Principal, owner_id: str) -> ActionStart:
        """Return the start of a new execution that `owner_id` will run."""
        return ActionStart(
            principal=principal,
            actor=actor_of(principal, self.client_id, self.trigger),
            action_id=self.action_id,
            event_id=new_event_id(),
            owner_id=owner_id,
            now_ms=now_ms(),
            salt=secrets.token_hex(16),
            input=self.input,
            expected_revision=self.expected_revision,
            request_id=self.request_id,
            request_digest=self.digest if self.request_id else None,
            is_attended=self.trigger == CLIENT,
            has_gesture=self.has_gesture,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The outcome of an action request.

    `status` is `failed` only in the reply to a cancel: other failures are raised.
    """

    status: ExecutionStatus
    event_id: str
    revision: int
    result: Any = None
    has_result: bool = False
    resolved: Any = None
