"""Canvases and their logs in Postgres. The rules are in the statements of `sql/postgres/canvases.sql`."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from easel.core.action.execution import ExecutionChange
from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import CanvasSnapshot, Change, Decide, NewCanvas, Outcome
from easel.core.canvas.spec import Refresh
from easel.core.canvas.versions import find_replaced
from easel.core.stream.envelope import Envelope
from easel.core.stream.json_text import to_json
from easel.core.stream.log import LoggedEvent
from easel.core.stream.payload_limit import mentioned_artifacts
from easel.ids import AccountId, CanvasId
from easel.stores import named_sql
from easel.stores.nouns.canvas_versions import find_unused_blobs, keep_version
from easel.stores.nouns.canvases import SqlCanvases, store_transition
from easel.stores.nouns.deletions import MAX_PURGED_ROWS
from easel.stores.postgres import document_changes
from easel.stores.postgres.run_arguments import columns
from easel.stores.postgres.statements import PostgresStatements, run_steps
from easel.stores.rows.canvases import (
    all_blob_keys,
    build_outcome,
    change_arguments,
    to_canvas,
    to_canvas_events,
    to_snapshot,
)
from easel.stores.rows.documents import has_document
from easel.stores.rows.runs import split_key

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "canvases")
VERSIONS_SQL = named_sql.load("postgres", "canvas_versions")


class PostgresCanvases(SqlCanvases):
    def __init__(self, database: "PostgresDatabase", max_versions: int) -> None:
        super().__init__(PostgresStatements(database, "canvases"))
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
            released = list[str]()
            if replaced := find_replaced(snapshot, change):
                keep = keep_version(snapshot.canvas, replaced, self._max_versions)
                released = await run_steps(connection, VERSIONS_SQL, keep)
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
                await run_steps(connection, SQL, store_transition(change.transition, stored, seconds))
            outcome = build_outcome(snapshot, change, **stored)
            blob_keys = [*outcome.orphaned_blobs, *released]
            if blob_keys:
                blob_keys = await run_steps(connection, VERSIONS_SQL, find_unused_blobs(blob_keys))
            return replace(outcome, orphaned_blobs=blob_keys)

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
