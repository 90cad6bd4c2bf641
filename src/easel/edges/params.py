"""The params of the gateway's methods. The field names are those of the specification."""
# ruff: noqa: N815

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, to_builtins

from easel.core.canvas.assets import asset_content, decode_base64
from easel.core.canvas.execution import ExecutionStatus
from easel.core.stream.log import LAST_CURSOR
from easel.edges.decoding import Params
from easel.edges.paging import DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS
from easel.errors import BadInput
from easel.host.canvases.drafts import Draft

Revision = Annotated[int, Meta(ge=0, le=LAST_CURSOR)]
VersionNumber = Annotated[int, Meta(ge=1, le=LAST_CURSOR)]


class ListCanvases(Params):
    agentId: str | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 200


class ListItems(Params):
    """A page of a list; `after` is `next` of the page before."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)] = DEFAULT_PAGE_ITEMS


class ListOfCanvas(ListItems, kw_only=True):
    canvasId: str


class ListConfirmations(Params):
    """A page of confirmations, newest first; `before` is `next` of the page before."""

    canvasId: str
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)] = DEFAULT_PAGE_ITEMS


class NamedCanvas(Params):
    canvasId: str


class EncodedAsset(Params):
    """An asset that is not text, such as an image or a font."""

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
    hasGesture: bool = True  # the shell reports `false` for a page that asks without a person's gesture


class Confirmation(Params):
    confirmationId: str
    approve: bool


class CancelAction(Params):
    canvasId: str
    eventId: str
    onlyRunning: bool = False  # do not cancel an execution that waits for confirmation


class AcceptSpec(Params):
    """`weakenedTools` are those that the person has seen; nothing is accepted if they have changed since."""

    canvasId: str
    revision: Revision
    weakenedTools: dict[str, str] | None = None


class ListVersions(Params):
    """With `version`, only that one is returned, with its spec and the list of its assets."""

    canvasId: str
    agentId: str | None = None
    version: VersionNumber | None = None
    before: VersionNumber | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class RestoreCanvas(Params):
    canvasId: str
    version: VersionNumber
    agentId: str | None = None
    expectedRevision: Revision | None = None


class ListRecords(Params):
    canvasId: str
    status: ExecutionStatus | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class EnterInput(Params):
    """`was` is the value that the caller last saw; nothing is written if the state has another value."""

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


def draft(params: WriteCanvas) -> Draft:
    return Draft(
        canvas_id=params.canvasId,
        agent_id=params.agentId,
        title=params.title,
        owner_session_key=params.ownerSessionKey,
        spec=params.spec,
        state=params.state,
        assets=None
        if params.assets is None
        else {path: asset_content(path, to_builtins(asset)) for path, asset in params.assets.items()},
        is_accepted=params.accepted,
        expected_revision=params.expectedRevision,
    )


def content(params: PutAsset) -> bytes:
    if (params.text is None) == (params.base64 is None):
        raise BadInput(problem="An asset must have either `text` or `base64`.")
    if params.text is not None:
        return params.text.encode()
    return decode_base64(params.base64 or "", "base64")
