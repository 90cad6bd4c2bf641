"""The handlers of the methods for actions, their confirmations and records, and for tools and nodes."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from easel.core.action.execution import Execution, ExecutionStatus
from easel.core.tool.node import LocalNode
from easel.edges import params, results, views
from easel.edges.caller import Caller
from easel.edges.paging import read_list_page, read_page
from easel.errors import NotFound
from easel.host.actions.request import ActionRequest, ActionResult

# --- actions ------------------------------------------------------------------------------------------------


async def run_action(caller: Caller, given: params.RunAction) -> results.ActionOutcome:
    request = ActionRequest(
        canvas_id=given.canvasId,
        action_id=given.actionId,
        input=given.input or {},
        client_id=caller.client_id,
        expected_revision=given.expectedRevision,
        request_id=given.requestId,
        has_gesture=given.hasGesture,
    )
    return _outcome(await caller.services.actions.execute(caller.principal, request))


async def confirm_action(caller: Caller, given: params.Confirmation) -> results.ActionOutcome:
    services, principal = caller.services, caller.principal
    if given.agentId is not None:
        asked = await services.actions.confirmations.get(principal, given.confirmationId)
        try:
            await services.canvases.require_agent(principal, asked.canvas_id, given.agentId)
        except NotFound:
            raise NotFound(what="confirmation", id=given.confirmationId) from None
    return _outcome(await services.actions.confirm(principal, given.confirmationId, approve=given.approve))


def _outcome(result: ActionResult, *, has_ok: bool = True) -> results.ActionOutcome:
    """Return the outcome of an action; `ok` is true only if the action has completed. RS-67"""
    ok = result.status is ExecutionStatus.COMPLETED if has_ok else UNSET
    match result.status:
        case ExecutionStatus.ASKED:
            approval, asked_by = (result.resolved.get(name, UNSET) for name in ("approval", "askedBy"))
            return results.ActionAsked(
                confirmationId=result.event_id,
                resolved=result.resolved,
                ok=ok,
                approval=approval,
                askedBy=asked_by,
            )
        case ExecutionStatus.REFUSED:
            return results.ActionRefused(eventId=result.event_id, revision=result.revision, ok=ok)
        case ExecutionStatus.FAILED:
            return results.ActionCancelled(eventId=result.event_id, revision=result.revision, ok=ok)
        case _:
            value = result.result if result.has_result else UNSET
            return results.ActionCompleted(
                eventId=result.event_id, revision=result.revision, result=value, ok=ok
            )


async def cancel_action(caller: Caller, given: params.CancelAction) -> results.ActionOutcome:
    result = await caller.services.actions.cancel(
        caller.principal, given.canvasId, given.eventId, only_running=given.onlyRunning
    )
    return _outcome(result, has_ok=False)


async def accept_spec(caller: Caller, given: params.AcceptSpec) -> results.CanvasResult:
    return views.canvas_view(
        await caller.services.canvases.accept(
            caller.principal, given.canvasId, given.revision, given.weakenedTools, given.createdAt
        )
    )


async def list_confirmations(caller: Caller, given: params.ListConfirmations) -> results.ConfirmationPage:
    """List pending confirmations, newest first. Their number is bounded, so that all of them are read."""
    services = caller.services
    pending = await services.actions.confirmations.list_pending(caller.principal, given.canvasId)
    ids = [execution.event_id for execution in pending]
    first = 0 if given.before is None else sum(event_id >= given.before for event_id in ids)
    last = first + given.limit
    page = [
        views.confirmation_view(asked, services.nodes.local, caller.principal)
        for asked in pending[first:last]
    ]
    return results.ConfirmationPage(page, ids[last - 1] if last < len(ids) else UNSET)


async def list_records(caller: Caller, given: params.ListRecords) -> results.RecordPage:
    async def read(before: str | None, count: int) -> Sequence[Execution]:
        return await caller.services.actions.list_records(
            caller.principal, given.canvasId, status=given.status, before=before, limit=count
        )

    records, more = await read_page(
        read,
        views.record_view,
        lambda record: record.event_id,
        start=given.before,
        limit=given.limit,
        weight=lambda record: len(msgspec.json.encode([record.resolved, record.answer])),
    )
    return results.RecordPage(records, views.or_unset(more))


# --- tools --------------------------------------------------------------------------------------------------


async def list_tools(caller: Caller, given: params.ListItems) -> results.ToolPage:
    definitions = await caller.services.tools.definitions(caller.principal.account_id)
    tools, more = await read_list_page(
        definitions.values(), views.tool_view, lambda tool: tool.name, start=given.after, limit=given.limit
    )
    return results.ToolPage(tools, views.or_unset(more))


async def list_nodes(caller: Caller, given: params.ListItems) -> results.NodePage:
    """List the nodes by id, after the machine of this instance."""
    nodes, more = await read_list_page(
        await caller.services.nodes.list_nodes(caller.principal),
        views.node_view,
        lambda node: "" if isinstance(node, LocalNode) else node.node_id,
        start=given.after,
        limit=given.limit,
    )
    return results.NodePage(nodes, views.or_unset(more))


async def invoke_tool(caller: Caller, given: params.InvokeTool) -> results.InvokedTool:
    result = await caller.services.invocations.invoke(caller.principal, given.tool, given.args or {})
    return results.InvokedTool(ok=True, result=result)
