"""Canvases, executions, tools and nodes as the JSON of the gateway's methods."""

from datetime import datetime
from typing import Any

from easel.core.action.execution import Execution, ExecutionStatus
from easel.core.canvas.assets import ENTRY, Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, to_ms
from easel.core.canvas.versions import Version
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import LOCAL, LocalNode, Node, describe_place
from easel.host.actions.request import ActionResult


def descriptor(canvas: Canvas) -> dict[str, Any]:
    """Return the descriptor of a canvas; a client subscribes to events after `lastSeq`. CV-14"""
    return {
        "canvasId": canvas.canvas_id,
        "agentId": canvas.agent_id,
        "title": canvas.title,
        "ownerSessionKey": canvas.session_key,
        "mode": canvas.spec.get("mode", "html"),
        "entryAsset": ENTRY,
        "createdAt": _ms(canvas.created_at),
        "updatedAt": _ms(canvas.updated_at),
        "revision": canvas.revision,
        "lastSeq": canvas.last_seq,
    }


def canvas_view(snapshot: CanvasSnapshot) -> dict[str, Any]:
    canvas = snapshot.canvas
    return {
        "descriptor": descriptor(canvas),
        "spec": canvas.spec,
        "state": canvas.state,
        "assets": [asset.path for asset in snapshot.assets],
        "accepted": snapshot.is_accepted,
        "specRevision": canvas.spec_revision,  # of the last change that needs acceptance
        **_author(canvas.written_by),
        **(_author(canvas.titled_by, "titledBy") if canvas.titled_by != canvas.written_by else {}),
        "views": [{"viewId": view.view_id, "clientId": view.client_id} for view in snapshot.live_views],
        "revision": canvas.revision,
        **({"weakenedTools": dict(snapshot.weakened)} if snapshot.weakened else {}),
        **({"failing": [job.to_json() for job in snapshot.failing]} if snapshot.failing else {}),
    }


def result_view(result: ActionResult) -> dict[str, Any]:
    match result.status:
        case ExecutionStatus.ASKED:
            return {
                "status": "needs_confirmation",
                "confirmationId": result.event_id,
                "resolved": result.resolved,
            }
        case ExecutionStatus.REFUSED:
            return {"status": "refused", "eventId": result.event_id, "revision": result.revision}
        case ExecutionStatus.FAILED:
            return {"status": "cancelled", "eventId": result.event_id, "revision": result.revision}
        case _:
            value = {"result": result.result} if result.has_result else {}
            return {"status": "completed", "eventId": result.event_id, "revision": result.revision, **value}


def record_view(record: Execution) -> dict[str, Any]:
    """Return the record of an execution, without its result: `saveAs` stores that in the state. CV-48"""
    fields = {
        "eventId": record.event_id,
        "canvasId": record.canvas_id,
        "actionId": record.action_id,
        "status": record.status.value,
        "actor": record.actor,
        "tool": record.tool,
        "confirmedBy": record.confirmed_by,
        "requestId": record.request_id,
        "revision": record.revision,
        "askedAt": _ms(record.created_at),
        "startedAt": _ms(record.started_at),
        "endedAt": _ms(record.ended_at),
        "error": (record.answer or {}).get("error"),
    }
    return {name: value for name, value in fields.items() if value is not None}


def confirmation_view(pending: Execution, local: LocalNode | None) -> dict[str, Any]:
    """Return a pending confirmation with what a person must know of its tool. RS-64"""
    view = {"confirmationId": pending.event_id, "resolved": pending.resolved, **record_view(pending)}
    if pending.tool is None:
        return view
    is_destructive = (pending.resolved or {}).get("hints", {}).get("destructive", False)
    return {**view, "runsOn": describe_place(pending.tool, local), "destructive": is_destructive}


def version_view(version: Version) -> dict[str, Any]:
    found = version.differences
    fields = {
        "version": version.number,
        "revision": version.revision,
        "title": version.title,
        "ownerSessionKey": version.session_key,
        "accepted": version.is_accepted,
        **_author(version.written_by),
        "at": _ms(version.written_at),
        "changed": None if found is None else [{"path": path, "change": how} for path, how in found.parts],
        "moreChanges": (found and found.more) or None,
        "restored": found and found.restored,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _author(author: str | None, member: str = "writtenBy") -> dict[str, Any]:
    """Return who wrote a spec and its assets, or a title, if it is known."""
    if author is None:
        return {}
    kind, _, name = author.partition(" ")
    return {member: {"kind": kind, "name": name}}


def _ms(at: datetime | None) -> int | None:
    return None if at is None else to_ms(at)


def asset_view(asset: Asset) -> dict[str, Any]:
    return {"path": asset.path, "size": asset.size, "mediaType": asset.media_type}


def node_view(node: LocalNode | Node) -> dict[str, Any]:
    if isinstance(node, LocalNode):
        about = {"nodeId": LOCAL, "platform": node.platform, "version": node.version}
        return {**about, "tools": list(node.tools), "bash": node.bash}
    return {
        "nodeId": node.node_id,
        "platform": node.platform,
        "version": node.version,
        "connectedAt": _ms(node.connected_at),
        "tools": list(node.tools),
    }


def tool_view(tool: ToolDefinition) -> dict[str, Any]:
    notes = {
        "readOnlyHint": tool.read_only,
        "idempotentHint": tool.idempotent,
        "destructiveHint": tool.destructive,
    }
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": dict(tool.schema),
        "annotations": notes,
    }
