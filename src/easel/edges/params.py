"""What the gateway's verbs take. Their words are the specification's own."""
# ruff: noqa: N815

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, to_builtins

from easel.core.canvas.assets import content_of, decoded
from easel.core.canvas.execution import ExecutionStatus
from easel.core.stream.log import LAST_CURSOR
from easel.errors import BadInput
from easel.host.canvases.library import Draft

Revision = Annotated[int, Meta(ge=0, le=LAST_CURSOR)]


class Params(Struct, forbid_unknown_fields=True):
    """A word that is not known is a slip of the pen, and is told."""


class Nothing(Params):
    pass


class ListCanvases(Params):
    agentId: str | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 200


class NamedCanvas(Params):
    canvasId: str


class EncodedAsset(Params):
    """What is no text: a picture, a font."""

    base64: str


class WriteCanvas(Params):
    canvasId: str
    agentId: str | None = None
    title: str | None = None
    ownerSessionKey: str | None = None
    spec: dict[str, Any] | None = None
    state: dict[str, Any] | None = None
    assets: dict[str, str | EncodedAsset] | None = None
    accepted: bool | None = None
    expectedRevision: Revision | None = None


class PatchCanvas(Params):
    canvasId: str
    statePatch: list[Any] | None = None
    spec: dict[str, Any] | None = None
    title: str | None = None
    expectedRevision: Revision | None = None


class DeleteCanvas(Params):
    canvasId: str
    expectedRevision: Revision | None = None


class RunAction(Params):
    canvasId: str
    actionId: str
    input: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    expectedRevision: Revision | None = None
    requestId: str | None = None


class Confirmation(Params):
    confirmationId: str
    approve: bool


class CancelAction(Params):
    canvasId: str
    eventId: str
    onlyRunning: bool = (
        False  # what waits for a person goes on to wait: who stops for somebody else answers nothing for them
    )


class AcceptSpec(Params):
    canvasId: str
    revision: Revision


class ListRecords(Params):
    canvasId: str
    status: ExecutionStatus | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class EnterInput(Params):
    """`was` is what stood there before, as far as the caller knows: if something else stands there now, nothing is written."""

    canvasId: str
    path: str
    value: Any
    was: Any = UNSET
    expectedRevision: Revision | None = None


class ReportPage(Params):
    canvasId: str
    what: Literal["source", "nonce", "size", "rate", "kind", "stop"]
    detail: Annotated[str, Meta(max_length=500)] = ""
    count: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1


class CloseCanvas(Params):
    canvasId: str
    viewId: str | None = None


class NamedAsset(Params):
    canvasId: str
    path: str


class PutAsset(Params):
    canvasId: str
    path: str
    text: str | None = None
    base64: str | None = None
    expectedRevision: Revision | None = None


class DeleteAsset(Params):
    canvasId: str
    path: str
    expectedRevision: Revision | None = None


def draft(asked: WriteCanvas) -> Draft:
    return Draft(
        canvas_id=asked.canvasId,
        agent_id=asked.agentId,
        title=asked.title,
        owner_session_key=asked.ownerSessionKey,
        spec=asked.spec,
        state=asked.state,
        assets=None
        if asked.assets is None
        else {path: content_of(path, to_builtins(asset)) for path, asset in asked.assets.items()},
        is_accepted=asked.accepted,
        expected_revision=asked.expectedRevision,
    )


def content(asked: PutAsset) -> bytes:
    if (asked.text is None) == (asked.base64 is None):
        raise BadInput(problem="An asset comes as `text` or as `base64`, one of the two.")
    if asked.text is not None:
        return asked.text.encode()
    return decoded(asked.base64 or "", "base64")
