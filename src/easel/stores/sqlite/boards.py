"""Boards in SQLite. The rules are in `core/run/boards.py` and in the statements of `sql/sqlite/boards.sql`.

A write is several statements of one transaction; there is one writer, so nothing comes between them.
"""

import sqlite3
from typing import TYPE_CHECKING, Any

from easel.core.run.boards import Board, BoardValue, BoardWrite, Written
from easel.core.run.run import Claim
from easel.ids import RunId, UserId
from easel.stores import named_sql
from easel.stores.rows.boards import arguments, found_of, to_board_value
from easel.stores.sqlite.times import to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "boards")

Row = Any  # sqlite3.Row: what it holds is known by the statement alone


class SqliteBoards:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        return await self._database.write(
            lambda connection: _write(connection, write, claim, self._database.clock())
        )

    async def read(
        self, user_id: UserId, run_id: RunId, board: Board, *, edge_id: str | None, key: str | None
    ) -> list[BoardValue] | None:
        asked = {"user_id": user_id, "run_id": run_id, "board": board.value, "edge_id": edge_id, "key": key}
        rows = await self._database.read(lambda connection: _rows(connection, "read_board", asked))
        return [to_board_value(row, to_datetime) for row in rows if row["key"] is not None] if rows else None


def _write(
    connection: sqlite3.Connection, write: BoardWrite, claim: Claim | None, now: int
) -> Written | None:
    given: dict[str, Any] = {**arguments(write, claim), "now": now}
    artifact_ids = given.pop("artifact_ids")
    found = _row(connection, "find_place", given)
    if found is None:
        return None
    version = write.next_version(found_of(found))
    place = _row(connection, "take_seq", given)
    if place is None:
        return None
    event = write.event(version)
    told = {
        "seq": place["last_seq"],
        "event_type": event.type,
        "visibility": event.visibility.value,
        "payload": event.json,
    }
    [stored] = _rows(connection, "keep_value", {**given, "version": version})
    _rows(connection, "add_event", {**given, **told, "version": version})
    for artifact_id in artifact_ids:
        _rows(connection, "refer_to", {**given, "artifact_id": artifact_id})
    return Written(version, place["last_seq"], to_datetime(stored["created_at"]), to_datetime(stored["updated_at"]))


def _rows(connection: sqlite3.Connection, name: str, given: dict[str, Any]) -> list[Row]:
    # Read to the end: a statement that still stands open would keep its transaction from being committed.
    return connection.execute(SQL[name].sql, given).fetchall()


def _row(connection: sqlite3.Connection, name: str, given: dict[str, Any]) -> Row | None:
    return next(iter(_rows(connection, name, given)), None)
