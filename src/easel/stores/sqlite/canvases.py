"""Canvases and their logs in SQLite. The rules are in the statements of `sql/sqlite/canvases.sql`."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.canvas.canvas import Canvas, NewCanvas
from easel.core.stream.envelope import Envelope
from easel.core.stream.lightness import mentioned
from easel.core.stream.log import Bounds, LoggedEvent
from easel.core.stream.payload import to_json
from easel.ids import CanvasId, UserId, owned
from easel.stores import named_sql
from easel.stores.rows import VISIBILITY, canvas_of, parts
from easel.stores.sqlite.times import time_of

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "canvases")


class SqliteCanvases:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def create(self, new: NewCanvas, event: Envelope) -> Canvas | None:
        whose = {"user_id": new.user_id, "canvas_id": new.canvas_id}
        stored = {"spec": to_json(new.spec), "state": to_json(new.state)}
        refers_to = event.refers_to | mentioned(stored["spec"]) | mentioned(stored["state"])

        def work(connection: sqlite3.Connection) -> Canvas | None:
            now = self._database.clock()
            rows = _rows(connection, "create_canvas", agent_id=new.agent_id, title=new.title, now=now, **stored, **whose)
            if not rows:
                return None
            _log(connection, {**whose, "seq": 1, "now": now}, event, refers_to)
            return canvas_of(rows[0], time_of)

        return await self._database.write(work)

    async def get(self, user_id: UserId, canvas_id: CanvasId) -> Canvas | None:
        rows = await self._read("get_canvas", user_id=user_id, canvas_id=canvas_id)
        return canvas_of(rows[0], time_of) if rows else None

    async def delete(self, user_id: UserId, canvas_id: CanvasId) -> bool:
        return await self._database.write(lambda connection: bool(_rows(connection, "delete_canvas", user_id=user_id, canvas_id=canvas_id)))

    async def append(self, user_id: UserId, canvas_id: CanvasId, event: Envelope) -> int | None:
        whose = {"user_id": user_id, "canvas_id": canvas_id}

        def work(connection: sqlite3.Connection) -> int | None:
            grown = _rows(connection, "grow_canvas", **whose)
            if not grown:
                return None
            seq: int = grown[0]["last_seq"]
            _log(connection, {**whose, "seq": seq, "now": self._database.clock()}, event, event.refers_to)
            return seq

        return await self._database.write(work)

    async def bounds(self, user_id: UserId, canvas_id: str, /) -> Bounds | None:
        rows = await self._read("canvas_bounds", user_id=user_id, canvas_id=canvas_id)
        return Bounds(rows[0]["oldest_seq"], rows[0]["last_seq"], ended=False) if rows else None

    async def heads(self, keys: Sequence[str], /) -> dict[str, int]:
        rows = await self._read("canvas_heads", canvases=msgspec.json.encode([parts(key) for key in keys]).decode())
        return {owned(row["user_id"], row["canvas_id"]): row["last_seq"] for row in rows}

    async def events_after(self, key: str, cursor: int, limit: int, /) -> list[LoggedEvent]:
        user_id, canvas_id = parts(key)
        rows = await self._read("canvas_after", user_id=user_id, canvas_id=canvas_id, cursor=cursor, limit=limit)
        return [LoggedEvent(seq, event_type, VISIBILITY[visible], time_of(at), data) for seq, event_type, visible, at, data in rows]

    async def _read(self, name: str, **given: Any) -> list[Any]:
        return await self._database.read(lambda connection: _rows(connection, name, **given))


def _rows(connection: sqlite3.Connection, name: str, **given: Any) -> list[Any]:
    return connection.execute(SQL[name].sql, given).fetchall()


def _log(connection: sqlite3.Connection, place: dict[str, Any], event: Envelope, refers_to: Iterable[str]) -> None:
    stored = {"event_type": event.type, "visibility": event.visibility.value, "payload": event.json}
    _rows(connection, "add_canvas_event", **stored, **place)
    for artifact_id in sorted(refers_to):
        _rows(connection, "refer_to", artifact_id=artifact_id, user_id=place["user_id"], canvas_id=place["canvas_id"])
