"""Canvases and their logs in SQLite. The rules are in the statements of `sql/sqlite/canvases.sql`.

A change is several statements in one transaction. SQLite has one writer, so no other write can interleave.
"""

import sqlite3
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from easel.core.action.execution import ExecutionChange
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
from easel.stores.rows.canvases import (
    Mentions,
    all_blob_keys,
    build_outcome,
    change_arguments,
    to_canvas,
    to_canvas_events,
    to_snapshot,
)
from easel.stores.rows.documents import has_document
from easel.stores.rows.runs import split_key
from easel.stores.sqlite import canvas_log, document_changes
from easel.stores.sqlite.statements import SqliteStatements, run_steps
from easel.stores.sqlite.times import microseconds, to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "canvases")
VERSIONS_SQL = named_sql.load("sqlite", "canvas_versions")


class SqliteCanvases(SqlCanvases):
    def __init__(self, database: "SqliteDatabase", max_versions: int) -> None:
        super().__init__(SqliteStatements(database, "canvases"))
        self._database = database
        self._max_versions = max_versions  # of one canvas

    async def create(self, new: NewCanvas, event: Envelope) -> CanvasSnapshot | None:
        ids = {"account_id": new.account_id, "canvas_id": new.canvas_id}
        named = {
            "agent_id": new.agent_id,
            "title": new.title,
            "owner_session_key": new.owner_session_key,
            "is_accepted": new.is_accepted,
            "tool_hints": to_json(new.tool_hints),
            "written_by": new.written_by,
        }
        stored = {"spec": to_json(new.spec), "state": to_json(new.state)}
        refers_to = (
            event.refers_to | mentioned_artifacts(stored["spec"]) | mentioned_artifacts(stored["state"])
        )

        def work(connection: sqlite3.Connection) -> CanvasSnapshot | None:
            now = self._database.clock()
            rows = _rows(connection, "create_canvas", now=now, **named, **stored, **ids)
            if not rows:
                return None
            for asset in new.assets:
                _rows(connection, "put_asset", **ids, **asdict(asset))
            canvas_log.add_events(connection, ids, [event], rows[0]["last_seq"], now)
            _add_references(connection, ids, rows[0]["last_seq"], Mentions(sorted(refers_to), []))
            for job in new.refreshes:
                _rows(connection, "add_refresh", now=now, **ids, **_job_columns(job))
            if has_document(new.spec):
                document_changes.open_document(connection, ids)
            return CanvasSnapshot(
                to_canvas(rows[0], to_datetime), sorted(new.assets, key=lambda asset: asset.path)
            )

        created = await self._database.write(work)
        if created is None:  # it exists, or is deleted and not purged yet, perhaps just purged by a worker
            await self._database.deletions.finish_canvas(new.account_id, new.canvas_id)
            created = await self._database.write(work)
        return created

    async def get(self, account_id: AccountId, canvas_id: CanvasId) -> CanvasSnapshot | None:
        rows = await self._read(
            "get_canvas", account_id=account_id, canvas_id=canvas_id, now=self._database.clock()
        )
        return to_snapshot(rows[0], to_datetime) if rows else None

    async def change(
        self, account_id: AccountId, canvas_id: CanvasId, decide: Decide, *, seconds: float = 0
    ) -> Outcome | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}

        def work(connection: sqlite3.Connection) -> Outcome | None:
            now = self._database.clock()
            snapshot = _load(connection, ids, now)
            if snapshot is None:
                return None
            change = decide(snapshot)
            if change is None:
                return Outcome(snapshot, is_changed=False)
            released = list[str]()
            if replaced := find_replaced(snapshot, change):
                keep = keep_version(snapshot.canvas, replaced, self._max_versions)
                released = run_steps(connection, VERSIONS_SQL, keep, now)
            arguments, mentions = change_arguments(change)
            [stored] = _rows(
                connection, "change_canvas", now=now, events=len(change.events), **ids, **arguments
            )
            canvas_log.add_events(connection, ids, change.events, stored["last_seq"], now)
            _add_references(connection, ids, stored["last_seq"], mentions)
            _store_related(connection, ids, change, seconds, now)
            if change.spec is not None and not has_document(change.spec):
                document_changes.close_document(connection, ids)
            elif change.spec is not None or change.owner_session_key is not None:
                document_changes.open_document(connection, ids)
            if isinstance(change, ExecutionChange):
                run_steps(connection, SQL, store_transition(change.transition, stored, seconds), now)
            outcome = build_outcome(
                snapshot,
                change,
                revision=stored["revision"],
                last_seq=stored["last_seq"],
                spec_revision=stored["spec_revision"],
                is_accepted=bool(stored["is_accepted"]),
                updated_at=to_datetime(stored["updated_at"]),
            )
            blob_keys = [*outcome.orphaned_blobs, *released]
            if blob_keys:
                blob_keys = run_steps(connection, VERSIONS_SQL, find_unused_blobs(blob_keys), now)
            return replace(outcome, orphaned_blobs=blob_keys)

        return await self._database.write(work)

    async def delete(self, account_id: AccountId, canvas_id: CanvasId, check: Decide) -> list[str] | None:
        ids = {"account_id": account_id, "canvas_id": canvas_id}

        def work(connection: sqlite3.Connection) -> list[str] | None:
            now = self._database.clock()
            snapshot = _load(connection, ids, now)
            if snapshot is None:
                return None
            check(snapshot)
            _rows(connection, "mark_canvas", now=now, **ids)
            for name in ("delete_all_assets", "delete_all_views", "delete_all_refreshes"):
                _rows(connection, name, **ids)
            document_changes.close_document(connection, ids)
            versions = _rows(connection, "delete_version_assets", limit=MAX_PURGED_ROWS, **ids)
            return all_blob_keys(snapshot, [row["blob_key"] for row in versions])

        return await self._database.write(work)

    async def trim_log(
        self, account_id: AccountId, canvas_id: CanvasId, older_than_seconds: float, step: int
    ) -> int:
        ids = {"account_id": account_id, "canvas_id": canvas_id}

        def work(connection: sqlite3.Connection) -> int:
            before = self._database.clock() - microseconds(older_than_seconds)
            rows = _rows(connection, "trim_canvas_log", before=before, step=step, **ids)
            return (
                len(_rows(connection, "delete_canvas_events", oldest_seq=rows[0]["oldest_seq"], **ids))
                if rows
                else 0
            )

        return await self._database.write(work)

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        account_id, canvas_id = split_key(key)
        rows = await self._read(
            "canvas_after", account_id=account_id, canvas_id=canvas_id, cursor=cursor, limit=limit
        )
        return to_canvas_events(rows, to_datetime)

    async def _read(self, name: str, **arguments: Any) -> list[Any]:
        return await self._database.read(lambda connection: _rows(connection, name, **arguments))


def _rows(connection: sqlite3.Connection, name: str, **arguments: Any) -> list[Any]:
    return connection.execute(SQL[name].sql, arguments).fetchall()


def _add_references(
    connection: sqlite3.Connection, ids: dict[str, Any], seq: int, mentions: Mentions
) -> None:
    for artifact_id in mentions.logs:
        _rows(connection, "log_reference", artifact_id=artifact_id, seq=seq, **ids)
    for artifact_id in mentions.holds:
        _rows(connection, "hold_reference", artifact_id=artifact_id, seq=seq, **ids)


def _load(connection: sqlite3.Connection, ids: dict[str, Any], now: int) -> CanvasSnapshot | None:
    rows = _rows(connection, "get_canvas", now=now, **ids)
    return to_snapshot(rows[0], to_datetime) if rows else None


def _job_columns(job: Refresh) -> dict[str, Any]:
    return {
        "refresh_id": job.refresh_id,
        "action_id": job.action_id,
        "every_ms": job.every_ms,
        "only_watched": int(job.only_watched),
    }


def _store_related(
    connection: sqlite3.Connection, ids: dict[str, Any], change: Change, seconds: float, now: int
) -> None:
    if change.refreshes is not None:
        kept = to_json([to_json(list(_job_columns(job).values())) for job in change.refreshes])
        _rows(connection, "delete_refreshes", kept=kept, **ids)
        for job in change.refreshes:
            _rows(connection, "add_refresh", now=now, **ids, **_job_columns(job))
    if change.removed:
        _rows(connection, "remove_assets", paths=to_json(list(change.removed)), **ids)
    for asset in change.put:
        _rows(connection, "put_asset", **ids, **asdict(asset))
    if change.closed:
        _rows(connection, "remove_views", view_ids=to_json(list(change.closed)), **ids)
    if change.opened is not None:
        _rows(connection, "add_view", now=now, seconds=seconds, **ids, **asdict(change.opened))
