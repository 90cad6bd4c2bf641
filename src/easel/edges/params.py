"""The params of the gateway's methods. The field names are those of the specification."""
# ruff: noqa: N815

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, to_builtins

from easel.core.action.execution import ExecutionStatus
from easel.core.canvas.assets import asset_content, decode_base64
from easel.core.session.session import MAIN_ALIAS
from easel.core.stream.log import LAST_CURSOR
from easel.edges.decoding import Params
from easel.edges.paging import DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS
from easel.errors import BadInput
from easel.host.canvases.drafts import Draft
from easel.host.canvases.library import MAX_COUNTED

MAX_OFFSET = MAX_COUNTED  # of a list; `after` reaches every canvas
MAX_CANVASES = 500  # of one page; a larger limit means this one. RS-67
MAX_CLIENT_ID_LENGTH = 128

Revision = Annotated[int, Meta(ge=0, le=LAST_CURSOR)]
VersionNumber = Annotated[int, Meta(ge=1, le=LAST_CURSOR)]


class OfCanvas(Params, kw_only=True):
    """Params of a method for one canvas. A canvas of another agent than `agentId` is not found. RS-67"""

    canvasId: str
    agentId: str | None = None


class ListCanvases(Params):
    agentId: str | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1)] = 200  # at most MAX_CANVASES are returned
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] | None = None


class ListItems(Params):
    """A page of a list; `after` is `next` of the page before."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)] = DEFAULT_PAGE_ITEMS


class ListOfCanvas(OfCanvas):
    """A page of a list of one canvas; `after` is `next` of the page before."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)] = DEFAULT_PAGE_ITEMS


class ListConfirmations(OfCanvas):
    """A page of confirmations, newest first; `before` is `next` of the page before."""

    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)] = DEFAULT_PAGE_ITEMS


class OpenCanvas(OfCanvas):
    """`target` is a word of GSV; a view is always of the client that opens it."""

    clientId: str | None = None
    target: Any = None


class EncodedAsset(Params):
    """An asset that is not text, such as an image or a font."""

    base64: str


class WriteCanvas(Params):
    canvasId: str | None = None  # None: made of the title
    agentId: str | None = None
    title: str | None = None
    mode: str | None = None
    ownerSessionKey: str | None = None
    spec: dict[str, Any] | None = None
    state: dict[str, Any] | None = None
    assets: dict[str, str | EncodedAsset] | None = None
    accepted: bool | None = None
    expectedRevision: Revision | None = None


class PatchCanvas(OfCanvas):
    statePatch: list[Any] | None = None
    spec: dict[str, Any] | None = None
    title: str | None = None
    mode: str | None = None
    ownerSessionKey: str | UnsetType | None = UNSET  # None: the main session of the agent
    expectedRevision: Revision | None = None


class DeleteCanvas(OfCanvas):
    expectedRevision: Revision | None = None


class RunAction(OfCanvas):
    actionId: str
    input: dict[str, Any] | None = None
    expectedRevision: Revision | None = None
    requestId: str | None = None
    hasGesture: bool = True  # the shell reports `false` for a page that asks without a person's gesture


class InvokeTool(Params):
    tool: str
    args: dict[str, Any] | None = None


class Confirmation(Params):
    confirmationId: str
    approve: bool
    agentId: str | None = None


class CancelAction(OfCanvas):
    eventId: str
    onlyRunning: bool = False  # do not cancel an execution that waits for confirmation


class AcceptSpec(OfCanvas):
    """`weakenedTools` and `createdAt` are as the person has seen them; else nothing is accepted."""

    revision: Revision
    weakenedTools: dict[str, str] | None = None
    createdAt: int | None = None


class ListVersions(OfCanvas):
    """With `version`, only that one is returned, with its spec and the list of its assets.

    With `path` too, only that asset of the version, with its content.
    """

    version: VersionNumber | None = None
    path: str | None = None
    before: VersionNumber | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    onlyAccepted: bool = False


class RestoreCanvas(OfCanvas, kw_only=True):
    version: VersionNumber
    expectedRevision: Revision | None = None


class ListRecords(OfCanvas):
    status: ExecutionStatus | None = None
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class EnterInput(OfCanvas):
    """`was` is the value that the caller last saw; nothing is written if the state has another value."""

    path: str
    value: Any
    was: Any = UNSET
    expectedRevision: Revision | None = None


class ReportPage(OfCanvas):
    what: Literal["source", "nonce", "size", "rate", "kind", "stop"]
    detail: Annotated[str, Meta(max_length=500)] = ""
    count: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1


class CloseCanvas(OpenCanvas):
    viewId: str | None = None


class NamedAsset(OfCanvas):
    path: str


class PutAsset(NamedAsset, kw_only=True):
    text: str | None = None
    base64: str | None = None
    expectedRevision: Revision | None = None


class DeleteAsset(NamedAsset, kw_only=True):
    expectedRevision: Revision | None = None


def check_client_id(value: str, member: str) -> None:
    if not 0 < len(value) <= MAX_CLIENT_ID_LENGTH or not value.isprintable():
        raise BadInput(problem=f"{member} must be 1 to {MAX_CLIENT_ID_LENGTH} printable characters.")


def draft(params: WriteCanvas) -> Draft:
    return Draft(
        canvas_id=params.canvasId or "",
        agent_id=params.agentId,
        title=params.title,
        owner_session_key=MAIN_ALIAS if params.ownerSessionKey == "" else params.ownerSessionKey,
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


# --- the connection -----------------------------------------------------------------------------------------

PROTOCOL = 1
MAX_PROGRESS_LENGTH = 65_536  # characters


class ClientInfo(Params):
    id: str
    version: str = ""
    platform: str = ""
    mode: str = "client"


class Auth(Params):
    token: str | None = None  # None: as if `auth` were not sent


class Connect(Params):
    client: ClientInfo
    minProtocol: int = PROTOCOL
    maxProtocol: int = PROTOCOL
    auth: Auth | None = None
    tools: Any = None  # the tools of a node; validated by the node registry
    nodeRuntime: Any = None  # of a node of GSV; not used


class Subscribe(OfCanvas):
    afterSeq: Annotated[int, Meta(ge=0, le=LAST_CURSOR)] | None = None


class ToolResultParams(Params):
    """Sent by a node: exactly one of `result` and `error`."""

    callId: str
    result: Any = UNSET
    error: str | UnsetType | None = UNSET


class ToolProgress(Params):
    callId: str
    text: Annotated[str, Meta(max_length=MAX_PROGRESS_LENGTH)]
