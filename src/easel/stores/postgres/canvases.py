"""Canvases and their logs in Postgres. The rules are in the statements of `sql/postgres/canvases.sql`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from easel.core.canvas.assets import Asset
from easel.core.canvas.canvas import Canvas, CanvasSnapshot, Change, Decide, NewCanvas, Outcome, View
from easel.core.canvas.execution import DuplicateRequest, StaleTransition, Transition
from easel.core.canvas.retention import LogKey, OldLogs
from easel.core.canvas.spec import Refresh
from easel.core.stream.envelope import Envelope
from easel.core.stream.json_text import to_json
from easel.core.stream.log import Bounds, LoggedEvent
from easel.core.stream.payload_limit import mentioned
from easel.ids import CanvasId, UserId, owned
from easel.stores import named_sql
from easel.stores.postgres.run_arguments import columns
from easel.stores.rows.canvases import arguments, changed, to_old_logs, to_snapshot, transition_arguments
from easel.stores.rows.runs import split_key, to_canvas, to_events

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "canvases")


class PostgresCanvases:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def create(self, new: NewCanvas, event: Envelope) -> CanvasSnapshot | None:
        stored = {"spec": to_json(new.spec), "state": to_json(new.state)}
        row = await self._database.row(
            SQL["create_canvas"],
            user_id=new.user_id,
            canvas_id=new.canvas_id,
            agent_id=new.agent_id,
            title=new.title,
            owner_session_key=new.owner_session_key,
            is_accepted=new.is_accepted,
            event_type=event.type,
            visibility=event.visibility.value,
            payload=event.json,
            refers_to=sorted(event.refers_to | mentioned(stored["spec"]) | mentioned(stored["state"])),
            **stored,
            **_columns(new.assets),
            **_jobs(new.refreshes),
        )
        return CanvasSnapshot(to_canvas(row), sorted(new.assets, key=lambda one: one.path)) if row else None

    async def get(self, user_id: UserId, canvas_id: CanvasId) -> CanvasSnapshot | None:
        row = await self._database.row(SQL["get_canvas"], user_id=user_id, canvas_id=canvas_id)
        return to_snapshot(row) if row else None

    async def list_canvases(
        self, user_id: UserId, *, agent_id: str | None, after: str, limit: int
    ) -> list[Canvas]:
        rows = await self._database.rows(
            SQL["list_canvases"], user_id=user_id, agent_id=agent_id, after=after, limit=limit
        )
        return [to_canvas(row) for row in rows]

    async def change(
        self, user_id: UserId, canvas_id: CanvasId, decide: Decide, *, seconds: float = 0
    ) -> Outcome | None:
        whose = {"user_id": user_id, "canvas_id": canvas_id}
        async with self._database.connection() as lent, lent.transaction():
            snapshot = await _locked(lent, whose)
            if snapshot is None:
                return None
            change = decide(snapshot)
            if change is None:
                return Outcome(snapshot, is_changed=False)
            given, refers_to = arguments(change)
            grown = await _row(
                lent, "change_canvas", {**whose, **given, **columns(change.events), "refers_to": refers_to}
            )
            await _change_beside(lent, whose, change, seconds)
            if change.transition is not None:
                await _take_step(lent, change.transition, grown["revision"], seconds)
            return changed(snapshot, change, **grown)

    async def delete(self, user_id: UserId, canvas_id: CanvasId, check: Decide) -> list[str] | None:
        whose = {"user_id": user_id, "canvas_id": canvas_id}
        async with self._database.connection() as lent, lent.transaction():
            snapshot = await _locked(lent, whose)
            if snapshot is None:
                return None
            check(snapshot)
            await _row(lent, "end_canvas", whose)
            await _row(lent, "delete_canvas", whose)
            return [one.blob_key for one in snapshot.assets]

    # -- assets and views ------------------------------------------------------------------------------------------

    async def find_unknown_assets(self, keys: Mapping[str, datetime], older_than_seconds: float) -> list[str]:
        found = await self._database.rows(
            SQL["find_unknown_assets"],
            blob_keys=list(keys),
            made_at=list(keys.values()),
            seconds=older_than_seconds,
        )
        return [row["blob_key"] for row in found]

    async def renew_views(self, connection_ids: Sequence[str], view_ttl_seconds: float) -> None:
        await self._database.rows(
            SQL["renew_views"], connection_ids=list(connection_ids), seconds=view_ttl_seconds
        )

    async def list_views(self, connection_id: str) -> list[tuple[UserId, CanvasId, View]]:
        return [_view(row) for row in await self._database.rows(SQL["list_views"], connection_id=connection_id)]

    async def list_expired_views(self, limit: int) -> list[tuple[UserId, CanvasId, View]]:
        return [_view(row) for row in await self._database.rows(SQL["list_expired_views"], limit=limit)]

    # -- what is old -----------------------------------------------------------------------------------------------

    async def find_old_logs(self, older_than_seconds: float, after: LogKey, limit: int) -> OldLogs:
        user_id, canvas_id = after
        rows = await self._database.rows(
            SQL["find_old_logs"], seconds=older_than_seconds, user_id=user_id, canvas_id=canvas_id, limit=limit
        )
        return to_old_logs(rows, limit)

    async def trim_log(
        self, user_id: UserId, canvas_id: CanvasId, older_than_seconds: float, step: int
    ) -> int:
        row = await self._database.row(
            SQL["shorten_canvas"], user_id=user_id, canvas_id=canvas_id, seconds=older_than_seconds, step=step
        )
        return row["events"]

    # -- the log ---------------------------------------------------------------------------------------------------

    async def bounds(self, user_id: UserId, canvas_id: str, /) -> Bounds | None:
        row = await self._database.row(SQL["canvas_bounds"], user_id=user_id, canvas_id=canvas_id)
        return Bounds(row["oldest_seq"], row["last_seq"], ended=False) if row else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        whose = [split_key(key) for key in keys]
        rows = await self._database.rows(
            SQL["canvas_heads"],
            user_ids=[user_id for user_id, _ in whose],
            canvas_ids=[canvas_id for _, canvas_id in whose],
        )
        return {owned(row["user_id"], row["canvas_id"]): row["last_seq"] for row in rows}

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        user_id, canvas_id = split_key(key)
        rows = await self._database.rows(
            SQL["canvas_after"], user_id=user_id, canvas_id=canvas_id, cursor=cursor, limit=limit
        )
        return to_events(rows)


async def _locked(lent: "Connection", whose: dict[str, Any]) -> CanvasSnapshot | None:
    # A statement of its own: the next one must see what was committed while this one waited.
    await _row(lent, "lock_canvas", whose)
    row = await _row(lent, "get_canvas", whose)
    return to_snapshot(row) if row else None


async def _take_step(lent: "Connection", step: Transition, revision: int, seconds: float) -> None:
    if step.pending_limit is not None:
        whose = {"user_id": step.execution.user_id, "canvas_id": step.execution.canvas_id}
        step.pending_limit.check(
            (await _row(lent, "count_waiting", {**whose, "seconds": step.pending_limit.seconds}))["waiting"]
        )
    name = "begin_execution" if step.from_status is None else "step_execution"
    if await _row(lent, name, {**transition_arguments(step, revision), "seconds": seconds}) is None:
        raise DuplicateRequest if step.from_status is None else StaleTransition


async def _change_beside(lent: "Connection", whose: dict[str, Any], change: Change, seconds: float) -> None:
    if change.removed:
        await _row(lent, "remove_assets", {**whose, "paths": list(change.removed)})
    if change.put:
        await _row(lent, "put_assets", {**whose, **_columns(change.put)})
    if change.closed:
        await _row(lent, "remove_views", {**whose, "view_ids": list(change.closed)})
    if change.opened is not None:
        await _row(lent, "add_view", {**whose, **asdict(change.opened), "seconds": seconds})
    if change.refreshes is not None:
        await _row(lent, "drop_refreshes", {**whose, **_jobs(change.refreshes)})
        await _row(lent, "put_refreshes", {**whose, **_jobs(change.refreshes)})


async def _row(lent: "Connection", name: str, given: dict[str, Any]) -> Any:
    return await lent.fetchrow(SQL[name].sql, *SQL[name].arguments(given))


def _jobs(refreshes: Sequence[Refresh]) -> dict[str, list[Any]]:
    return {
        "refresh_ids": [job.refresh_id for job in refreshes],
        "action_ids": [job.action_id for job in refreshes],
        "every_ms": [job.every_ms for job in refreshes],
        "only_watched": [job.only_watched for job in refreshes],
    }


def _columns(assets: Sequence[Asset]) -> dict[str, list[Any]]:
    return {
        "paths": [one.path for one in assets],
        "blob_keys": [one.blob_key for one in assets],
        "sizes": [one.size for one in assets],
    }


def _view(row: Any) -> tuple[UserId, CanvasId, View]:
    return (
        UserId(row["user_id"]),
        CanvasId(row["canvas_id"]),
        View(row["view_id"], row["client_id"], row["connection_id"]),
    )
