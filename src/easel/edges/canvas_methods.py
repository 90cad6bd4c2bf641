"""The handlers of the methods for canvases, their versions, pages and assets."""

import base64
from collections.abc import Sequence
from typing import TypeVar

from msgspec import UnsetType

from easel.core.canvas.canvas import Canvas, CanvasSnapshot
from easel.core.canvas.versions import Version
from easel.core.session.session import MAIN_ALIAS
from easel.edges import results
from easel.edges.caller import Caller
from easel.edges.decoding import with_warnings
from easel.edges.paging import read_list_page, read_page
from easel.edges.params import (
    MAX_CANVASES,
    CloseCanvas,
    DeleteAsset,
    DeleteCanvas,
    EnterInput,
    ListCanvases,
    ListOfCanvas,
    ListVersions,
    NamedAsset,
    NamedCanvas,
    OpenCanvas,
    PatchCanvas,
    PutAsset,
    ReportPage,
    RestoreCanvas,
    WriteCanvas,
    check_client_id,
    content,
    draft,
)
from easel.edges.views import (
    asset_view,
    canvas_view,
    descriptor,
    or_unset,
    version_content_view,
    version_view,
)
from easel.errors import BadInput, NotFound
from easel.host.canvases import completion
from easel.host.canvases.views import NO_CONNECTION

Content = TypeVar("Content", results.AssetContent, results.VersionsResult)

# --- canvases -----------------------------------------------------------------------------------------------


async def list_canvases(caller: Caller, params: ListCanvases) -> results.CanvasPage:
    library, principal, agent_id = caller.services.canvases, caller.principal, params.agentId
    start, limit = params.after, min(params.limit, MAX_CANVASES)
    if params.offset:
        if start is not None:
            raise BadInput(problem="Only one of after and offset may be given.")
        start = await library.find_at(principal, agent_id=agent_id, offset=params.offset - 1)
        if start is None:
            return results.CanvasPage([], count=await library.count(principal, agent_id=agent_id))

    async def read(after: str | None, count: int) -> Sequence[Canvas]:
        return await library.list_canvases(principal, agent_id=agent_id, after=after, limit=count)

    canvases, more = await read_page(
        read,
        to_view=descriptor,
        position=lambda canvas: canvas.canvas_id,
        start=start,
        limit=limit,
        step=limit,
    )
    page = results.CanvasPage(canvases, or_unset(more))
    if params.after is None:
        is_complete = start is None and more is None
        page.count = len(canvases) if is_complete else await library.count(principal, agent_id=agent_id)
    return page


async def get_canvas(caller: Caller, params: NamedCanvas) -> results.CanvasResult:
    return canvas_view(await caller.services.canvases.get(caller.principal, params.canvasId))


async def create_canvas(caller: Caller, params: WriteCanvas) -> results.CanvasResult:
    library, principal = caller.services.canvases, caller.principal
    created = await completion.create_canvas(library, principal, draft(params), params.mode)
    return await _write_result(caller, params, created)


async def upsert_canvas(caller: Caller, params: WriteCanvas) -> results.CanvasResult:
    library, principal = caller.services.canvases, caller.principal
    written = await completion.upsert_canvas(library, principal, draft(params), params.mode)
    return await _write_result(caller, params, written)


async def patch_canvas(caller: Caller, params: PatchCanvas) -> results.CanvasResult:
    patched = await completion.patch_canvas(
        caller.services.canvases,
        caller.principal,
        params.canvasId,
        state_patch=params.statePatch,
        spec=params.spec,
        mode=params.mode,
        title=params.title,
        owner_session_key=_session_of(params),
        expected_revision=params.expectedRevision,
    )
    return await _write_result(caller, params, patched)


def _session_of(params: WriteCanvas | PatchCanvas) -> str | None:
    """Return the session that a write names; None if it names none."""
    key = params.ownerSessionKey
    if isinstance(key, UnsetType) or (key is None and isinstance(params, WriteCanvas)):
        return None
    return key or MAIN_ALIAS


async def _write_result(
    caller: Caller, params: WriteCanvas | PatchCanvas, snapshot: CanvasSnapshot
) -> results.CanvasResult:
    is_declined = isinstance(params, WriteCanvas) and params.accepted is False
    warnings = await caller.services.canvases.warnings(
        caller.principal,
        params.spec,
        snapshot.canvas,
        session_key=_session_of(params),
        names_acceptance=not is_declined,
    )
    return with_warnings(canvas_view(snapshot), warnings)


async def delete_canvas(caller: Caller, params: DeleteCanvas) -> results.DeletedCanvas:
    """Delete a canvas. A missing canvas and one of another user or agent are answered alike. RS-67"""
    is_deleted = True
    try:
        await caller.services.canvases.delete(
            caller.principal, params.canvasId, params.expectedRevision, agent_id=params.agentId
        )
    except NotFound:
        is_deleted = False
    return results.DeletedCanvas(ok=True, canvasId=params.canvasId, deleted=is_deleted)


async def open_canvas(caller: Caller, params: OpenCanvas) -> results.OpenedCanvas:
    client_id = caller.client_id if params.clientId is None else params.clientId
    if params.clientId is not None:
        check_client_id(client_id, "clientId")
    view, snapshot = await caller.services.views.open(
        caller.principal, params.canvasId, client_id, caller.connection_id
    )
    canvas = snapshot.canvas
    return results.OpenedCanvas(
        ok=True,
        canvasId=canvas.canvas_id,
        viewId=view.view_id,
        viewUrl=f"/canvas/{canvas.agent_id}/{canvas.canvas_id}",
        revision=canvas.revision,
        lastSeq=canvas.last_seq,
    )


async def close_canvas(caller: Caller, params: CloseCanvas) -> results.ClosedCanvas:
    if params.viewId is None and caller.connection_id == NO_CONNECTION:
        raise BadInput(
            problem="viewId must be given: this request is not on a connection with views of its own."
        )
    closed = await caller.services.views.close(
        caller.principal, params.canvasId, caller.connection_id, params.viewId, params.clientId
    )
    if params.viewId is not None and not closed:
        raise NotFound(what="view", id=params.viewId[:200])
    return results.ClosedCanvas(ok=True, canvasId=params.canvasId, closed=closed)


# --- versions -----------------------------------------------------------------------------------------------


async def list_versions(caller: Caller, params: ListVersions) -> results.VersionsResult:
    """Return versions, newest first, and the present one; or one version, or one asset of it."""
    versions, principal, canvas_id = caller.services.versions, caller.principal, params.canvasId
    if params.path is not None:
        if params.version is None:
            raise BadInput(problem="path needs the version whose asset it is.")
        asset, content = await versions.read_asset(principal, canvas_id, params.version, params.path)
        return _with_content(
            results.VersionsResult(
                canvasId=canvas_id,
                version=params.version,
                path=asset.path,
                size=asset.size,
                mediaType=asset.media_type,
            ),
            content,
        )
    if params.version is not None:
        found = await versions.get(principal, canvas_id, params.version)
        return results.VersionsResult(versions=[version_content_view(found)])
    current = await versions.current(principal, canvas_id)

    async def read(before: int | None, count: int) -> Sequence[Version]:
        only = params.onlyAccepted
        return await versions.list_versions(
            principal, canvas_id, before=before, limit=count, only_accepted=only
        )

    page, more = await read_page(
        read,
        to_view=version_view,
        position=lambda version: version.number,
        start=params.before,
        limit=params.limit,
        step=params.limit,
    )
    return results.VersionsResult(version_view(current), page, or_unset(more))


async def restore_canvas(caller: Caller, params: RestoreCanvas) -> results.CanvasResult:
    services, principal = caller.services, caller.principal
    restored = await services.versions.restore(
        principal, params.canvasId, params.version, params.expectedRevision
    )
    snapshot = await services.canvases.check_tools(principal, restored)
    spec = snapshot.canvas.spec
    warnings = await services.canvases.warnings(principal, spec, snapshot.canvas, names_acceptance=True)
    return with_warnings(canvas_view(snapshot), warnings)


# --- the page of a canvas -----------------------------------------------------------------------------------


async def enter_input(caller: Caller, params: EnterInput) -> results.CanvasResult:
    entry = {"value": params.value, "was": params.was, "expected_revision": params.expectedRevision}
    snapshot = await caller.services.pages.apply_input(
        caller.principal, params.canvasId, params.path, **entry
    )
    return canvas_view(await caller.services.canvases.check_tools(caller.principal, snapshot))


async def report_page(caller: Caller, params: ReportPage) -> results.ReportedPage:
    await caller.services.pages.report_violation(
        caller.principal, params.canvasId, params.what, params.detail, params.count
    )
    return results.ReportedPage(params.canvasId, reported=True)


# --- assets -------------------------------------------------------------------------------------------------


async def put_asset(caller: Caller, params: PutAsset) -> results.StoredAsset:
    asset, revision = await caller.services.assets.put(
        caller.principal, params.canvasId, params.path, content(params), params.expectedRevision
    )
    return results.StoredAsset(params.canvasId, asset.path, asset.size, asset.media_type, revision)


async def get_asset(caller: Caller, params: NamedAsset) -> results.AssetContent:
    asset, content, revision = await caller.services.assets.read(
        caller.principal, params.canvasId, params.path
    )
    result = results.AssetContent(params.canvasId, asset.path, asset.size, asset.media_type, revision)
    return _with_content(result, content)


def _with_content(result: Content, content: bytes) -> Content:
    """Return the result with the content of an asset: as text if it is UTF-8, else as Base64."""
    try:
        result.text = content.decode()
    except UnicodeDecodeError:
        result.base64 = base64.b64encode(content).decode()
    return result


async def list_assets(caller: Caller, params: ListOfCanvas) -> results.AssetPage:
    snapshot = await caller.services.canvases.get(caller.principal, params.canvasId)
    assets, more = await read_list_page(
        snapshot.assets,
        to_view=asset_view,
        position=lambda asset: asset.path,
        start=params.after,
        limit=params.limit,
    )
    return results.AssetPage(params.canvasId, assets, snapshot.canvas.revision, or_unset(more))


async def delete_asset(caller: Caller, params: DeleteAsset) -> results.DeletedAsset:
    revision = await caller.services.assets.delete(
        caller.principal, params.canvasId, params.path, params.expectedRevision
    )
    return results.DeletedAsset(params.canvasId, params.path, deleted=True, revision=revision)
