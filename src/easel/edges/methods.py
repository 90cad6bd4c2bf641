"""The gateway's verbs, one row each: what a verb takes and what it does. Over `/ws` and over `POST /api/rpc` they are the same.

What only a connection can do (`connect`, `canvas.subscribe`) has its name here and its handler where connections are.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from easel.core.canvas.assets import ENTRY, Asset
from easel.core.canvas.canvas import Canvas, WholeCanvas
from easel.core.principal import Principal
from easel.core.stream.log import LAST_CURSOR
from easel.core.tool.definition import ToolDefinition
from easel.errors import BadInput, NotFound
from easel.host.canvas_library import Draft
from easel.host.canvas_views import NO_CONNECTION
from easel.host.host import Host

# They need a connection that stays, which a single request is not.
OF_A_CONNECTION = frozenset({"connect", "tool.result", "canvas.subscribe", "canvas.unsubscribe"})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Revision = Annotated[int, Meta(ge=0, le=LAST_CURSOR)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a verb, and from where."""

    host: Host
    who: Principal
    client_id: str = "http"
    connection_id: str = NO_CONNECTION


@dataclass(frozen=True, slots=True)
class Method:
    params: type[Any]
    handler: Callable[[Caller, Any], Awaitable[Any]]
    writes: bool = False  # changes a canvas, so its params have `expectedRevision`


async def called(caller: Caller, name: str, params: Any) -> Any:
    method = METHODS.get(name)
    if method is None:
        raise NotFound(what="method", id=name[:200])
    return await method.handler(caller, fitted(name, params, method.params))


def fitted(name: str, params: Any, shape: type[Any]) -> Any:
    try:
        return msgspec.convert({} if params is None else params, type=shape)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"params of {name} do not fit: {problem}.") from None


# --- what verbs take ----------------------------------------------------------------------------------------------------


class _Params(Struct, forbid_unknown_fields=True):
    """A word that is not known is a slip of the pen, and is told."""


class Nothing(_Params):
    pass


class ListCanvases(_Params):
    agentId: str | None = None  # noqa: N815 - the specification's own word, as all of these
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 200


class NamedCanvas(_Params):
    canvasId: str  # noqa: N815


class WriteCanvas(_Params):
    canvasId: str  # noqa: N815
    agentId: str | None = None  # noqa: N815
    title: str | None = None
    ownerSessionKey: str | None = None  # noqa: N815
    spec: dict[str, Any] | None = None
    state: dict[str, Any] | None = None
    assets: dict[str, str] | None = None
    expectedRevision: Revision | None = None  # noqa: N815


class PatchCanvas(_Params):
    canvasId: str  # noqa: N815
    statePatch: list[Any] | None = None  # noqa: N815
    spec: dict[str, Any] | None = None
    title: str | None = None
    expectedRevision: Revision | None = None  # noqa: N815


class DeleteCanvas(_Params):
    canvasId: str  # noqa: N815
    expectedRevision: Revision | None = None  # noqa: N815


class CloseCanvas(_Params):
    canvasId: str  # noqa: N815
    viewId: str | None = None  # noqa: N815


class NamedAsset(_Params):
    canvasId: str  # noqa: N815
    path: str


class PutAsset(_Params):
    canvasId: str  # noqa: N815
    path: str
    text: str | None = None
    base64: str | None = None
    expectedRevision: Revision | None = None  # noqa: N815


class DeleteAsset(_Params):
    canvasId: str  # noqa: N815
    path: str
    expectedRevision: Revision | None = None  # noqa: N815


# --- canvases -----------------------------------------------------------------------------------------------------------


async def list_canvases(caller: Caller, asked: ListCanvases) -> Any:
    found = await caller.host.canvases.list_canvases(caller.who, agent_id=asked.agentId, after=asked.after, limit=asked.limit)
    more = {"next": found[-1].canvas_id} if len(found) == asked.limit else {}
    return {"canvases": [descriptor(canvas) for canvas in found], **more}


async def get_canvas(caller: Caller, asked: NamedCanvas) -> Any:
    return canvas_view(await caller.host.canvases.get(caller.who, asked.canvasId))


async def create_canvas(caller: Caller, asked: WriteCanvas) -> Any:
    return canvas_view(await caller.host.canvases.create(caller.who, _draft(asked)))


async def upsert_canvas(caller: Caller, asked: WriteCanvas) -> Any:
    return canvas_view(await caller.host.canvases.upsert(caller.who, _draft(asked)))


async def patch_canvas(caller: Caller, asked: PatchCanvas) -> Any:
    patched = await caller.host.canvases.patch(
        caller.who,
        asked.canvasId,
        state_patch=asked.statePatch,
        spec=asked.spec,
        title=asked.title,
        expected_revision=asked.expectedRevision,
    )
    return canvas_view(patched)


async def delete_canvas(caller: Caller, asked: DeleteCanvas) -> Any:
    await caller.host.canvases.delete(caller.who, asked.canvasId, asked.expectedRevision)
    return {"canvasId": asked.canvasId, "deleted": True}


async def open_canvas(caller: Caller, asked: NamedCanvas) -> Any:
    view, whole = await caller.host.views.open(caller.who, asked.canvasId, caller.client_id, caller.connection_id)
    canvas = whole.canvas
    return {"viewId": view.view_id, "viewUrl": f"/canvas/{canvas.agent_id}/{canvas.canvas_id}", "revision": canvas.revision}


async def close_canvas(caller: Caller, asked: CloseCanvas) -> Any:
    if asked.viewId is None and caller.connection_id == NO_CONNECTION:
        raise BadInput(problem="viewId: say which view, for this request comes on no connection that has views of its own.")
    closed = await caller.host.views.close(caller.who, asked.canvasId, caller.connection_id, asked.viewId)
    if asked.viewId is not None and not closed:
        raise NotFound(what="view", id=asked.viewId[:200])
    return {"canvasId": asked.canvasId, "closed": closed}


# --- assets -------------------------------------------------------------------------------------------------------------


async def put_asset(caller: Caller, asked: PutAsset) -> Any:
    asset, revision = await caller.host.assets.put(caller.who, asked.canvasId, asked.path, _content(asked), asked.expectedRevision)
    return {"canvasId": asked.canvasId, **asset_view(asset), "revision": revision}


async def get_asset(caller: Caller, asked: NamedAsset) -> Any:
    """As text where that says it exactly."""
    asset, content, revision = await caller.host.assets.read(caller.who, asked.canvasId, asked.path)
    try:
        shown = {"text": content.decode()}
    except UnicodeDecodeError:
        shown = {"base64": base64.b64encode(content).decode()}
    return {"canvasId": asked.canvasId, **asset_view(asset), **shown, "revision": revision}


async def list_assets(caller: Caller, asked: NamedCanvas) -> Any:
    whole = await caller.host.canvases.get(caller.who, asked.canvasId)
    return {"canvasId": asked.canvasId, "assets": [asset_view(asset) for asset in whole.assets], "revision": whole.canvas.revision}


async def delete_asset(caller: Caller, asked: DeleteAsset) -> Any:
    revision = await caller.host.assets.delete(caller.who, asked.canvasId, asked.path, asked.expectedRevision)
    return {"canvasId": asked.canvasId, "path": asked.path, "deleted": True, "revision": revision}


# --- tools --------------------------------------------------------------------------------------------------------------


async def list_tools(caller: Caller, _: Nothing) -> Any:
    return {"tools": [_tool(tool) for tool in (await caller.host.tools.definitions(caller.who.user_id)).values()]}


METHODS: Mapping[str, Method] = {
    "canvas.list": Method(ListCanvases, list_canvases),
    "canvas.get": Method(NamedCanvas, get_canvas),
    "canvas.create": Method(WriteCanvas, create_canvas, writes=True),
    "canvas.upsert": Method(WriteCanvas, upsert_canvas, writes=True),
    "canvas.patch": Method(PatchCanvas, patch_canvas, writes=True),
    "canvas.delete": Method(DeleteCanvas, delete_canvas, writes=True),
    "canvas.open": Method(NamedCanvas, open_canvas),
    "canvas.close": Method(CloseCanvas, close_canvas),
    "canvas.asset.put": Method(PutAsset, put_asset, writes=True),
    "canvas.asset.get": Method(NamedAsset, get_asset),
    "canvas.asset.list": Method(NamedCanvas, list_assets),
    "canvas.asset.delete": Method(DeleteAsset, delete_asset, writes=True),
    "tools.list": Method(Nothing, list_tools),
}


# --- in and out of the wire's shapes ------------------------------------------------------------------------------------


def _draft(asked: WriteCanvas) -> Draft:
    return Draft(
        canvas_id=asked.canvasId,
        agent_id=asked.agentId,
        title=asked.title,
        owner_session_key=asked.ownerSessionKey,
        spec=asked.spec,
        state=asked.state,
        assets=None if asked.assets is None else {path: text.encode() for path, text in asked.assets.items()},
        expected_revision=asked.expectedRevision,
    )


def _content(asked: PutAsset) -> bytes:
    if (asked.text is None) == (asked.base64 is None):
        raise BadInput(problem="An asset comes as `text` or as `base64`, one of the two.")
    if asked.text is not None:
        return asked.text.encode()
    try:
        return base64.b64decode(asked.base64 or "", validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(problem="base64: is not Base64.") from None


def descriptor(canvas: Canvas) -> dict[str, Any]:
    """CV-14, and where its log stands: whoever subscribes after that misses nothing."""
    return {
        "canvasId": canvas.canvas_id,
        "agentId": canvas.agent_id,
        "title": canvas.title,
        "ownerSessionKey": canvas.session_key,
        "mode": canvas.spec.get("mode", "html"),
        "entryAsset": ENTRY,
        "createdAt": (canvas.created_at - _EPOCH) // _MILLISECOND,
        "updatedAt": (canvas.updated_at - _EPOCH) // _MILLISECOND,
        "revision": canvas.revision,
        "lastSeq": canvas.last_seq,
    }


def canvas_view(whole: WholeCanvas) -> dict[str, Any]:
    canvas = whole.canvas
    return {
        "descriptor": descriptor(canvas),
        "spec": canvas.spec,
        "state": canvas.state,
        "assets": [asset.path for asset in whole.assets],
        "views": [{"viewId": view.view_id, "clientId": view.client_id} for view in whole.live_views],
        "revision": canvas.revision,
    }


def asset_view(asset: Asset) -> dict[str, Any]:
    return {"path": asset.path, "size": asset.size, "mediaType": asset.media_type}


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    notes = {"readOnlyHint": tool.read_only, "idempotentHint": tool.idempotent, "destructiveHint": tool.destructive}
    return {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.schema), "annotations": notes}
