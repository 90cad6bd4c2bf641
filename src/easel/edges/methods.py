"""The methods of the gateway, one row each: params and handler. `/ws` and `POST /api/rpc` share this table.

Methods that need a connection (`connect`, `canvas.subscribe`) are named here and handled in `edges/gateway`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from easel.edges.action_methods import (
    accept_spec,
    cancel_action,
    confirm_action,
    invoke_tool,
    list_confirmations,
    list_nodes,
    list_records,
    list_tools,
    run_action,
)
from easel.edges.caller import Caller
from easel.edges.canvas_methods import (
    close_canvas,
    create_canvas,
    delete_asset,
    delete_canvas,
    enter_input,
    get_asset,
    get_canvas,
    list_assets,
    list_canvases,
    list_versions,
    open_canvas,
    patch_canvas,
    put_asset,
    report_page,
    restore_canvas,
    upsert_canvas,
)
from easel.edges.decoding import Decoded, NoParams, decode_members, warn_in_error, with_warnings
from easel.edges.elsewhere import unknown_method
from easel.edges.params import (
    AcceptSpec,
    CancelAction,
    CloseCanvas,
    Confirmation,
    DeleteAsset,
    DeleteCanvas,
    EnterInput,
    InvokeTool,
    ListCanvases,
    ListConfirmations,
    ListItems,
    ListOfCanvas,
    ListRecords,
    ListVersions,
    NamedAsset,
    NamedCanvas,
    OfCanvas,
    OpenCanvas,
    PatchCanvas,
    PutAsset,
    ReportPage,
    RestoreCanvas,
    RunAction,
    WriteCanvas,
)
from easel.errors import BadInput, HostError

# Methods that need a connection; `POST /api/rpc` refuses them.
CONNECTION_METHODS = frozenset(
    {"connect", "tool.result", "tool.progress", "canvas.subscribe", "canvas.unsubscribe"}
)


@dataclass(frozen=True, slots=True)
class Method:
    params: type[Any]
    handler: Callable[[Caller, Any], Awaitable[Any]]
    writes: bool = False  # changes a canvas, so its params have `expectedRevision`
    needs_canvas: bool = True  # False: a canvas that is missing, or of another agent, is no error


async def dispatch(caller: Caller, name: str, params: Any) -> Any:
    """Call the method of this name and return its result, with warnings about ignored params. RS-67"""
    method = METHODS.get(name)
    if method is None:
        raise unknown_method(name, METHODS.keys() | CONNECTION_METHODS)
    decoded = decode_params(name, params, method.params)
    given = decoded.params
    try:
        if isinstance(given, OfCanvas) and given.agentId is not None and method.needs_canvas:
            await caller.services.canvases.require_agent(caller.principal, given.canvasId, given.agentId)
        return with_warnings(await method.handler(caller, given), decoded.warnings)
    except HostError as problem:
        warn_in_error(problem, decoded.warnings)
        raise


def decode_params(name: str, params: Any, shape: type[Any]) -> Decoded:
    """Convert params to the struct of the method. Raises `BadInput`."""
    try:
        return decode_members(params, shape)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"params of {name} are invalid: {problem}.") from None


async def _answer_ping(_: Caller, __: NoParams) -> Any:
    """Return nothing: a page asks whether the connection still carries an answer."""
    return {}


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
    "canvas.confirmations": Method(ListConfirmations, list_confirmations),
    "canvas.records": Method(ListRecords, list_records),
    "canvas.versions": Method(ListVersions, list_versions),
    "canvas.restore": Method(RestoreCanvas, restore_canvas, writes=True),
    "canvas.input": Method(EnterInput, enter_input, writes=True),
    "canvas.report": Method(ReportPage, report_page),
    "canvas.open": Method(OpenCanvas, open_canvas),
    "canvas.close": Method(CloseCanvas, close_canvas),
    "canvas.asset.put": Method(PutAsset, put_asset, writes=True),
    "canvas.asset.get": Method(NamedAsset, get_asset),
    "canvas.asset.list": Method(ListOfCanvas, list_assets),
    "canvas.asset.delete": Method(DeleteAsset, delete_asset, writes=True),
    "tools.list": Method(ListItems, list_tools),
    "tool.invoke": Method(InvokeTool, invoke_tool),
    "nodes.list": Method(ListItems, list_nodes),
    "ping": Method(NoParams, _answer_ping),
}
