"""The handlers of the methods for actions, their confirmations and records, and for tools and nodes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from easel.core.action.execution import Execution, ExecutionStatus
from easel.core.tool.node import LocalNode
from easel.edges.caller import Caller
from easel.edges.paging import page_of, read_list_page, read_page
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
    record_view,
    result_view,
    tool_view,
)
from easel.errors import NotFound
from easel.host.actions.request import ActionRequest, ActionResult

# --- actions ------------------------------------------------------------------------------------------------


async def run_action(caller: Caller, params: RunAction) -> Any:
    request = ActionRequest(
        canvas_id=params.canvasId,
        action_id=params.actionId,
        input=params.input or {},
        client_id=caller.client_id,
        expected_revision=params.expectedRevision,
        request_id=params.requestId,
        has_gesture=params.hasGesture,
    )
    return _with_ok(await caller.services.actions.execute(caller.principal, request))


async def confirm_action(caller: Caller, params: Confirmation) -> Any:
    services, principal = caller.services, caller.principal
    if params.agentId is not None:
        asked = await services.actions.confirmations.get(principal, params.confirmationId)
        try:
            await services.canvases.require_agent(principal, asked.canvas_id, params.agentId)
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
            caller.principal, params.canvasId, params.revision, params.weakenedTools, params.createdAt
        )
    )


async def list_confirmations(caller: Caller, params: ListConfirmations) -> Any:
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
    return page_of("confirmations", (views, more))


async def list_records(caller: Caller, params: ListRecords) -> Any:
    async def read(before: str | None, count: int) -> Sequence[Execution]:
        return await caller.services.actions.list_records(
            caller.principal, params.canvasId, status=params.status, before=before, limit=count
        )

    page = await read_page(
        read,
        to_view=record_view,
        position=lambda record: record.event_id,
        start=params.before,
        limit=params.limit,
        weight=lambda record: len(msgspec.json.encode([record.resolved, record.answer])),
    )
    return page_of("records", page)


# --- tools --------------------------------------------------------------------------------------------------


async def list_tools(caller: Caller, params: ListItems) -> Any:
    definitions = await caller.services.tools.definitions(caller.principal.account_id)
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


async def invoke_tool(caller: Caller, params: InvokeTool) -> Any:
    result = await caller.services.invocations.invoke(caller.principal, params.tool, params.args or {})
    return {"ok": True, "result": result}
