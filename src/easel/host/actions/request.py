"""What a caller asks for when a canvas's button is pressed, checked before anything is looked up. CV-36, CV-45"""

from dataclasses import dataclass
from typing import Any

from easel.core.action.transitions import Press
from easel.core.canvas.actions import fingerprint
from easel.core.canvas.execution import actor_of
from easel.core.principal import Principal
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.errors import BadInput
from easel.host.canvases.transactions import now_ms
from easel.ids import new_event_id

MAX_REQUEST_ID_LENGTH = 200
CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRequest:
    """What a caller sends. `trigger` says what pressed the button: a client, or a refresh."""

    canvas_id: str
    action_id: str
    input: Any
    client_id: str
    expected_revision: int | None = None
    request_id: str | None = None
    trigger: str = CLIENT

    def check(self) -> None:
        name = self.request_id
        if name is not None and (not 0 < len(name) <= MAX_REQUEST_ID_LENGTH or not name.isprintable()):
            raise BadInput(problem=f"requestId is 1 to {MAX_REQUEST_ID_LENGTH} printable characters.")
        if is_too_deep(self.input):
            raise BadInput(problem=f"input: is nested deeper than {MAX_DEPTH} levels.")

    @property
    def digest(self) -> str:
        """Of all that makes the same request the same."""
        return fingerprint([self.action_id, self.input, self.expected_revision])

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be sent again by who does not know that it has arrived."""
        return self.request_id is not None or self.expected_revision is not None

    def press(self, principal: Principal, owner_id: str) -> Press:
        return Press(
            principal=principal,
            actor=actor_of(principal, self.client_id, self.trigger),
            action_id=self.action_id,
            event_id=new_event_id(),
            owner_id=owner_id,
            now_ms=now_ms(),
            input=self.input,
            expected_revision=self.expected_revision,
            request_id=self.request_id,
            request_digest=self.digest if self.request_id else None,
            is_attended=self.trigger == CLIENT,
        )
