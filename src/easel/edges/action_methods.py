"""The handlers of the methods for actions, their confirmations and records, and for tools and nodes."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from easel.core.action.execution import Execution, ExecutionStatus
from easel.core.tool.node import LocalNode
from easel.edges import results
from easel.edges.caller import Caller
from easel.edges.paging import read_list_page, read_page
from easel.edges.params import (
    AcceptSpec,
    CancelAction,
    Confirmation,
    InvokeTool,
    ListConfirmations,
    ListItems,
    ListRecords,
    RunAction,
)
from easel.edges.views import (
    canvas_view,
    confirmation_view,
    node_view,
    or_unset,
    record_view,
    tool_view,
)
from easel.errors import NotFound
from easel.host.actions.request import ActionRequest, ActionResult

# --- actions ------------------------------------------------------------------------------------------------


async def run_action(caller: Caller, params: RunAction) -> results.ActionOutcome:
    request = ActionRequest(
        canvas_id=params.canvasId,
        action_id=params.actionId,
        input=params.input or {},
        client_id=caller.client_id,
        expected_revision=params.expectedRevision,
        request_id=params.requestId,
        has_gesture=params.hasGesture,
    )
    return _outcome(await caller.services.actions.execute(caller.principal, request))


async def confirm_action(caller: Caller, params: Confirmation) -> results.ActionOutcome:
    services, principal = caller.services, caller.principal
    if params.agentId is not None:
        asked = await services.actions.confirmations.get(principal, params.confirmationId)
        try:
            await services.canvases.require_agent(principal, asked.canvas_id, params.agentId)
        except NotFound:
            raise NotFound(what="confirmation", id=params.confirmationId) from None
    return _outcome(await services.actions.confirm(principal, params.confirmationId, approve=params.approve))


def _outcome(result: ActionResult, *, has_ok: bool = True) -> results.ActionOutcome:
    """Return the outcome of an action; `ok` is true only if the action has completed. RS-67"""
    ok = result.status is ExecutionStatus.COMPLETED if has_ok else UNSET
    match result.status:
        case ExecutionStatus.ASKED:
            return results.ActionAsked(confirmationId=result.event_id, resolved=result.resolved, ok=ok)
        case ExecutionStatus.REFUSED:
            return results.ActionRefused(eventId=result.event_id, revision=result.revision, ok=ok)
        case ExecutionStatus.FAILED:
            return results.ActionCancelled(eventId=result.event_id, revision=result.revision, ok=ok)
        case _:
            value = result.result if result.has_result else UNSET
            return results.ActionCompleted(
                eventId=result.event_id, revision=result.revision, result=value, ok=ok
            )


async def cancel_action(caller: Caller, params: CancelAction) -> results.ActionOutcome:
    result = await caller.services.actions.cancel(
        caller.principal, params.canvasId, params.eventId, only_running=params.onlyRunning
    )
    return _outcome(result, has_ok=False)


async def accept_spec(caller: Caller, params: AcceptSpec) -> results.CanvasResult:
    return canvas_view(
        await caller.services.canvases.accept(
            caller.principal, params.canvasId, params.revision, params.weakenedTools, params.createdAt
        )
    )


async def list_confirmations(caller: Caller, params: ListConfirmations) -> results.ConfirmationPage:
    """List pending confirmations, newest first. Their number is bounded, so that all of them are read."""
    services, principal = caller.services, caller.principal
    pending = await services.actions.confirmations.list_pending(principal, params.canvasId)
    ids = [execution.event_id for execution in pending]
    first = 0 if params.before is None else sum(event_id >= params.before for event_id in ids)
    views = [
        confirmation_view(execution, services.nodes.local)
        for execution in pending[first : first + params.limit]
    ]
    more = ids[first + params.limit - 1] if first + params.limit < len(ids) else None
    return results.ConfirmationPage(views, or_unset(more))


async def list_records(caller: Caller, params: ListRecords) -> results.RecordPage:
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
    return results.RecordPage(records, or_unset(more))


# --- tools --------------------------------------------------------------------------------------------------


async def list_tools(caller: Caller, params: ListItems) -> results.ToolPage:
    definitions = await caller.services.tools.definitions(caller.principal.account_id)
    tools, more = await read_list_page(
        definitions.values(),
        to_view=tool_view,
        position=lambda tool: tool.name,
        start=params.after,
        limit=params.limit,
    )
    return results.ToolPage(tools, or_unset(more))


async def list_nodes(caller: Caller, params: ListItems) -> results.NodePage:
    """List the nodes by id, after the machine of this instance."""
    nodes, more = await read_list_page(
        await caller.services.nodes.list_nodes(caller.principal),
        to_view=node_view,
        position=lambda node: "" if isinstance(node, LocalNode) else node.node_id,
        start=params.after,
        limit=params.limit,
    )
    return results.NodePage(nodes, or_unset(more))


async def invoke_tool(caller: Caller, params: InvokeTool) -> results.InvokedTool:
    result = await caller.services.invocations.invoke(caller.principal, params.tool, params.args or {})
    return results.InvokedTool(ok=True, result=result)
