"""The methods of the gateway, one row each: params, result, access and handler.

`/ws` and `POST /api/rpc` share `METHODS`. The handshake and what a node sends are rows of
`CONNECTION_METHODS`, which `edges/gateway` handles.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

import msgspec

from easel.core.access import Access, InAccount, Public, check_access
from easel.core.principal import PrincipalKind, Role
from easel.edges import action_methods as actions
from easel.edges import canvas_events as events
from easel.edges import canvas_methods as canvases
from easel.edges import params, results
from easel.edges.caller import Caller
from easel.edges.decoding import Decoded, NoParams, Params, decode_members, warn_in_error, with_warnings
from easel.edges.elsewhere import unknown_method
from easel.errors import BadInput, Forbidden, HostError


@dataclass(frozen=True, slots=True)
class Method:
    params: type[Params]
    result: type[results.Result] | UnionType
    access: Access
    handler: Callable[[Caller, Any], Awaitable[Any]]
    needs_canvas: bool = True  # False: a canvas that is missing, or of another agent, is no error
    needs_socket: bool = False  # True: `POST /api/rpc` refuses it
    on_answered: Callable[[Caller, Mapping[str, Any]], None] | None = None  # with the params, over `/ws` only


@dataclass(frozen=True, slots=True)
class ConnectionMethod:
    params: type[Params]
    result: type[results.Result]
    access: Access


async def dispatch(caller: Caller, name: str, members: Any) -> Any:
    """Call the method of this name and return its result, with warnings about ignored params. RS-67"""
    method = METHODS.get(name)
    if method is None:
        raise unknown_method(name, METHODS.keys() | CONNECTION_METHODS.keys())
    decoded = _accept(caller, name, method, members)
    given = decoded.params
    try:
        if isinstance(given, params.OfCanvas) and given.agentId is not None and method.needs_canvas:
            await caller.services.canvases.require_agent(caller.principal, given.canvasId, given.agentId)
        return with_warnings(await method.handler(caller, given), decoded.warnings)
    except HostError as problem:
        warn_in_error(problem, decoded.warnings)
        raise


def _accept(caller: Caller, name: str, method: Method, members: Any) -> Decoded:
    """Return the params of a request that the principal may make. Raises `Forbidden` or `BadInput`. RS-76"""
    try:
        check_access(method.access, caller.principal)
    except Forbidden as problem:
        details = {"method": name, "problem": problem.message}
        caller.services.audit.record_throttled(caller.principal, "guardrail.refused", details=details)
        raise
    return decode_params(name, members, method.params)


def decode_params(name: str, members: Any, shape: type[Any]) -> Decoded:
    """Convert params to the struct of the method. Raises `BadInput`."""
    try:
        return decode_members(members, shape)
    except msgspec.ValidationError as problem:
        raise BadInput(problem=f"params of {name} are invalid: {problem}.") from None


async def _answer_ping(_: Caller, __: NoParams) -> results.Pong:
    """Return nothing: a page asks whether the connection still carries an answer."""
    return results.Pong()


_PROGRAMS = frozenset({PrincipalKind.AGENT, PrincipalKind.SERVICE})
_PEOPLE = frozenset({PrincipalKind.USER})
_READ = InAccount(Role.VIEWER, _PEOPLE | _PROGRAMS)
_CHANGE = InAccount(Role.MEMBER, _PEOPLE | _PROGRAMS)
_PRESS = InAccount(Role.MEMBER, _PEOPLE | {PrincipalKind.SERVICE})  # no agent presses buttons. RS-59
_DECIDE = InAccount(Role.MEMBER, _PEOPLE)  # RS-59
_OF_NODE = InAccount(Role.VIEWER, frozenset({PrincipalKind.NODE}))

METHODS: Mapping[str, Method] = {
    "canvas.list": Method(params.ListCanvases, results.CanvasPage, _READ, canvases.list_canvases),
    "canvas.get": Method(params.OfCanvas, results.CanvasResult, _READ, canvases.get_canvas),
    "canvas.create": Method(params.WriteCanvas, results.CanvasResult, _CHANGE, canvases.create_canvas),
    "canvas.upsert": Method(params.WriteCanvas, results.CanvasResult, _CHANGE, canvases.upsert_canvas),
    "canvas.patch": Method(params.PatchCanvas, results.CanvasResult, _CHANGE, canvases.patch_canvas),
    "canvas.delete": Method(
        params.DeleteCanvas, results.DeletedCanvas, _CHANGE, canvases.delete_canvas, needs_canvas=False
    ),
    "canvas.action": Method(params.RunAction, results.ActionOutcome, _PRESS, actions.run_action),
    "canvas.confirm": Method(params.Confirmation, results.ActionOutcome, _DECIDE, actions.confirm_action),
    "canvas.cancel": Method(params.CancelAction, results.ActionOutcome, _PRESS, actions.cancel_action),
    "canvas.accept": Method(params.AcceptSpec, results.CanvasResult, _DECIDE, actions.accept_spec),
    "canvas.confirmations": Method(
        params.ListConfirmations, results.ConfirmationPage, _READ, actions.list_confirmations
    ),
    "canvas.records": Method(params.ListRecords, results.RecordPage, _READ, actions.list_records),
    "canvas.versions": Method(params.ListVersions, results.VersionsResult, _READ, canvases.list_versions),
    "canvas.restore": Method(params.RestoreCanvas, results.CanvasResult, _CHANGE, canvases.restore_canvas),
    "canvas.input": Method(params.EnterInput, results.CanvasResult, _CHANGE, canvases.enter_input),
    "canvas.report": Method(params.ReportPage, results.ReportedPage, _READ, canvases.report_page),
    "canvas.open": Method(
        params.OpenCanvas, results.OpenedCanvas, _READ, events.open_canvas, on_answered=events.start_events
    ),
    "canvas.close": Method(params.CloseCanvas, results.ClosedCanvas, _READ, events.close_canvas),
    "canvas.subscribe": Method(
        params.Subscribe,
        results.CanvasSubscription,
        _READ,
        events.subscribe,
        needs_socket=True,
        on_answered=events.start_events,
    ),
    "canvas.unsubscribe": Method(
        params.OfCanvas, results.CanvasSubscription, _READ, events.unsubscribe, needs_socket=True
    ),
    "canvas.asset.put": Method(params.PutAsset, results.StoredAsset, _CHANGE, canvases.put_asset),
    "canvas.asset.get": Method(params.NamedAsset, results.AssetContent, _READ, canvases.get_asset),
    "canvas.asset.list": Method(params.ListOfCanvas, results.AssetPage, _READ, canvases.list_assets),
    "canvas.asset.delete": Method(params.DeleteAsset, results.DeletedAsset, _CHANGE, canvases.delete_asset),
    "tools.list": Method(params.ListItems, results.ToolPage, _READ, actions.list_tools),
    "tool.invoke": Method(params.InvokeTool, results.InvokedTool, _DECIDE, actions.invoke_tool),
    "nodes.list": Method(params.ListItems, results.NodePage, _READ, actions.list_nodes),
    "ping": Method(NoParams, results.Pong, _READ, _answer_ping),
}

CONNECTION_METHODS: Mapping[str, ConnectionMethod] = {
    # Carries the credential itself, unless the upgrade request did.
    "connect": ConnectionMethod(params.Connect, results.Hello, Public()),
    # Sent by a connection in node mode, whose principal is a node.
    "tool.result": ConnectionMethod(params.ToolResultParams, results.Receipt, _OF_NODE),
    "tool.progress": ConnectionMethod(params.ToolProgress, results.Receipt, _OF_NODE),
}
