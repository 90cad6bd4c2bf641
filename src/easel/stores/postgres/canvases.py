"""Canvases and their logs in Postgres. The rules are in the statements of `sql/postgres/canvases.sql`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from easel.core.canvas.canvas import Canvas, NewCanvas
from easel.core.stream.envelope import Envelope
from easel.core.stream.lightness import mentioned
from easel.core.stream.log import Bounds, LoggedEvent
from easel.core.stream.payload import to_json
from easel.ids import CanvasId, UserId, owned
from easel.stores import named_sql
from easel.stores.rows import VISIBILITY, canvas_of, parts

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "canvases")


class PostgresCanvases:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def create(self, new: NewCanvas, event: Envelope) -> Canvas | None:
        stored = {"spec": to_json(new.spec), "state": to_json(new.state)}
        row = await self._database.row(
            SQL["create_canvas"],
            user_id=new.user_id,
            canvas_id=new.canvas_id,
            agent_id=new.agent_id,
            title=new.title,
            **stored,
            **_event(event, mentioned(stored["spec"]) | mentioned(stored["state"])),
        )
        return canvas_of(row) if row else None

    async def get(self, user_id: UserId, canvas_id: CanvasId) -> Canvas | None:
        row = await self._database.row(SQL["get_canvas"], user_id=user_id, canvas_id=canvas_id)
        return canvas_of(row) if row else None

    async def delete(self, user_id: UserId, canvas_id: CanvasId) -> bool:
        return await self._database.row(SQL["delete_canvas"], user_id=user_id, canvas_id=canvas_id) is not None

    async def append(self, user_id: UserId, canvas_id: CanvasId, event: Envelope) -> int | None:
        row = await self._database.row(SQL["append_canvas_event"], user_id=user_id, canvas_id=canvas_id, **_event(event))
        return row["last_seq"] if row else None

    async def bounds(self, user_id: UserId, canvas_id: str, /) -> Bounds | None:
        row = await self._database.row(SQL["canvas_bounds"], user_id=user_id, canvas_id=canvas_id)
        return Bounds(row["oldest_seq"], row["last_seq"], ended=False) if row else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        whose = [parts(key) for key in keys]
        rows = await self._database.rows(
            SQL["canvas_heads"], user_ids=[user_id for user_id, _ in whose], canvas_ids=[canvas_id for _, canvas_id in whose]
        )
        return {owned(row["user_id"], row["canvas_id"]): row["last_seq"] for row in rows}

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        user_id, canvas_id = parts(key)
        rows = await self._database.rows(SQL["canvas_after"], user_id=user_id, canvas_id=canvas_id, cursor=cursor, limit=limit)
        return [LoggedEvent(seq, event_type, VISIBILITY[visible], at, data) for seq, event_type, visible, at, data in rows]


def _event(event: Envelope, also: frozenset[str] = frozenset()) -> dict[str, Any]:
    refers_to = sorted(event.refers_to | also)
    return {"event_type": event.type, "visibility": event.visibility.value, "payload": event.json, "refers_to": refers_to}
