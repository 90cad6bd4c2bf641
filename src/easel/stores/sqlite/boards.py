"""Boards in SQLite. The rules are in `core/run/boards.py` and in the statements of `sql/sqlite/boards.sql`.

A write is several statements in one transaction. SQLite has one writer, so no other write can interleave.
"""

import sqlite3
from typing import TYPE_CHECKING, Any

from easel.core.run.boards import Board, BoardValue, BoardWrite, Written
from easel.core.run.run import Claim
from easel.ids import RunId, UserId
from easel.stores import named_sql
from easel.stores.rows.boards import board_write_arguments, to_board_state, to_board_value
from easel.stores.sqlite.times import to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "boards")

Row = Any  # a sqlite3.Row; the types of its columns depend on the statement


class SqliteBoards:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        return await self._database.write(
            lambda connection: _write(
                connection, write, claim, self._database.clock(), self._database.lease_clock()
            )
        )

    async def read(
        self, user_id: UserId, run_id: RunId, board: Board, *, edge_id: str | None, key: str | None
    ) -> list[BoardValue] | None:
        arguments = {
            "user_id": user_id,
            "run_id": run_id,
            "board": board.value,
            "edge_id": edge_id,
            "key": key,
        }
        rows = await self._database.read(lambda connection: _rows(connection, "read_board", arguments))
        return [to_board_value(row, to_datetime) for row in rows if row["key"] is not None] if rows else None


def _write(
    connection: sqlite3.Connection, write: BoardWrite, claim: Claim | None, now: int, lease_now: int
) -> Written | None:
    arguments: dict[str, Any] = {**board_write_arguments(write, claim), "now": now, "lease_now": lease_now}
    artifact_ids = arguments.pop("artifact_ids")
    state = _row(connection, "find_board_state", arguments)
    if state is None:
        return None
    version = write.next_version(to_board_state(state))
    place = _row(connection, "take_seq", arguments)
    if place is None:
        return None
    event = write.event
    event_columns = {
        "seq": place["last_seq"],
        "event_type": event.type,
        "visibility": event.visibility.value,
        "payload": event.json,
    }
    [stored] = _rows(connection, "store_value", {**arguments, "version": version})
    _rows(connection, "add_event", {**arguments, **event_columns, "version": version})
    for artifact_id in artifact_ids:
        _rows(connection, "add_reference", {**arguments, "artifact_id": artifact_id})
    return Written(
        version, place["last_seq"], to_datetime(stored["created_at"]), to_datetime(stored["updated_at"])
    )


def _rows(connection: sqlite3.Connection, name: str, arguments: dict[str, Any]) -> list[Row]:
    # Fetch all rows: an unfinished statement would block the commit of the transaction.
    return connection.execute(SQL[name].sql, arguments).fetchall()


def _row(connection: sqlite3.Connection, name: str, arguments: dict[str, Any]) -> Row | None:
    return next(iter(_rows(connection, name, arguments)), None)
