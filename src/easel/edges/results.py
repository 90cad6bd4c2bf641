"""The results of the gateway's methods. The field names are those of the specification.

A member with the default UNSET is absent unless it has a value. No member is ever null.
"""
# ruff: noqa: N815

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from easel.core.stream.payloads import Actor, ErrorOfAction, Milliseconds

NextCursor = Annotated[str | UnsetType, Meta(description="Cursor of the next page; absent on the last.")]
NextNumber = Annotated[int | UnsetType, Meta(description="Cursor of the next page; absent on the last.")]


class Result(Struct, kw_only=True, forbid_unknown_fields=True):
    """The result of a method."""

    warnings: Annotated[
        list[str] | UnsetType,
        Meta(description="What was ignored in the request, and what may be wrong in a spec."),
    ] = UNSET


class ResultPart(Struct, forbid_unknown_fields=True):
    """A part of a result."""


class Ok(Result):
    ok: Annotated[bool, Meta(description="Always true.")]


class Pong(Result):
    """Empty: the connection carries answers."""


# --- canvases -----------------------------------------------------------------------------------------------


class CanvasDescriptor(ResultPart):
    canvasId: str
    agentId: str
    title: str
    ownerSessionKey: str
    mode: Annotated[str, Meta(description="html or markdown")]
    entryAsset: str
    createdAt: Milliseconds
    updatedAt: Milliseconds
    revision: int
    lastSeq: Annotated[int, Meta(description="Subscribe after this event.")]
    createdBy: Annotated[
        str | UnsetType,
        Meta(description="The person who made it, who may delete it as an admin may. Absent: Easel itself."),
    ] = UNSET


class CanvasAuthor(ResultPart):
    kind: Annotated[str, Meta(description="person, agent, service or node")]
    name: str


class ViewOfCanvas(ResultPart):
    viewId: str
    clientId: str
    userId: Annotated[
        str | UnsetType, Meta(description="The person whose view it is, or who answers for the program.")
    ] = UNSET


class FailingRefresh(ResultPart):
    """A refresh job whose last execution failed, as in `canvas.refresh.failed`."""

    refreshId: str
    actionId: str
    failures: Annotated[int, Meta(description="In a row.")]
    retryInMs: int
    error: ErrorOfAction | UnsetType = UNSET


class CanvasResult(Result):
    """A canvas, after the change of the method."""

    descriptor: CanvasDescriptor
    spec: Mapping[str, Any]
    state: Mapping[str, Any]
    assets: Annotated[list[str], Meta(description="The paths of its assets.")]
    accepted: bool
    specRevision: Annotated[int, Meta(description="Of the last change that needs acceptance.")]
    views: list[ViewOfCanvas]
    revision: int
    writtenBy: CanvasAuthor | UnsetType = UNSET
    titledBy: Annotated[
        CanvasAuthor | UnsetType, Meta(description="The author of the title, if another than `writtenBy`.")
    ] = UNSET
    weakenedTools: Annotated[
        Mapping[str, str] | UnsetType,
        Meta(description="Tools that now claim less effect than when the spec was accepted, with reasons."),
    ] = UNSET
    failing: list[FailingRefresh] | UnsetType = UNSET


class CanvasPage(Result):
    canvases: list[CanvasDescriptor]
    next: NextCursor = UNSET
    count: Annotated[
        int | UnsetType, Meta(description="Of all canvases; absent in an answer to `after`.")
    ] = UNSET


class DeletedCanvas(Ok):
    canvasId: str
    deleted: Annotated[bool, Meta(description="False if there was none.")]


class OpenedCanvas(Ok):
    canvasId: str
    viewId: str
    viewUrl: str
    revision: int
    lastSeq: int


class ClosedCanvas(Ok):
    canvasId: str
    closed: Annotated[list[str], Meta(description="The ids of the closed views.")]


class ReportedPage(Result):
    canvasId: str
    reported: bool


class CanvasSubscription(Result):
    canvasId: str
    subscribed: bool


# --- assets and versions ------------------------------------------------------------------------------------


class AssetView(ResultPart):
    path: str
    size: int
    mediaType: str


class AssetPage(Result):
    canvasId: str
    assets: list[AssetView]
    revision: int
    next: NextCursor = UNSET


class StoredAsset(Result):
    canvasId: str
    path: str
    size: int
    mediaType: str
    revision: int


class AssetContent(StoredAsset):
    text: str | UnsetType = UNSET
    base64: Annotated[str | UnsetType, Meta(description="The content, if it is not UTF-8.")] = UNSET


class DeletedAsset(Result):
    canvasId: str
    path: str
    deleted: bool
    revision: int


class ChangedPart(ResultPart):
    path: Annotated[str, Meta(description="Such as `spec.actions.save`, or the path of an asset.")]
    change: Annotated[str, Meta(description="added, removed or changed")]


class CanvasVersion(ResultPart):
    version: int
    revision: Annotated[int, Meta(description="The last revision with this content.")]
    title: str
    ownerSessionKey: str
    accepted: bool
    at: Milliseconds | UnsetType = UNSET
    writtenBy: CanvasAuthor | UnsetType = UNSET
    changed: Annotated[list[ChangedPart] | UnsetType, Meta(description="Absent if it is not known.")] = UNSET
    moreChanges: Annotated[int | UnsetType, Meta(description="How many `changed` does not name.")] = UNSET
    restored: Annotated[int | UnsetType, Meta(description="The version that was restored.")] = UNSET
    spec: Annotated[Mapping[str, Any] | UnsetType, Meta(description="If the params name a version.")] = UNSET
    assets: Annotated[list[AssetView] | UnsetType, Meta(description="If the params name a version.")] = UNSET


class VersionsResult(Result):
    """A page of versions with `current`; one version; or, from `canvasId` on, one asset of a version."""

    current: CanvasVersion | UnsetType = UNSET
    versions: list[CanvasVersion] | UnsetType = UNSET
    next: NextNumber = UNSET
    canvasId: str | UnsetType = UNSET
    version: int | UnsetType = UNSET
    path: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    mediaType: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET


# --- actions ------------------------------------------------------------------------------------------------


NeedsAnother = Annotated[
    str | UnsetType, Meta(description="`another`: only another person than who asked may approve.")
]
AskedBy = Annotated[
    str | UnsetType, Meta(description="The person who asked, or who answers for the program that did.")
]


class EndedAction(Result, tag_field="status"):
    """The outcome of an action. `ok` is true only if it has completed; `canvas.cancel` does not send it."""

    eventId: str
    revision: int
    ok: bool | UnsetType = UNSET


class ActionCompleted(EndedAction, tag="completed"):
    result: Any = UNSET


class ActionRefused(EndedAction, tag="refused"):
    """Rejected by a person, or not confirmed in time."""


class ActionCancelled(EndedAction, tag="cancelled"):
    """By `canvas.cancel`."""


class ActionAsked(Result, tag_field="status", tag="needs_confirmation"):
    confirmationId: str
    resolved: Annotated[
        Mapping[str, Any], Meta(description="What exactly will run; a person confirms this and nothing else.")
    ]
    ok: bool | UnsetType = UNSET
    approval: NeedsAnother = UNSET
    askedBy: AskedBy = UNSET


ActionOutcome = ActionCompleted | ActionRefused | ActionCancelled | ActionAsked


class ActionRecord(ResultPart):
    """An execution. Its result is not part of it: `saveAs` stores that in the state."""

    eventId: str
    canvasId: str
    actionId: str
    status: Annotated[str, Meta(description="asked, running, completed, failed or refused")]
    actor: Actor
    tool: str | UnsetType = UNSET
    confirmedBy: str | UnsetType = UNSET
    requestId: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    askedAt: Milliseconds | UnsetType = UNSET
    startedAt: Milliseconds | UnsetType = UNSET
    endedAt: Milliseconds | UnsetType = UNSET
    error: ErrorOfAction | UnsetType = UNSET


class PendingConfirmation(ActionRecord, kw_only=True):
    confirmationId: str
    resolved: Mapping[str, Any]
    runsOn: Annotated[str | UnsetType, Meta(description="Where its tool runs, in words.")] = UNSET
    destructive: bool | UnsetType = UNSET
    approval: NeedsAnother = UNSET
    askedBy: AskedBy = UNSET
    mayApprove: Annotated[
        bool | UnsetType, Meta(description="False: the caller asked, and another person must approve.")
    ] = UNSET


class RecordPage(Result):
    records: list[ActionRecord]
    next: NextCursor = UNSET


class ConfirmationPage(Result):
    confirmations: list[PendingConfirmation]
    next: NextCursor = UNSET


# --- tools and nodes ----------------------------------------------------------------------------------------


class HintsOfTool(ResultPart):
    readOnlyHint: bool
    idempotentHint: bool
    destructiveHint: bool


class ListedTool(ResultPart):
    name: str
    description: str
    inputSchema: Annotated[Mapping[str, Any], Meta(description="A JSON schema.")]
    annotations: HintsOfTool


class ListedNode(ResultPart):
    nodeId: str
    platform: str
    version: str
    tools: Annotated[list[str], Meta(description="The full names of its tools.")]
    connectedAt: Milliseconds | UnsetType = UNSET
    bash: Annotated[
        str | UnsetType, Meta(description="Of the machine of Easel: how commands are isolated.")
    ] = UNSET


class ToolPage(Result):
    tools: list[ListedTool]
    next: NextCursor = UNSET


class NodePage(Result):
    nodes: list[ListedNode]
    next: NextCursor = UNSET


class InvokedTool(Ok):
    result: Any


# --- the connection -----------------------------------------------------------------------------------------


class ServerInfo(ResultPart):
    version: str
    connectionId: str


class Features(ResultPart):
    methods: list[str]
    events: list[str]


class GatewayNodeLimits(ResultPart):
    frameBytes: int
    resultBytes: int


class Hello(Result, tag="hello-ok"):
    """The answer to `connect`: what the connection may send, and what it gets."""

    protocol: int
    server: ServerInfo
    features: Features
    limits: Annotated[GatewayNodeLimits | UnsetType, Meta(description="In node mode.")] = UNSET


class Receipt(Ok):
    """The answer to a node's result or progress."""

    dropped: Annotated[bool | UnsetType, Meta(description="The call had ended already.")] = UNSET
