"""Canvases and their logs in Postgres. The rules are in the statements of `sql/postgres/canvases.sql`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from easel.core.action.execution import DuplicateRequest, ExecutionChange, StaleTransition, Transition
from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change, Decide, NewCanvas, Outcome, View
from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.canvas.spec import Refresh
from easel.core.stream.envelope import Envelope
from easel.core.stream.json_text import to_json
from easel.core.stream.log import Bounds, LoggedEvent
from easel.core.stream.payload_limit import mentioned_artifacts
from easel.ids import AccountId, CanvasId, scoped_key
from easel.stores import named_sql
from easel.stores.nouns.deletions import MAX_PURGED_ROWS
from easel.stores.postgres import canvas_versions, document_changes
from easel.stores.postgres.run_arguments import columns
from easel.stores.rows.canvases import (
    all_blob_keys,
    build_outcome,
    change_arguments,
    to_canvas_events,
    to_old_logs,
    to_snapshot,
    transition_arguments,
)
from easel.stores.rows.documents import has_document
from easel.stores.rows.runs import split_key, to_canvas

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "canvases")


class PostgresCanvases:
    def __init__(self, database: "PostgresDatabase", max_versions: int) -> None:
        self._database = database
        self._max_versions = max_versions  # of one canvas

    async def create(self, new: NewCanvas, event: Envelope) -> CanvasSnapshot | None:
        stored = {"spec": to_json(new.spec), "state": to_json(new.state)}
        arguments = {
            "account_id": new.account_id,
            "canvas_id": new.canvas_id,
            "agent_id": new.agent_id,
            "title": new.title,
            "owner_session_key": new.owner_session_key,
            "is_accepted": new.is_accepted,
            "tool_hints": to_json(new.tool_hints),
            "written_by": new.written_by,
            "event_type": event.type,
            "visibility": event.visibility.value,
            "payload": event.json,
            "refers_to": sorted(
                event.refers_to | mentioned_artifacts(stored["spec"]) | mentioned_artifacts(stored["state"])
            ),
            **stored,
            **_asset_columns(new.assets),
            **_job_columns(new.refreshes),
        }
        row = await self._create(new, arguments)
        if row is None:  # it exists, or is deleted and not purged yet, perhaps just purged by a worker
            await self._database.deletions.finish_canvas(new.account_id, new.canvas_id)
            row = await self._create(new, arguments)
        return (
            CanvasSnapshot(to_canvas(row), sorted(new.assets, key=lambda asset: asset.path)) if row else None
        )

    async def _create(self, new: NewCanvas, arguments: dict[str, Any]) -> Any:
        if not has_document(new.spec):
            return await self._database.row(SQL["create_canvas"], **arguments)
        async with self._database.connection() as connection, connection.transaction():
            row = await _row(connection, "create_canvas", arguments)
            if row is not None:
                ids = {"account_id": new.account_id, "canvas_id": new.canvas_id}
                await document_changes.open_document(connection, ids)
            return row

    async def get(self, account_id: AccountId, canvas_id: CanvasId) -> CanvasSnapshot | None:
        row = await self._database.row(SQL["get_canvas"], account_id=account_id, canvas_id=canvas_id)
        return to_snapshot(row) if row else None

    async def list_canvases(
        self, account_id: AccountId, *, agent_id: str | None, after: str, limit: int
    ) -> list[Canvas]:
        rows = await self._database.rows(
            SQL["list_canvases" if agent_id is None else "list_agent_canvases"],
            account_id=account_id,
            agent_id=agent_id,
            after=after,
            limit=limit,
        )
        return [to_canvas(row) for row in rows]

    async def find_at(self, account_id: AccountId, *, agent_id: str | None, offset: int) -> CanvasId | None:
        name = "find_canvas_at" if agent_id is None else "find_agent_canvas_at"
        row = await self._database.row(SQL[name], account_id=account_id, agent_id=agent_id, offset=offset)
        return CanvasId(row["canvas_id"]) if row else None

    async def count(self, account_id: AccountId, *, agent_id: str | None, limit: int) -> int:
        name = "count_canvases" if agent_id is None else "count_agent_canvases"
        [row] = await self._database.rows(SQL[name], account_id=account_id, agent_id=agent_id, limit=limit)
        return row["found"]

    async def get_agent(self, account_id: AccountId, canvas_id: CanvasId) -> str | None:
        row = await self._database.row(SQL["get_canvas_agent"], account_id=account_id, canvas_id=canvas_id)
        return row["agent_id"] if row else None

    async def change(
        self, account_id: AccountId, canvas_id: CanvasId, decide: Decide, *, seconds: float = 0
    ) -> Outcome | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        async with self._database.connection() as connection, connection.transaction():
            snapshot = await _lock_and_load(connection, ids)
            if snapshot is None:
                return None
            change = decide(snapshot)
            if change is None:
                return Outcome(snapshot, is_changed=False)
            released = await canvas_versions.keep_version(connection, snapshot, change, self._max_versions)
            arguments, mentions = change_arguments(change)
            stored = await _row(
                connection,
                "change_canvas",
                {**ids, **arguments, **columns(change.events), **mentions._asdict()},
            )
            await _store_related(connection, ids, change, seconds)
            if change.spec is not None and not has_document(change.spec):
                await document_changes.close_document(connection, ids)
            elif change.spec is not None or change.owner_session_key is not None:
                await document_changes.open_document(connection, ids)
            if isinstance(change, ExecutionChange):
                await _store_transition(connection, change.transition, stored, seconds)
            outcome = build_outcome(snapshot, change, **stored)
            blob_keys = [*outcome.orphaned_blobs, *released]
            unused = await canvas_versions.find_unused_blobs(connection, blob_keys)
            return replace(outcome, orphaned_blobs=unused)

    async def delete(self, account_id: AccountId, canvas_id: CanvasId, check: Decide) -> list[str] | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}
        async with self._database.connection() as connection, connection.transaction():
            snapshot = await _lock_and_load(connection, ids)
            if snapshot is None:
                return None
            check(snapshot)
            await _row(connection, "mark_canvas", ids)
            for name in ("delete_all_assets", "delete_all_views", "delete_all_refreshes"):
                await _row(connection, name, ids)
            await document_changes.close_document(connection, ids)
            statement = SQL["delete_version_assets"]
            versions = await connection.fetch(
                statement.sql, *statement.arguments({**ids, "limit": MAX_PURGED_ROWS})
            )
            return all_blob_keys(snapshot, [row["blob_key"] for row in versions])

    # -- assets and views ------------------------------------------------------------------------------------

    async def find_unknown_assets(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        rows = await self._database.rows(
            SQL["find_unknown_assets"],
            blob_keys=list(keys),
            made_at=list(keys.values()),
            seconds=older_than_seconds,
        )
        return [row["blob_key"] for row in rows]

    async def renew_views(self, connection_ids: Sequence[str], view_ttl_seconds: float) -> None:
        await self._database.rows(
            SQL["renew_views"], connection_ids=list(connection_ids), seconds=view_ttl_seconds
        )

    async def list_views(self, connection_id: str) -> list[tuple[AccountId, CanvasId, View]]:
        return [
            _to_view(row) for row in await self._database.rows(SQL["list_views"], connection_id=connection_id)
        ]

    async def list_expired_views(self, limit: int) -> list[tuple[AccountId, CanvasId, View]]:
        return [_to_view(row) for row in await self._database.rows(SQL["list_expired_views"], limit=limit)]

    # -- retention -------------------------------------------------------------------------------------------

    async def find_old_logs(self, older_than_seconds: float, after: LogKey, limit: int) -> OldLogs:
        account_id, canvas_id = after
        rows = await self._database.rows(
            SQL["find_old_logs"],
            seconds=older_than_seconds,
            account_id=account_id,
            canvas_id=canvas_id,
            limit=limit,
        )
        return to_old_logs(rows, limit)

    async def trim_log(
        self, account_id: AccountId, canvas_id: CanvasId, older_than_seconds: float, step: int
    ) -> int:
        row = await self._database.row(
            SQL["trim_canvas_log"],
            account_id=account_id,
            canvas_id=canvas_id,
            seconds=older_than_seconds,
            step=step,
        )
        return row["events"]

    # -- the log ---------------------------------------------------------------------------------------------

    async def bounds(self, account_id: AccountId, canvas_id: str, /) -> Bounds | None:
        row = await self._database.row(SQL["canvas_bounds"], account_id=account_id, canvas_id=canvas_id)
        return Bounds(row["oldest_seq"], row["last_seq"], ended=False) if row else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        ids = [split_key(key) for key in keys]
        rows = await self._database.rows(
            SQL["canvas_heads"],
            account_ids=[account_id for account_id, _ in ids],
            canvas_ids=[canvas_id for _, canvas_id in ids],
        )
        return {scoped_key(row["account_id"], row["canvas_id"]): row["last_seq"] for row in rows}

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        account_id, canvas_id = split_key(key)
        rows = await self._database.rows(
            SQL["canvas_after"], account_id=account_id, canvas_id=canvas_id, cursor=cursor, limit=limit
        )
        return to_canvas_events(rows)


async def _lock_and_load(connection: "Connection", ids: dict[str, Any]) -> CanvasSnapshot | None:
    # A separate statement: the next one must see the changes that were committed while this one waited for
    # the lock.
    await _row(connection, "lock_canvas", ids)
    row = await _row(connection, "get_canvas", ids)
    return to_snapshot(row) if row else None


async def _store_transition(
    connection: "Connection", transition: Transition, stored: Any, seconds: float
) -> None:
    if transition.pending_limit is not None:
        ids = {"account_id": transition.execution.account_id, "canvas_id": transition.execution.canvas_id}
        transition.pending_limit.check(
            (
                await _row(
                    connection,
                    "count_pending_executions",
                    {**ids, "seconds": transition.pending_limit.seconds},
                )
            )["waiting"]
        )
    name = "start_execution" if transition.from_status is None else "advance_execution"
    arguments = transition_arguments(transition, stored["revision"], stored["last_seq"])
    if await _row(connection, name, {**arguments, "seconds": seconds}) is None:
        raise DuplicateRequest if transition.from_status is None else StaleTransition


async def _store_related(
    connection: "Connection", ids: dict[str, Any], change: Change, seconds: float
) -> None:
    if change.removed:
        await _row(connection, "remove_assets", {**ids, "paths": list(change.removed)})
    if change.put:
        await _row(connection, "put_assets", {**ids, **_asset_columns(change.put)})
    if change.closed:
        await _row(connection, "remove_views", {**ids, "view_ids": list(change.closed)})
    if change.opened is not None:
        await _row(connection, "add_view", {**ids, **asdict(change.opened), "seconds": seconds})
    if change.refreshes is not None:
        await _row(connection, "delete_refreshes", {**ids, **_job_columns(change.refreshes)})
        await _row(connection, "add_refreshes", {**ids, **_job_columns(change.refreshes)})


async def _row(connection: "Connection", name: str, arguments: dict[str, Any]) -> Any:
    return await connection.fetchrow(SQL[name].sql, *SQL[name].arguments(arguments))


def _job_columns(refreshes: Sequence[Refresh]) -> dict[str, list[Any]]:
    return {
        "refresh_ids": [job.refresh_id for job in refreshes],
        "action_ids": [job.action_id for job in refreshes],
        "every_ms": [job.every_ms for job in refreshes],
        "only_watched": [job.only_watched for job in refreshes],
    }


def _asset_columns(assets: Sequence[Asset]) -> dict[str, list[Any]]:
    return {
        "paths": [asset.path for asset in assets],
        "blob_keys": [asset.blob_key for asset in assets],
        "sizes": [asset.size for asset in assets],
    }


def _to_view(row: Any) -> tuple[AccountId, CanvasId, View]:
    return (
        AccountId(row["account_id"]),
        CanvasId(row["canvas_id"]),
        View(row["view_id"], row["client_id"], row["connection_id"]),
    )
