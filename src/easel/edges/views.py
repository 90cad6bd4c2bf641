"""Canvases, executions, tools and nodes as results of the gateway's methods."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType, convert, structs

from easel.core.action.execution import Execution, asker_of
from easel.core.canvas.assets import ENTRY, Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, to_ms
from easel.core.canvas.refresh import Failing
from easel.core.canvas.versions import Version, VersionContent
from easel.core.principal import Principal
from easel.core.stream.payloads import Actor, ErrorOfAction
from easel.core.tool.definition import ToolDefinition
from easel.core.tool.node import LOCAL, LocalNode, Node, describe_place
from easel.edges import results

Value = TypeVar("Value")


def or_unset(value: Value | None) -> Value | UnsetType:
    """Return the value of a member that is absent if there is none."""
    return UNSET if value is None else value


def descriptor(canvas: Canvas) -> results.CanvasDescriptor:
    return _descriptor(canvas, canvas.spec)


def _descriptor(canvas: Canvas, spec: Mapping[str, Any]) -> results.CanvasDescriptor:
    """Return the descriptor of a canvas; a client subscribes to events after `lastSeq`. CV-14"""
    return results.CanvasDescriptor(
        canvasId=canvas.canvas_id,
        agentId=canvas.agent_id,
        title=canvas.title,
        ownerSessionKey=canvas.session_key,
        mode=spec.get("mode", "html"),
        entryAsset=ENTRY,
        createdAt=to_ms(canvas.created_at),
        updatedAt=to_ms(canvas.updated_at),
        revision=canvas.revision,
        lastSeq=canvas.last_seq,
        createdBy=or_unset(canvas.created_by),
    )


def canvas_view(snapshot: CanvasSnapshot) -> results.CanvasResult:
    canvas = snapshot.canvas
    spec = canvas.spec  # decoded on demand
    return results.CanvasResult(
        descriptor=_descriptor(canvas, spec),
        spec=spec,
        state=canvas.state,
        assets=[asset.path for asset in snapshot.assets],
        accepted=snapshot.is_accepted,
        specRevision=canvas.spec_revision,
        views=[
            results.ViewOfCanvas(view.view_id, view.client_id, or_unset(view.user_id))
            for view in snapshot.live_views
        ],
        revision=canvas.revision,
        writtenBy=_author(canvas.written_by),
        titledBy=UNSET if canvas.titled_by == canvas.written_by else _author(canvas.titled_by),
        weakenedTools=dict(snapshot.weakened) or UNSET,
        failing=[_failing_view(job) for job in snapshot.failing] or UNSET,
    )


def _failing_view(job: Failing) -> results.FailingRefresh:
    return results.FailingRefresh(
        refreshId=job.refresh_id,
        actionId=job.action_id,
        failures=job.failures,
        retryInMs=max(0, round(job.retry_seconds * 1000)),
        error=UNSET if job.error is None else ErrorOfAction(**job.error),
    )


def record_view(record: Execution) -> results.ActionRecord:
    """Return the record of an execution, without its result: `saveAs` stores that in the state. CV-48"""
    error = (record.answer or {}).get("error")
    return results.ActionRecord(
        eventId=record.event_id,
        canvasId=record.canvas_id,
        actionId=record.action_id,
        status=record.status.value,
        actor=convert(record.actor, Actor),
        tool=or_unset(record.tool),
        confirmedBy=or_unset(record.confirmed_by),
        requestId=or_unset(record.request_id),
        revision=or_unset(record.revision),
        askedAt=_ms(record.created_at),
        startedAt=_ms(record.started_at),
        endedAt=_ms(record.ended_at),
        error=UNSET if error is None else ErrorOfAction(**error),
    )


def confirmation_view(
    pending: Execution, local: LocalNode | None, principal: Principal
) -> results.PendingConfirmation:
    """Return a pending confirmation with what a person must know of its tool. RS-64, RS-77"""
    resolved, tool = pending.resolved or {}, pending.tool
    is_of_another = "approval" in resolved
    return results.PendingConfirmation(
        **structs.asdict(record_view(pending)),
        confirmationId=pending.event_id,
        resolved=resolved,
        runsOn=UNSET if tool is None else describe_place(tool, local),
        destructive=UNSET if tool is None else resolved.get("hints", {}).get("destructive", False),
        approval=resolved.get("approval", UNSET),
        askedBy=or_unset(asker_of(pending)),
        mayApprove=principal.responsible != asker_of(pending) if is_of_another else UNSET,
    )


def version_view(version: Version) -> results.CanvasVersion:
    found = version.differences
    return results.CanvasVersion(
        version=version.number,
        revision=version.revision,
        title=version.title,
        ownerSessionKey=version.session_key,
        accepted=version.is_accepted,
        at=_ms(version.written_at),
        writtenBy=_author(version.written_by),
        changed=UNSET
        if found is None
        else [results.ChangedPart(part.path, part.how) for part in found.parts],
        moreChanges=(found and found.more) or UNSET,
        restored=or_unset(found and found.restored),
    )


def version_content_view(found: VersionContent) -> results.CanvasVersion:
    view = version_view(found.version)
    view.spec, view.assets = found.spec, [asset_view(asset) for asset in found.assets]
    return view


def _author(author: str | None) -> results.CanvasAuthor | UnsetType:
    """Return who wrote a spec and its assets, or a title, if it is known."""
    if author is None:
        return UNSET
    kind, _, name = author.partition(" ")
    return results.CanvasAuthor(kind, name)


def _ms(at: datetime | None) -> int | UnsetType:
    return UNSET if at is None else to_ms(at)


def asset_view(asset: Asset) -> results.AssetView:
    return results.AssetView(asset.path, asset.size, asset.media_type)


def node_view(node: LocalNode | Node) -> results.ListedNode:
    if isinstance(node, LocalNode):
        return results.ListedNode(LOCAL, node.platform, node.version, list(node.tools), bash=node.bash)
    return results.ListedNode(
        node.node_id, node.platform, node.version, list(node.tools), connectedAt=_ms(node.connected_at)
    )


def tool_view(tool: ToolDefinition) -> results.ListedTool:
    notes = results.HintsOfTool(tool.read_only, tool.idempotent, tool.destructive)
    return results.ListedTool(tool.name, tool.description, dict(tool.schema), notes)
