"""The methods of the gateway, one row each: params and handler. `/ws` and `POST /api/rpc` share this table.

Methods that need a connection (`connect`, `canvas.subscribe`) are named here and handled in `edges/gateway`.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UnsetType

from easel.core.canvas.canvas import Canvas, CanvasSnapshot
from easel.core.canvas.execution import Execution, ExecutionStatus
from easel.core.principal import Principal
from easel.core.session.session import MAIN_ALIAS
from easel.edges.elsewhere import unknown_method
from easel.edges.paging import read_page
from easel.edges.params import (
    MAX_CLIENT_ID_LENGTH,
    AcceptSpec,
    CancelAction,
    CloseCanvas,
    Confirmation,
    DeleteAsset,
    DeleteCanvas,
    EnterInput,
    InvokeTool,
    ListCanvases,
    ListRecords,
    NamedAsset,
    NamedCanvas,
    NoParams,
    OfCanvas,
    OpenCanvas,
    PatchCanvas,
    PutAsset,
    ReportPage,
    RunAction,
    WriteCanvas,
    content,
    draft,
    is_client_id,
)
from easel.edges.views import (
    asset_view,
    canvas_view,
    confirmation_view,
    descriptor,
    node_view,
    record_view,
    result_view,
    tool_view,
)
from easel.errors import BadInput, NotFound
from easel.host.actions.outcomes import ActionResult
from easel.host.actions.request import ActionRequest
from easel.host.canvases import completion
from easel.host.canvases.views import NO_CONNECTION
from easel.host.services import Services

# Methods that need a connection; `POST /api/rpc` refuses them.
CONNECTION_METHODS = frozenset(
    {"connect", "tool.result", "tool.progress", "canvas.subscribe", "canvas.unsubscribe"}
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a method: its principal, client and connection, and the services to call."""

    services: Services
    principal: Principal
    client_id: str = "http"
    connection_id: str = NO_CONNECTION


@dataclass(frozen=True, slots=True)
class Method:
    params: type[Any]
    handler: Callable[[Caller, Any], Awaitable[Any]]
    writes: bool = False  # changes a canvas, so its params have `expectedRevision`
    needs_canvas: bool = True  # False: a canvas that is missing, or of another agent, is no error


async def dispatch(caller: Caller, name: str, params: Any) -> Any:
    """Call the method of this name and return its result."""
    method = METHODS.get(name)
    if method is None:
        raise unknown_method(name)
    decoded = decode_params(name, params, method.params)
    if isinstance(decoded, OfCanvas) and decoded.agentId is not None and method.needs_canvas:
        await caller.services.canvases.require_agent(caller.principal, decoded.canvasId, decoded.agentId)
    return await method.handler(caller, decoded)


def decode_params(name: str, params: Any, shape: type[Any]) -> Any:
    """Convert params to the struct of the method. Raises `BadInput`."""
    try:
        return msgspec.convert({} if params is None else params, type=shape)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"params of {name} are invalid: {problem}.") from None


# --- canvases -----------------------------------------------------------------------------------------------


async def list_canvases(caller: Caller, params: ListCanvases) -> Any:
    library, principal, agent_id = caller.services.canvases, caller.principal, params.agentId
    start = params.after
    if params.offset:
        if start is not None:
            raise BadInput(problem="Only one of after and offset may be given.")
        start = await library.find_at(principal, agent_id=agent_id, offset=params.offset - 1)
        if start is None:
            return {"canvases": [], "count": await library.count(principal, agent_id=agent_id)}

    async def read(after: str | None, count: int) -> Sequence[Canvas]:
        return await library.list_canvases(principal, agent_id=agent_id, after=after, limit=count)

    canvases, more = await read_page(
        read,
        to_view=descriptor,
        position=lambda canvas: canvas.canvas_id,
        start=start,
        limit=params.limit,
        step=params.limit,
    )
    page = {"canvases": canvases, **({} if more is None else {"next": more})}
    if params.after is not None:
        return page
    is_complete = start is None and more is None
    count = len(canvases) if is_complete else await library.count(principal, agent_id=agent_id)
    return {**page, "count": count}


async def get_canvas(caller: Caller, params: NamedCanvas) -> Any:
    return canvas_view(await caller.services.canvases.get(caller.principal, params.canvasId))


async def create_canvas(caller: Caller, params: WriteCanvas) -> Any:
    return await _write_result(
        caller,
        params,
        await completion.create_canvas(
            caller.services.canvases, caller.principal, draft(params), params.mode
        ),
    )


async def upsert_canvas(caller: Caller, params: WriteCanvas) -> Any:
    return await _write_result(
        caller,
        params,
        await completion.upsert_canvas(
            caller.services.canvases, caller.principal, draft(params), params.mode
        ),
    )


async def patch_canvas(caller: Caller, params: PatchCanvas) -> Any:
    owner = params.ownerSessionKey
    patched = await completion.patch_canvas(
        caller.services.canvases,
        caller.principal,
        params.canvasId,
        state_patch=params.statePatch,
        spec=params.spec,
        mode=params.mode,
        title=params.title,
        owner_session_key=None if isinstance(owner, UnsetType) else owner or MAIN_ALIAS,
        expected_revision=params.expectedRevision,
    )
    return await _write_result(caller, params, patched)


async def _write_result(caller: Caller, params: WriteCanvas | PatchCanvas, snapshot: CanvasSnapshot) -> Any:
    is_declined = isinstance(params, WriteCanvas) and params.accepted is False
    accepted = None if is_declined else snapshot.canvas
    warnings = (
        []
        if params.spec is None
        else await caller.services.canvases.warnings(caller.principal, params.spec, accepted)
    )
    return {**canvas_view(snapshot), **({"warnings": warnings} if warnings else {})}


async def delete_canvas(caller: Caller, params: DeleteCanvas) -> Any:
    """Delete a canvas. A missing canvas and one of another user or agent are answered alike. RS-67"""
    try:
        await caller.services.canvases.delete(
            caller.principal, params.canvasId, params.expectedRevision, agent_id=params.agentId
        )
    except NotFound:
        return {"ok": True, "canvasId": params.canvasId, "deleted": False}
    return {"ok": True, "canvasId": params.canvasId, "deleted": True}


async def open_canvas(caller: Caller, params: OpenCanvas) -> Any:
    view, snapshot = await caller.services.views.open(
        caller.principal, params.canvasId, _client_id(caller, params), caller.connection_id
    )
    canvas = snapshot.canvas
    return {
        "ok": True,
        "canvasId": canvas.canvas_id,
        "viewId": view.view_id,
        "viewUrl": f"/canvas/{canvas.agent_id}/{canvas.canvas_id}",
        "revision": canvas.revision,
        "lastSeq": canvas.last_seq,
    }


def _client_id(caller: Caller, params: OpenCanvas) -> str:
    if params.clientId is None:
        return caller.client_id
    if not is_client_id(params.clientId):
        raise BadInput(problem=f"clientId must be 1 to {MAX_CLIENT_ID_LENGTH} printable characters.")
    return params.clientId


async def close_canvas(caller: Caller, params: CloseCanvas) -> Any:
    if params.viewId is None and caller.connection_id == NO_CONNECTION:
        raise BadInput(
            problem="viewId must be given: this request is not on a connection with views of its own."
        )
    closed = await caller.services.views.close(
        caller.principal, params.canvasId, caller.connection_id, params.viewId, params.clientId
    )
    if params.viewId is not None and not closed:
        raise NotFound(what="view", id=params.viewId[:200])
    return {"ok": True, "canvasId": params.canvasId, "closed": closed}


# --- actions ------------------------------------------------------------------------------------------------


async def run_action(caller: Caller, params: RunAction) -> Any:
    request = ActionRequest(
        canvas_id=params.canvasId,
        action_id=params.actionId,
        input=params.input,
        client_id=caller.client_id,
        expected_revision=params.expectedRevision,
        request_id=params.requestId,
        has_gesture=params.hasGesture,
    )
    return _with_ok(await caller.services.actions.execute(caller.principal, request))


async def confirm_action(caller: Caller, params: Confirmation) -> Any:
    services, principal = caller.services, caller.principal
    if params.agentId is not None:
        pending = await services.actions.confirmations.find(principal, params.confirmationId)
        try:
            await services.canvases.require_agent(principal, pending.canvas_id, params.agentId)
        except NotFound:
            raise NotFound(what="confirmation", id=params.confirmationId) from None
    return _with_ok(await services.actions.confirm(principal, params.confirmationId, approve=params.approve))


def _with_ok(result: ActionResult) -> dict[str, Any]:
    """Return the outcome of an action; `ok` is true only if the action has completed. RS-67"""
    return {"ok": result.status is ExecutionStatus.COMPLETED, **result_view(result)}


async def cancel_action(caller: Caller, params: CancelAction) -> Any:
    return result_view(
        await caller.services.actions.cancel(
            caller.principal, params.canvasId, params.eventId, only_running=params.onlyRunning
        )
    )


async def accept_spec(caller: Caller, params: AcceptSpec) -> Any:
    return canvas_view(
        await caller.services.canvases.accept(
            caller.principal, params.canvasId, params.revision, params.weakenedTools
        )
    )


async def list_confirmations(caller: Caller, params: NamedCanvas) -> Any:
    services, principal = caller.services, caller.principal
    pending = await services.actions.confirmations.list_pending(principal, params.canvasId)
    tools = await services.tools.definitions(principal.user_id)
    return {
        "confirmations": [
            confirmation_view(execution, tools.get(execution.tool or ""), services.nodes.local)
            for execution in pending
        ]
    }


async def list_records(caller: Caller, params: ListRecords) -> Any:
    async def read(before: str | None, count: int) -> Sequence[Execution]:
        return await caller.services.actions.list_records(
            caller.principal, params.canvasId, status=params.status, before=before, limit=count
        )

    records, more = await read_page(
        read,
        to_view=record_view,
        position=lambda record: record.event_id,
        start=params.before,
        limit=params.limit,
        weight=lambda record: len(msgspec.json.encode([record.resolved, record.answer])),
    )
    return {"records": records, **({} if more is None else {"next": more})}


# --- the page of a canvas -----------------------------------------------------------------------------------


async def enter_input(caller: Caller, params: EnterInput) -> Any:
    entry = {"value": params.value, "was": params.was, "expected_revision": params.expectedRevision}
    snapshot = await caller.services.pages.apply_input(
        caller.principal, params.canvasId, params.path, **entry
    )
    return canvas_view(await caller.services.canvases.check_tools(caller.principal, snapshot))


async def report_page(caller: Caller, params: ReportPage) -> Any:
    await caller.services.pages.report_violation(
        caller.principal, params.canvasId, params.what, params.detail, params.count
    )
    return {"canvasId": params.canvasId, "reported": True}


# --- assets -------------------------------------------------------------------------------------------------


async def put_asset(caller: Caller, params: PutAsset) -> Any:
    asset, revision = await caller.services.assets.put(
        caller.principal, params.canvasId, params.path, content(params), params.expectedRevision
    )
    return {"canvasId": params.canvasId, **asset_view(asset), "revision": revision}


async def get_asset(caller: Caller, params: NamedAsset) -> Any:
    """Return an asset as text if it is UTF-8, else as Base64."""
    asset, content, revision = await caller.services.assets.read(
        caller.principal, params.canvasId, params.path
    )
    try:
        body = {"text": content.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(content).decode()}
    return {"canvasId": params.canvasId, **asset_view(asset), **body, "revision": revision}


async def list_assets(caller: Caller, params: NamedCanvas) -> Any:
    snapshot = await caller.services.canvases.get(caller.principal, params.canvasId)
    return {
        "canvasId": params.canvasId,
        "assets": [asset_view(asset) for asset in snapshot.assets],
        "revision": snapshot.canvas.revision,
    }


async def delete_asset(caller: Caller, params: DeleteAsset) -> Any:
    revision = await caller.services.assets.delete(
        caller.principal, params.canvasId, params.path, params.expectedRevision
    )
    return {"canvasId": params.canvasId, "path": params.path, "deleted": True, "revision": revision}


# --- tools --------------------------------------------------------------------------------------------------


async def list_tools(caller: Caller, _: NoParams) -> Any:
    return {
        "tools": [
            tool_view(tool)
            for tool in (await caller.services.tools.definitions(caller.principal.user_id)).values()
        ]
    }


async def list_nodes(caller: Caller, _: NoParams) -> Any:
    return {"nodes": [node_view(node) for node in await caller.services.nodes.list_nodes(caller.principal)]}


async def invoke_tool(caller: Caller, params: InvokeTool) -> Any:
    result = await caller.services.invocations.invoke(caller.principal, params.tool, params.args)
    return {"ok": True, "result": result}


METHODS: Mapping[str, Method] = {
    "canvas.list": Method(ListCanvases, list_canvases),
    "canvas.get": Method(NamedCanvas, get_canvas),
    "canvas.create": Method(WriteCanvas, create_canvas, writes=True),
    "canvas.upsert": Method(WriteCanvas, upsert_canvas, writes=True),
    "canvas.patch": Method(PatchCanvas, patch_canvas, writes=True),
    "canvas.delete": Method(DeleteCanvas, delete_canvas, writes=True, needs_canvas=False),
    "canvas.action": Method(RunAction, run_action, writes=True),
    "canvas.confirm": Method(Confirmation, confirm_action),
    "canvas.cancel": Method(CancelAction, cancel_action),
    "canvas.accept": Method(AcceptSpec, accept_spec),
    "canvas.confirmations": Method(NamedCanvas, list_confirmations),
    "canvas.records": Method(ListRecords, list_records),
    "canvas.input": Method(EnterInput, enter_input, writes=True),
    "canvas.report": Method(ReportPage, report_page),
    "canvas.open": Method(OpenCanvas, open_canvas),
    "canvas.close": Method(CloseCanvas, close_canvas),
    "canvas.asset.put": Method(PutAsset, put_asset, writes=True),
    "canvas.asset.get": Method(NamedAsset, get_asset),
    "canvas.asset.list": Method(NamedCanvas, list_assets),
    "canvas.asset.delete": Method(DeleteAsset, delete_asset, writes=True),
    "tools.list": Method(NoParams, list_tools),
    "tool.invoke": Method(InvokeTool, invoke_tool),
    "nodes.list": Method(NoParams, list_nodes),
}
