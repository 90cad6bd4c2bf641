"""The gateway's verbs, one row each: what a verb takes and what it does. Over `/ws` and over `POST /api/rpc` they are the same.

What only a connection can do (`connect`, `canvas.subscribe`) has its name here and its handler where connections are.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from easel.core.canvas.canvas import CanvasSnapshot
from easel.core.principal import Principal
from easel.edges.params import (
    AcceptSpec,
    CancelAction,
    CloseCanvas,
    Confirmation,
    DeleteAsset,
    DeleteCanvas,
    EnterInput,
    ListCanvases,
    ListRecords,
    NamedAsset,
    NamedCanvas,
    Nothing,
    PatchCanvas,
    PutAsset,
    ReportPage,
    RunAction,
    WriteCanvas,
    content,
    draft,
)
from easel.edges.views import (
    answer_view,
    asked_view,
    asset_view,
    canvas_view,
    descriptor,
    node_view,
    record_view,
    tool_view,
)
from easel.errors import BadInput, NotFound
from easel.host.actions.request import ActionRequest
from easel.host.canvases.views import NO_CONNECTION
from easel.host.services import Services

# They need a connection that stays, which a single request is not.
OF_A_CONNECTION = frozenset(
    {"connect", "tool.result", "tool.progress", "canvas.subscribe", "canvas.unsubscribe"}
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a verb, and from where."""

    host: Services
    principal: Principal
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


# --- canvases -----------------------------------------------------------------------------------------------------------


async def list_canvases(caller: Caller, asked: ListCanvases) -> Any:
    found = await caller.host.canvases.list_canvases(
        caller.principal, agent_id=asked.agentId, after=asked.after, limit=asked.limit
    )
    more = {"next": found[-1].canvas_id} if len(found) == asked.limit else {}
    return {"canvases": [descriptor(canvas) for canvas in found], **more}


async def get_canvas(caller: Caller, asked: NamedCanvas) -> Any:
    return canvas_view(await caller.host.canvases.get(caller.principal, asked.canvasId))


async def create_canvas(caller: Caller, asked: WriteCanvas) -> Any:
    return await _written(caller, asked, await caller.host.canvases.create(caller.principal, draft(asked)))


async def upsert_canvas(caller: Caller, asked: WriteCanvas) -> Any:
    return await _written(caller, asked, await caller.host.canvases.upsert(caller.principal, draft(asked)))


async def patch_canvas(caller: Caller, asked: PatchCanvas) -> Any:
    patched = await caller.host.canvases.patch(
        caller.principal,
        asked.canvasId,
        state_patch=asked.statePatch,
        spec=asked.spec,
        title=asked.title,
        expected_revision=asked.expectedRevision,
    )
    return await _written(caller, asked, patched)


async def _written(caller: Caller, asked: WriteCanvas | PatchCanvas, snapshot: CanvasSnapshot) -> Any:
    is_declined = isinstance(asked, WriteCanvas) and asked.accepted is False
    stands_for = None if is_declined else snapshot.canvas
    warnings = (
        []
        if asked.spec is None
        else await caller.host.canvases.warnings(caller.principal, asked.spec, stands_for)
    )
    return {**canvas_view(snapshot), **({"warnings": warnings} if warnings else {})}


async def delete_canvas(caller: Caller, asked: DeleteCanvas) -> Any:
    await caller.host.canvases.delete(caller.principal, asked.canvasId, asked.expectedRevision)
    return {"canvasId": asked.canvasId, "deleted": True}


async def open_canvas(caller: Caller, asked: NamedCanvas) -> Any:
    view, snapshot = await caller.host.views.open(
        caller.principal, asked.canvasId, caller.client_id, caller.connection_id
    )
    canvas = snapshot.canvas
    return {
        "viewId": view.view_id,
        "viewUrl": f"/canvas/{canvas.agent_id}/{canvas.canvas_id}",
        "revision": canvas.revision,
    }


async def close_canvas(caller: Caller, asked: CloseCanvas) -> Any:
    if asked.viewId is None and caller.connection_id == NO_CONNECTION:
        raise BadInput(
            problem="viewId: say which view, for this request comes on no connection that has views of its own."
        )
    closed = await caller.host.views.close(
        caller.principal, asked.canvasId, caller.connection_id, asked.viewId
    )
    if asked.viewId is not None and not closed:
        raise NotFound(what="view", id=asked.viewId[:200])
    return {"canvasId": asked.canvasId, "closed": closed}


# --- actions ------------------------------------------------------------------------------------------------------------


async def run_action(caller: Caller, asked: RunAction) -> Any:
    ask = ActionRequest(
        canvas_id=asked.canvasId,
        action_id=asked.actionId,
        input=asked.input,
        client_id=caller.client_id,
        expected_revision=asked.expectedRevision,
        request_id=asked.requestId,
    )
    return answer_view(await caller.host.actions.execute(caller.principal, ask))


async def confirm_action(caller: Caller, asked: Confirmation) -> Any:
    return answer_view(
        await caller.host.actions.confirm(
            caller.principal, asked.confirmationId, caller.client_id, approve=asked.approve
        )
    )


async def cancel_action(caller: Caller, asked: CancelAction) -> Any:
    return answer_view(
        await caller.host.actions.cancel(
            caller.principal, asked.canvasId, asked.eventId, caller.client_id, only_running=asked.onlyRunning
        )
    )


async def accept_spec(caller: Caller, asked: AcceptSpec) -> Any:
    return canvas_view(await caller.host.canvases.accept(caller.principal, asked.canvasId, asked.revision))


async def list_confirmations(caller: Caller, asked: NamedCanvas) -> Any:
    return {
        "confirmations": [
            asked_view(one) for one in await caller.host.actions.waiting(caller.principal, asked.canvasId)
        ]
    }


async def list_records(caller: Caller, asked: ListRecords) -> Any:
    found = await caller.host.actions.records(
        caller.principal, asked.canvasId, status=asked.status, before=asked.before, limit=asked.limit
    )
    more = {"next": found[-1].event_id} if len(found) == asked.limit else {}
    return {"records": [record_view(one) for one in found], **more}


# --- what its page does -------------------------------------------------------------------------------------------------


async def enter_input(caller: Caller, asked: EnterInput) -> Any:
    entry = {"value": asked.value, "was": asked.was, "expected_revision": asked.expectedRevision}
    return canvas_view(await caller.host.pages.enter(caller.principal, asked.canvasId, asked.path, **entry))


async def report_page(caller: Caller, asked: ReportPage) -> Any:
    await caller.host.pages.report(caller.principal, asked.canvasId, asked.what, asked.detail, asked.count)
    return {"canvasId": asked.canvasId, "reported": True}


# --- assets -------------------------------------------------------------------------------------------------------------


async def put_asset(caller: Caller, asked: PutAsset) -> Any:
    asset, revision = await caller.host.assets.put(
        caller.principal, asked.canvasId, asked.path, content(asked), asked.expectedRevision
    )
    return {"canvasId": asked.canvasId, **asset_view(asset), "revision": revision}


async def get_asset(caller: Caller, asked: NamedAsset) -> Any:
    """As text where that says it exactly."""
    asset, content, revision = await caller.host.assets.read(caller.principal, asked.canvasId, asked.path)
    try:
        shown = {"text": content.decode()}
    except UnicodeDecodeError:
        shown = {"base64": base64.b64encode(content).decode()}
    return {"canvasId": asked.canvasId, **asset_view(asset), **shown, "revision": revision}


async def list_assets(caller: Caller, asked: NamedCanvas) -> Any:
    snapshot = await caller.host.canvases.get(caller.principal, asked.canvasId)
    return {
        "canvasId": asked.canvasId,
        "assets": [asset_view(asset) for asset in snapshot.assets],
        "revision": snapshot.canvas.revision,
    }


async def delete_asset(caller: Caller, asked: DeleteAsset) -> Any:
    revision = await caller.host.assets.delete(
        caller.principal, asked.canvasId, asked.path, asked.expectedRevision
    )
    return {"canvasId": asked.canvasId, "path": asked.path, "deleted": True, "revision": revision}


# --- tools --------------------------------------------------------------------------------------------------------------


async def list_tools(caller: Caller, _: Nothing) -> Any:
    return {
        "tools": [
            tool_view(tool)
            for tool in (await caller.host.tools.definitions(caller.principal.user_id)).values()
        ]
    }


async def list_nodes(caller: Caller, _: Nothing) -> Any:
    return {"nodes": [node_view(node) for node in await caller.host.nodes.list_nodes(caller.principal)]}


METHODS: Mapping[str, Method] = {
    "canvas.list": Method(ListCanvases, list_canvases),
    "canvas.get": Method(NamedCanvas, get_canvas),
    "canvas.create": Method(WriteCanvas, create_canvas, writes=True),
    "canvas.upsert": Method(WriteCanvas, upsert_canvas, writes=True),
    "canvas.patch": Method(PatchCanvas, patch_canvas, writes=True),
    "canvas.delete": Method(DeleteCanvas, delete_canvas, writes=True),
    "canvas.action": Method(RunAction, run_action, writes=True),
    "canvas.confirm": Method(Confirmation, confirm_action),
    "canvas.cancel": Method(CancelAction, cancel_action),
    "canvas.accept": Method(AcceptSpec, accept_spec),
    "canvas.confirmations": Method(NamedCanvas, list_confirmations),
    "canvas.records": Method(ListRecords, list_records),
    "canvas.input": Method(EnterInput, enter_input, writes=True),
    "canvas.report": Method(ReportPage, report_page),
    "canvas.open": Method(NamedCanvas, open_canvas),
    "canvas.close": Method(CloseCanvas, close_canvas),
    "canvas.asset.put": Method(PutAsset, put_asset, writes=True),
    "canvas.asset.get": Method(NamedAsset, get_asset),
    "canvas.asset.list": Method(NamedCanvas, list_assets),
    "canvas.asset.delete": Method(DeleteAsset, delete_asset, writes=True),
    "tools.list": Method(Nothing, list_tools),
    "nodes.list": Method(Nothing, list_nodes),
}
