"""The methods of the gateway, one row each: params and handler. `/ws` and `POST /api/rpc` share this table.

Methods that need a connection (`connect`, `canvas.subscribe`) are named here and handled in `edges/gateway`.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from easel.core.canvas.canvas import Canvas, CanvasSnapshot
from easel.core.canvas.execution import Execution
from easel.core.canvas.versions import Version
from easel.core.principal import Principal
from easel.core.tool.node import LocalNode
from easel.edges.decoding import Decoded, decode_members, warn_in_error, with_warnings
from easel.edges.paging import page_of, read_list_page, read_page
from easel.edges.params import (
    AcceptSpec,
    CancelAction,
    CloseCanvas,
    Confirmation,
    DeleteAsset,
    DeleteCanvas,
    EnterInput,
    ListCanvases,
    ListConfirmations,
    ListItems,
    ListOfCanvas,
    ListRecords,
    ListVersions,
    NamedAsset,
    NamedCanvas,
    PatchCanvas,
    PutAsset,
    ReportPage,
    RestoreCanvas,
    RunAction,
    WriteCanvas,
    content,
    draft,
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
    version_view,
)
from easel.errors import BadInput, HostError, NotFound
from easel.host.actions.request import ActionRequest
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


async def dispatch(caller: Caller, name: str, params: Any) -> Any:
    """Call the method of this name and return its result, with warnings about ignored params. RS-67"""
    method = METHODS.get(name)
    if method is None:
        raise NotFound(what="method", id=name[:200])
    decoded = decode_params(name, params, method.params)
    try:
        return with_warnings(await method.handler(caller, decoded.params), decoded.warnings)
    except HostError as problem:
        warn_in_error(problem, decoded.warnings)
        raise


def decode_params(name: str, params: Any, shape: type[Any]) -> Decoded:
    """Convert params to the struct of the method. Raises `BadInput`."""
    try:
        return decode_members(params, shape)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"params of {name} are invalid: {problem}.") from None


# --- canvases -----------------------------------------------------------------------------------------------


async def list_canvases(caller: Caller, params: ListCanvases) -> Any:
    async def read(after: str | None, count: int) -> Sequence[Canvas]:
        return await caller.services.canvases.list_canvases(
            caller.principal, agent_id=params.agentId, after=after, limit=count
        )

    canvases, more = await read_page(
        read,
        to_view=descriptor,
        position=lambda canvas: canvas.canvas_id,
        start=params.after,
        limit=params.limit,
        step=params.limit,
    )
    return {"canvases": canvases, **({} if more is None else {"next": more})}


async def get_canvas(caller: Caller, params: NamedCanvas) -> Any:
    return canvas_view(await caller.services.canvases.get(caller.principal, params.canvasId))


async def create_canvas(caller: Caller, params: WriteCanvas) -> Any:
    return await _write_result(
        caller, params, await caller.services.canvases.create(caller.principal, draft(params))
    )


async def upsert_canvas(caller: Caller, params: WriteCanvas) -> Any:
    return await _write_result(
        caller, params, await caller.services.canvases.upsert(caller.principal, draft(params))
    )


async def patch_canvas(caller: Caller, params: PatchCanvas) -> Any:
    patched = await caller.services.canvases.patch(
        caller.principal,
        params.canvasId,
        state_patch=params.statePatch,
        spec=params.spec,
        title=params.title,
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
    await caller.services.canvases.delete(caller.principal, params.canvasId, params.expectedRevision)
    return {"canvasId": params.canvasId, "deleted": True}


async def open_canvas(caller: Caller, params: NamedCanvas) -> Any:
    view, snapshot = await caller.services.views.open(
        caller.principal, params.canvasId, caller.client_id, caller.connection_id
    )
    canvas = snapshot.canvas
    return {
        "viewId": view.view_id,
        "viewUrl": f"/canvas/{canvas.agent_id}/{canvas.canvas_id}",
        "revision": canvas.revision,
    }


async def close_canvas(caller: Caller, params: CloseCanvas) -> Any:
    if params.viewId is None and caller.connection_id == NO_CONNECTION:
        raise BadInput(
            problem="viewId must be given: this request is not on a connection with views of its own."
        )
    closed = await caller.services.views.close(
        caller.principal, params.canvasId, caller.connection_id, params.viewId
    )
    if params.viewId is not None and not closed:
        raise NotFound(what="view", id=params.viewId[:200])
    return {"canvasId": params.canvasId, "closed": closed}


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
    return result_view(await caller.services.actions.execute(caller.principal, request))


async def confirm_action(caller: Caller, params: Confirmation) -> Any:
    return result_view(
        await caller.services.actions.confirm(caller.principal, params.confirmationId, approve=params.approve)
    )


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


async def list_confirmations(caller: Caller, params: ListConfirmations) -> Any:
    """List pending confirmations, newest first. Their number is bounded, so that all of them are read."""
    services, principal = caller.services, caller.principal
    pending = await services.actions.confirmations.list_pending(principal, params.canvasId)
    tools = await services.tools.definitions(principal.user_id)
    ids = [execution.event_id for execution in pending]
    first = 0 if params.before is None else sum(event_id >= params.before for event_id in ids)
    views = [
        confirmation_view(execution, tools.get(execution.tool or ""), services.nodes.local)
        for execution in pending[first : first + params.limit]
    ]
    more = ids[first + params.limit - 1] if first + params.limit < len(ids) else None
    return page_of("confirmations", (views, more))


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


# --- versions -----------------------------------------------------------------------------------------------


async def list_versions(caller: Caller, params: ListVersions) -> Any:
    """Return versions, newest first, and the present one; or one earlier version with its content."""
    versions, principal, canvas_id = caller.services.versions, caller.principal, params.canvasId
    if params.version is not None:
        found = await versions.get(principal, canvas_id, params.version)
        assets = [asset_view(asset) for asset in found.assets]
        return {"versions": [{**version_view(found.version), "spec": found.spec, "assets": assets}]}
    current = await versions.current(principal, canvas_id)

    async def read(before: int | None, count: int) -> Sequence[Version]:
        return await versions.list_versions(principal, canvas_id, before=before, limit=count)

    page, more = await read_page(
        read,
        to_view=version_view,
        position=lambda version: version.number,
        start=params.before,
        limit=params.limit,
        step=params.limit,
    )
    return {
        "current": version_view(current),
        "versions": page,
        **({} if more is None else {"next": more}),
    }


async def restore_canvas(caller: Caller, params: RestoreCanvas) -> Any:
    services, principal = caller.services, caller.principal
    restored = await services.versions.restore(
        principal, params.canvasId, params.version, params.expectedRevision
    )
    snapshot = await services.canvases.check_tools(principal, restored)
    warnings = await services.canvases.warnings(principal, snapshot.canvas.spec, snapshot.canvas)
    return {**canvas_view(snapshot), **({"warnings": warnings} if warnings else {})}


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


async def list_assets(caller: Caller, params: ListOfCanvas) -> Any:
    snapshot = await caller.services.canvases.get(caller.principal, params.canvasId)
    page = await read_list_page(
        snapshot.assets,
        to_view=asset_view,
        position=lambda asset: asset.path,
        start=params.after,
        limit=params.limit,
    )
    revision = snapshot.canvas.revision
    return {"canvasId": params.canvasId, **page_of("assets", page), "revision": revision}


async def delete_asset(caller: Caller, params: DeleteAsset) -> Any:
    revision = await caller.services.assets.delete(
        caller.principal, params.canvasId, params.path, params.expectedRevision
    )
    return {"canvasId": params.canvasId, "path": params.path, "deleted": True, "revision": revision}


# --- tools --------------------------------------------------------------------------------------------------


async def list_tools(caller: Caller, params: ListItems) -> Any:
    definitions = await caller.services.tools.definitions(caller.principal.user_id)
    page = await read_list_page(
        definitions.values(),
        to_view=tool_view,
        position=lambda tool: tool.name,
        start=params.after,
        limit=params.limit,
    )
    return page_of("tools", page)


async def list_nodes(caller: Caller, params: ListItems) -> Any:
    """List the nodes by id, after the machine of this instance."""
    page = await read_list_page(
        await caller.services.nodes.list_nodes(caller.principal),
        to_view=node_view,
        position=lambda node: "" if isinstance(node, LocalNode) else node.node_id,
        start=params.after,
        limit=params.limit,
    )
    return page_of("nodes", page)


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
    "canvas.confirmations": Method(ListConfirmations, list_confirmations),
    "canvas.records": Method(ListRecords, list_records),
    "canvas.versions": Method(ListVersions, list_versions),
    "canvas.restore": Method(RestoreCanvas, restore_canvas, writes=True),
    "canvas.input": Method(EnterInput, enter_input, writes=True),
    "canvas.report": Method(ReportPage, report_page),
    "canvas.open": Method(NamedCanvas, open_canvas),
    "canvas.close": Method(CloseCanvas, close_canvas),
    "canvas.asset.put": Method(PutAsset, put_asset, writes=True),
    "canvas.asset.get": Method(NamedAsset, get_asset),
    "canvas.asset.list": Method(ListOfCanvas, list_assets),
    "canvas.asset.delete": Method(DeleteAsset, delete_asset, writes=True),
    "tools.list": Method(ListItems, list_tools),
    "nodes.list": Method(ListItems, list_nodes),
}
