"""The handlers of the methods for canvases, their versions, pages and assets."""

import base64
from collections.abc import Sequence
from typing import TypeVar

from msgspec import UnsetType

from easel.core.canvas.canvas import Canvas, CanvasSnapshot
from easel.core.canvas.versions import Version
from easel.core.session.session import MAIN_ALIAS
from easel.edges import params, results, views
from easel.edges.caller import Caller
from easel.edges.decoding import with_warnings
from easel.edges.paging import read_list_page, read_page
from easel.errors import BadInput, NotFound
from easel.host.canvases import completion
from easel.host.canvases.views import NO_CONNECTION

Content = TypeVar("Content", results.AssetContent, results.VersionsResult)

# --- canvases -----------------------------------------------------------------------------------------------


async def list_canvases(caller: Caller, given: params.ListCanvases) -> results.CanvasPage:
    library, principal, agent_id = caller.services.canvases, caller.principal, given.agentId
    start, limit = given.after, min(given.limit, params.MAX_CANVASES)
    if given.offset:
        if start is not None:
            raise BadInput(problem="Only one of after and offset may be given.")
        start = await library.find_at(principal, agent_id=agent_id, offset=given.offset - 1)
        if start is None:
            return results.CanvasPage([], count=await library.count(principal, agent_id=agent_id))

    async def read(after: str | None, count: int) -> Sequence[Canvas]:
        return await library.list_canvases(principal, agent_id=agent_id, after=after, limit=count)

    canvases, more = await read_page(
        read, views.descriptor, lambda canvas: canvas.canvas_id, start=start, limit=limit, step=limit
    )
    page = results.CanvasPage(canvases, views.or_unset(more))
    if given.after is None:
        is_complete = start is None and more is None
        page.count = len(canvases) if is_complete else await library.count(principal, agent_id=agent_id)
    return page


async def get_canvas(caller: Caller, given: params.OfCanvas) -> results.CanvasResult:
    return views.canvas_view(await caller.services.canvases.get(caller.principal, given.canvasId))


async def create_canvas(caller: Caller, given: params.WriteCanvas) -> results.CanvasResult:
    library, principal = caller.services.canvases, caller.principal
    created = await completion.create_canvas(library, principal, params.draft(given), given.mode)
    return await _write_result(caller, given, created)


async def upsert_canvas(caller: Caller, given: params.WriteCanvas) -> results.CanvasResult:
    library, principal = caller.services.canvases, caller.principal
    written = await completion.upsert_canvas(library, principal, params.draft(given), given.mode)
    return await _write_result(caller, given, written)


async def patch_canvas(caller: Caller, given: params.PatchCanvas) -> results.CanvasResult:
    patched = await completion.patch_canvas(
        caller.services.canvases,
        caller.principal,
        given.canvasId,
        state_patch=given.statePatch,
        spec=given.spec,
        mode=given.mode,
        title=given.title,
        owner_session_key=_session_of(given),
        expected_revision=given.expectedRevision,
    )
    return await _write_result(caller, given, patched)


def _session_of(given: params.WriteCanvas | params.PatchCanvas) -> str | None:
    """Return the session that a write names; None if it names none."""
    key = given.ownerSessionKey
    if isinstance(key, UnsetType) or (key is None and isinstance(given, params.WriteCanvas)):
        return None
    return key or MAIN_ALIAS


async def _write_result(
    caller: Caller, given: params.WriteCanvas | params.PatchCanvas, snapshot: CanvasSnapshot
) -> results.CanvasResult:
    is_declined = isinstance(given, params.WriteCanvas) and given.accepted is False
    warnings = await caller.services.canvases.warnings(
        caller.principal,
        given.spec,
        snapshot.canvas,
        session_key=_session_of(given),
        names_acceptance=not is_declined,
    )
    return with_warnings(views.canvas_view(snapshot), warnings)


async def delete_canvas(caller: Caller, given: params.DeleteCanvas) -> results.DeletedCanvas:
    """Delete a canvas. A missing canvas and one of another user or agent are answered alike. RS-67"""
    is_deleted = True
    try:
        await caller.services.canvases.delete(
            caller.principal, given.canvasId, given.expectedRevision, agent_id=given.agentId
        )
    except NotFound:
        is_deleted = False
    return results.DeletedCanvas(ok=True, canvasId=given.canvasId, deleted=is_deleted)


async def open_canvas(caller: Caller, given: params.OpenCanvas) -> results.OpenedCanvas:
    client_id = caller.client_id if given.clientId is None else given.clientId
    if given.clientId is not None:
        params.check_client_id(client_id, "clientId")
    view, snapshot = await caller.services.views.open(
        caller.principal, given.canvasId, client_id, caller.connection_id
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


async def close_canvas(caller: Caller, given: params.CloseCanvas) -> results.ClosedCanvas:
    if given.viewId is None and caller.connection_id == NO_CONNECTION:
        raise BadInput(
            problem="viewId must be given: this request is not on a connection with views of its own."
        )
    closed = await caller.services.views.close(
        caller.principal, given.canvasId, caller.connection_id, given.viewId, given.clientId
    )
    if given.viewId is not None and not closed:
        raise NotFound(what="view", id=given.viewId[:200])
    return results.ClosedCanvas(ok=True, canvasId=given.canvasId, closed=closed)


# --- versions -----------------------------------------------------------------------------------------------


async def list_versions(caller: Caller, given: params.ListVersions) -> results.VersionsResult:
    """Return versions, newest first, and the present one; or one version, or one asset of it."""
    versions, principal, canvas_id = caller.services.versions, caller.principal, given.canvasId
    if given.path is not None:
        if given.version is None:
            raise BadInput(problem="path needs the version whose asset it is.")
        asset, content = await versions.read_asset(principal, canvas_id, given.version, given.path)
        return _with_content(
            results.VersionsResult(
                canvasId=canvas_id,
                version=given.version,
                path=asset.path,
                size=asset.size,
                mediaType=asset.media_type,
            ),
            content,
        )
    if given.version is not None:
        found = await versions.get(principal, canvas_id, given.version)
        return results.VersionsResult(versions=[views.version_content_view(found)])
    current = await versions.current(principal, canvas_id)

    async def read(before: int | None, count: int) -> Sequence[Version]:
        only = given.onlyAccepted
        return await versions.list_versions(
            principal, canvas_id, before=before, limit=count, only_accepted=only
        )

    page, more = await read_page(
        read,
        views.version_view,
        lambda version: version.number,
        start=given.before,
        limit=given.limit,
        step=given.limit,
    )
    return results.VersionsResult(views.version_view(current), page, views.or_unset(more))


async def restore_canvas(caller: Caller, given: params.RestoreCanvas) -> results.CanvasResult:
    services, principal = caller.services, caller.principal
    restored = await services.versions.restore(
        principal, given.canvasId, given.version, given.expectedRevision
    )
    snapshot = await services.canvases.check_tools(principal, restored)
    spec = snapshot.canvas.spec
    warnings = await services.canvases.warnings(principal, spec, snapshot.canvas, names_acceptance=True)
    return with_warnings(views.canvas_view(snapshot), warnings)


# --- the page of a canvas -----------------------------------------------------------------------------------


async def enter_input(caller: Caller, given: params.EnterInput) -> results.CanvasResult:
    entry = {"value": given.value, "was": given.was, "expected_revision": given.expectedRevision}
    snapshot = await caller.services.pages.apply_input(caller.principal, given.canvasId, given.path, **entry)
    return views.canvas_view(await caller.services.canvases.check_tools(caller.principal, snapshot))


async def report_page(caller: Caller, given: params.ReportPage) -> results.ReportedPage:
    await caller.services.pages.report_violation(
        caller.principal, given.canvasId, given.what, given.detail, given.count
    )
    return results.ReportedPage(given.canvasId, reported=True)


# --- assets -------------------------------------------------------------------------------------------------


async def put_asset(caller: Caller, given: params.PutAsset) -> results.StoredAsset:
    asset, revision = await caller.services.assets.put(
        caller.principal, given.canvasId, given.path, params.content(given), given.expectedRevision
    )
    return results.StoredAsset(given.canvasId, asset.path, asset.size, asset.media_type, revision)


async def get_asset(caller: Caller, given: params.NamedAsset) -> results.AssetContent:
    asset, content, revision = await caller.services.assets.read(caller.principal, given.canvasId, given.path)
    result = results.AssetContent(given.canvasId, asset.path, asset.size, asset.media_type, revision)
    return _with_content(result, content)


def _with_content(result: Content, content: bytes) -> Content:
    """Return the result with the content of an asset: as text if it is UTF-8, else as Base64."""
    try:
        result.text = content.decode()
    except UnicodeDecodeError:
        result.base64 = base64.b64encode(content).decode()
    return result


async def list_assets(caller: Caller, given: params.ListOfCanvas) -> results.AssetPage:
    snapshot = await caller.services.canvases.get(caller.principal, given.canvasId)
    assets, more = await read_list_page(
        snapshot.assets, views.asset_view, lambda asset: asset.path, start=given.after, limit=given.limit
    )
    return results.AssetPage(given.canvasId, assets, snapshot.canvas.revision, views.or_unset(more))


async def delete_asset(caller: Caller, given: params.DeleteAsset) -> results.DeletedAsset:
    revision = await caller.services.assets.delete(
        caller.principal, given.canvasId, given.path, given.expectedRevision
    )
    return results.DeletedAsset(given.canvasId, given.path, deleted=True, revision=revision)
