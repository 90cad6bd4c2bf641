"""The methods of the gateway, one row each: params and handler. `/ws` and `POST /api/rpc` share this table.

The handshake and what a node sends (`connect`, `tool.result`) are named here and handled in `edges/gateway`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from easel.edges import action_methods as actions
from easel.edges import canvas_events as events
from easel.edges import canvas_methods as canvases
from easel.edges import params
from easel.edges.caller import Caller
from easel.edges.decoding import Decoded, NoParams, decode_members, warn_in_error, with_warnings
from easel.edges.elsewhere import unknown_method
from easel.errors import BadInput, HostError

# Methods that need a connection; `POST /api/rpc` refuses them.
CONNECTION_METHODS = frozenset(
    {"connect", "tool.result", "tool.progress", "canvas.subscribe", "canvas.unsubscribe"}
)


@dataclass(frozen=True, slots=True)
class Method:
    params: type[Any]
    handler: Callable[[Caller, Any], Awaitable[Any]]
    needs_canvas: bool = True  # False: a canvas that is missing, or of another agent, is no error
    on_answered: Callable[[Caller, Mapping[str, Any]], None] | None = None  # with the params, over `/ws` only


async def dispatch(caller: Caller, name: str, members: Any) -> Any:
    """Call the method of this name and return its result, with warnings about ignored params. RS-67"""
    method = METHODS.get(name)
    if method is None:
        raise unknown_method(name, METHODS.keys() | CONNECTION_METHODS)
    decoded = decode_params(name, members, method.params)
    given = decoded.params
    try:
        if isinstance(given, params.OfCanvas) and given.agentId is not None and method.needs_canvas:
            await caller.services.canvases.require_agent(caller.principal, given.canvasId, given.agentId)
        return with_warnings(await method.handler(caller, given), decoded.warnings)
    except HostError as problem:
        warn_in_error(problem, decoded.warnings)
        raise


def decode_params(name: str, members: Any, shape: type[Any]) -> Decoded:
    """Convert params to the struct of the method. Raises `BadInput`."""
    try:
        return decode_members(members, shape)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"params of {name} are invalid: {problem}.") from None


async def _answer_ping(_: Caller, __: NoParams) -> Any:
    """Return nothing: a page asks whether the connection still carries an answer."""
    return {}


METHODS: Mapping[str, Method] = {
    "canvas.list": Method(params.ListCanvases, canvases.list_canvases),
    "canvas.get": Method(params.NamedCanvas, canvases.get_canvas),
    "canvas.create": Method(params.WriteCanvas, canvases.create_canvas),
    "canvas.upsert": Method(params.WriteCanvas, canvases.upsert_canvas),
    "canvas.patch": Method(params.PatchCanvas, canvases.patch_canvas),
    "canvas.delete": Method(params.DeleteCanvas, canvases.delete_canvas, needs_canvas=False),
    "canvas.action": Method(params.RunAction, actions.run_action),
    "canvas.confirm": Method(params.Confirmation, actions.confirm_action),
    "canvas.cancel": Method(params.CancelAction, actions.cancel_action),
    "canvas.accept": Method(params.AcceptSpec, actions.accept_spec),
    "canvas.confirmations": Method(params.ListConfirmations, actions.list_confirmations),
    "canvas.records": Method(params.ListRecords, actions.list_records),
    "canvas.versions": Method(params.ListVersions, canvases.list_versions),
    "canvas.restore": Method(params.RestoreCanvas, canvases.restore_canvas),
    "canvas.input": Method(params.EnterInput, canvases.enter_input),
    "canvas.report": Method(params.ReportPage, canvases.report_page),
    "canvas.open": Method(params.OpenCanvas, events.open_canvas, on_answered=events.start_events),
    "canvas.close": Method(params.CloseCanvas, events.close_canvas),
    "canvas.subscribe": Method(params.Subscribe, events.subscribe, on_answered=events.start_events),
    "canvas.unsubscribe": Method(params.OfCanvas, events.unsubscribe),
    "canvas.asset.put": Method(params.PutAsset, canvases.put_asset),
    "canvas.asset.get": Method(params.NamedAsset, canvases.get_asset),
    "canvas.asset.list": Method(params.ListOfCanvas, canvases.list_assets),
    "canvas.asset.delete": Method(params.DeleteAsset, canvases.delete_asset),
    "tools.list": Method(params.ListItems, actions.list_tools),
    "tool.invoke": Method(params.InvokeTool, actions.invoke_tool),
    "nodes.list": Method(params.ListItems, actions.list_nodes),
    "ping": Method(NoParams, _answer_ping),
}
