"""Canvases and their logs: what both databases have in common.

The rules are in the statements of `canvases.sql`. A subclass says how its database locks a canvas, and how
it stores and deletes the events of its log.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from easel.core.action.execution import DuplicateRequest, ExecutionChange, StaleTransition, Transition
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change, Decide, NewCanvas, Outcome, View
from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.canvas.versions import find_replaced
from easel.core.stream.envelope import Envelope
from easel.core.stream.json_text import to_json
from easel.core.stream.log import Bounds, LoggedEvent
from easel.ids import AccountId, CanvasId, scoped_key
from easel.stores.nouns.canvas_versions import find_unused_blobs, keep_version
from easel.stores.nouns.deletions import MAX_PURGED_ROWS, SqlDeletions
from easel.stores.nouns.statements import Row, Statements, Steps
from easel.stores.rows.canvases import (
    all_blob_keys,
    asset_columns,
    build_outcome,
    change_arguments,
    create_arguments,
    job_columns,
    to_canvas,
    to_canvas_events,
    to_old_logs,
    to_snapshot,
    transition_arguments,
)
from easel.stores.rows.documents import has_document
from easel.stores.rows.runs import split_key

# A version and a document are stored in the transaction that changes their canvas.
NOUNS = ("canvases", "canvas_versions", "documents")

Ids = Mapping[str, str]  # account_id and canvas_id


class SqlCanvases(ABC):
    def __init__(self, statements: Statements, deletions: SqlDeletions, max_versions: int) -> None:
        self._sql = statements
        self._deletions = deletions
        self._max_versions = max_versions  # of one canvas

    @abstractmethod
    def _trim_log(self, arguments: dict[str, Any]) -> Steps[int]:
        """Delete old events at the start of a log, at most `step`. Returns how many were deleted."""

    def _lock(self, _ids: Ids, /) -> Steps[None]:
        """Lock a canvas until the transaction ends, if others may write at the same time."""
        yield from ()

    def _add_events(
        self, _events: Sequence[Envelope], _arguments: dict[str, Any], _last_seq: int, /
    ) -> Steps[None]:
        """Store the events and references of a change, unless its statement has stored them."""
        yield from ()

    async def create(self, new: NewCanvas, event: Envelope) -> CanvasSnapshot | None:
        created = await self._sql.transaction(self._create(new, event))
        if created is None:  # it exists, or is deleted and not purged yet, perhaps just purged by a worker
            await self._deletions.finish_canvas(new.account_id, new.canvas_id)
            created = await self._sql.transaction(self._create(new, event))
        return created

    async def get(self, account_id: AccountId, canvas_id: CanvasId) -> CanvasSnapshot | None:
        row = await self._sql.row("get_canvas", account_id=account_id, canvas_id=canvas_id)
        return to_snapshot(row) if row else None

    async def change(
        self, account_id: AccountId, canvas_id: CanvasId, decide: Decide, *, seconds: float = 0
    ) -> Outcome | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        return await self._sql.transaction(self._change(ids, decide, seconds))

    async def delete(self, account_id: AccountId, canvas_id: CanvasId, check: Decide) -> list[str] | None:
        return await self._sql.transaction(
            self._delete({"account_id": account_id, "canvas_id": canvas_id}, check)
        )

    async def list_canvases(
        self, account_id: AccountId, *, agent_id: str | None, after: str, limit: int
    ) -> list[Canvas]:
        rows = await self._sql.rows(
            "list_canvases" if agent_id is None else "list_agent_canvases",
            account_id=account_id,
            agent_id=agent_id,
            after=after,
            limit=limit,
        )
        return [to_canvas(row) for row in rows]

    async def find_at(self, account_id: AccountId, *, agent_id: str | None, offset: int) -> CanvasId | None:
        name = "find_canvas_at" if agent_id is None else "find_agent_canvas_at"
        row = await self._sql.row(name, account_id=account_id, agent_id=agent_id, offset=offset)
        return CanvasId(row["canvas_id"]) if row else None

    async def count(self, account_id: AccountId, *, agent_id: str | None, limit: int) -> int:
        name = "count_canvases" if agent_id is None else "count_agent_canvases"
        [row] = await self._sql.rows(name, account_id=account_id, agent_id=agent_id, limit=limit)
        return row["found"]

    async def get_agent(self, account_id: AccountId, canvas_id: CanvasId) -> str | None:
        row = await self._sql.row("get_canvas_agent", account_id=account_id, canvas_id=canvas_id)
        return row["agent_id"] if row else None

    # -- assets and views ------------------------------------------------------------------------------------

    async def find_unknown_assets(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        made_at = to_json([[key, created_at.timestamp()] for key, created_at in keys.items()])
        rows = await self._sql.rows("find_unknown_assets", keys=made_at, seconds=older_than_seconds)
        return [row["blob_key"] for row in rows]

    async def renew_views(self, connection_ids: Sequence[str], view_ttl_seconds: float) -> None:
        await self._sql.rows("renew_views", connection_ids=list(connection_ids), seconds=view_ttl_seconds)

    async def list_views(self, connection_id: str) -> list[tuple[AccountId, CanvasId, View]]:
        return [_to_view(row) for row in await self._sql.rows("list_views", connection_id=connection_id)]

    async def list_expired_views(self, limit: int) -> list[tuple[AccountId, CanvasId, View]]:
        return [_to_view(row) for row in await self._sql.rows("list_expired_views", limit=limit)]

    # -- the log ---------------------------------------------------------------------------------------------

    async def find_old_logs(self, older_than_seconds: float, after: LogKey, limit: int) -> OldLogs:
        page = {"account_id": after[0], "canvas_id": after[1], "limit": limit}
        return to_old_logs(await self._sql.rows("find_old_logs", seconds=older_than_seconds, **page), limit)

    async def trim_log(
        self, account_id: AccountId, canvas_id: CanvasId, older_than_seconds: float, step: int
    ) -> int:
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        return await self._sql.transaction(
            self._trim_log({**ids, "seconds": older_than_seconds, "step": step})
        )

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        account_id, canvas_id = split_key(key)
        rows = await self._sql.rows(
            "canvas_after", account_id=account_id, canvas_id=canvas_id, cursor=cursor, limit=limit
        )
        return to_canvas_events(rows)

    async def bounds(self, account_id: AccountId, canvas_id: str, /) -> Bounds | None:
        row = await self._sql.row("canvas_bounds", account_id=account_id, canvas_id=canvas_id)
        return Bounds(row["oldest_seq"], row["last_seq"], ended=False) if row else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        rows = await self._sql.rows("canvas_heads", canvases=to_json([split_key(key) for key in keys]))
        return {scoped_key(row["account_id"], row["canvas_id"]): row["last_seq"] for row in rows}

    # -- transactions ----------------------------------------------------------------------------------------

    def _create(self, new: NewCanvas, event: Envelope) -> Steps[CanvasSnapshot | None]:
        ids = {"account_id": new.account_id, "canvas_id": new.canvas_id}
        arguments = create_arguments(new, event)
        rows = yield "create_canvas", arguments
        if not rows:
            return None
        yield from self._add_events([event], arguments, rows[0]["last_seq"])
        if new.assets:
            yield "put_assets", {**ids, **asset_columns(new.assets)}
        if new.refreshes:
            yield "add_refreshes", {**ids, **job_columns(new.refreshes)}
        if has_document(new.spec):
            yield "open_document", ids
        return CanvasSnapshot(to_canvas(rows[0]), sorted(new.assets, key=lambda asset: asset.path))

    def _load(self, ids: Ids) -> Steps[CanvasSnapshot | None]:
        # A separate statement: the next one must see the changes that were committed while this one waited
        # for the lock.
        yield from self._lock(ids)
        rows = yield "get_canvas", ids
        return to_snapshot(rows[0]) if rows else None

    def _change(self, ids: Ids, decide: Decide, seconds: float) -> Steps[Outcome | None]:
        snapshot = yield from self._load(ids)
        if snapshot is None:
            return None
        change = decide(snapshot)
        if change is None:
            return Outcome(snapshot, is_changed=False)
        released = list[str]()
        if replaced := find_replaced(snapshot, change):
            released = yield from keep_version(snapshot.canvas, replaced, self._max_versions)
        arguments = {**ids, **change_arguments(change)}
        [stored] = yield "change_canvas", arguments
        yield from self._add_events(change.events, arguments, stored["last_seq"])
        yield from _store_related(ids, change, seconds)
        if isinstance(change, ExecutionChange):
            yield from _store_transition(change.transition, stored, seconds)
        outcome = build_outcome(snapshot, change, stored)
        if blob_keys := [*outcome.orphaned_blobs, *released]:
            blob_keys = yield from find_unused_blobs(blob_keys)
        return replace(outcome, orphaned_blobs=blob_keys)

    def _delete(self, ids: Ids, check: Decide) -> Steps[list[str] | None]:
        snapshot = yield from self._load(ids)
        if snapshot is None:
            return None
        check(snapshot)
        names = ("mark_canvas", "delete_all_assets", "delete_all_views", "delete_all_refreshes")
        for name in (*names, "close_document"):
            yield name, ids
        versions = yield "delete_version_assets", {**ids, "limit": MAX_PURGED_ROWS}
        return all_blob_keys(snapshot, [row["blob_key"] for row in versions])


def _store_related(ids: Ids, change: Change, seconds: float) -> Steps[None]:
    """Store the assets, views, refresh jobs and the document of a change."""
    if change.removed:
        yield "remove_assets", {**ids, "paths": list(change.removed)}
    if change.put:
        yield "put_assets", {**ids, **asset_columns(change.put)}
    if change.closed:
        yield "remove_views", {**ids, "view_ids": list(change.closed)}
    if change.opened is not None:
        yield "add_view", {**ids, **asdict(change.opened), "seconds": seconds}
    if change.refreshes is not None:
        jobs = {**ids, **job_columns(change.refreshes)}
        yield "delete_refreshes", jobs
        yield "add_refreshes", jobs
    if change.spec is not None and not has_document(change.spec):
        yield "close_document", ids
    elif change.spec is not None or change.owner_session_key is not None:
        yield "open_document", ids


def _store_transition(transition: Transition, stored: Row, seconds: float) -> Steps[None]:
    """Store a transition of an execution. `stored` has the revision and the log position of its canvas."""
    execution, limit = transition.execution, transition.pending_limit
    if limit is not None:
        ids = {"account_id": execution.account_id, "canvas_id": execution.canvas_id}
        [pending] = yield "count_pending_executions", ids
        limit.check(pending["waiting"])
    arguments: dict[str, Any] = transition_arguments(transition, stored["revision"], stored["last_seq"])
    is_new = transition.from_status is None
    name = "start_execution" if is_new else "advance_execution"
    if not (yield name, {**arguments, "seconds": seconds}):
        raise DuplicateRequest if is_new else StaleTransition


def _to_view(row: Row) -> tuple[AccountId, CanvasId, View]:
    return (
        AccountId(row["account_id"]),
        CanvasId(row["canvas_id"]),
        View(row["view_id"], row["client_id"], row["connection_id"], row["user_id"]),
    )
