"""Boards in Postgres.

The rules are in `core/run/boards.py` and in the statements of `sql/postgres/boards.sql`.
"""

from typing import TYPE_CHECKING, Any

from easel.core.run.boards import Board, BoardValue, BoardWrite, Written
from easel.core.run.run import Claim
from easel.ids import RunId, UserId
from easel.stores import named_sql
from easel.stores.rows.boards import board_write_arguments, to_board_state, to_board_value

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "boards")


class PostgresBoards:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        arguments = board_write_arguments(write, claim)
        async with self._database.connection() as connection, connection.transaction():
            # A separate statement: the next one must see the changes that were committed while this one
            # waited for the lock.
            await _row(connection, "lock_run", arguments)
            state = await _row(connection, "find_board_state", arguments)
            if state is None:
                return None
            version = write.next_version(to_board_state(state))
            event = write.event
            event_columns = {
                "event_type": event.type,
                "visibility": event.visibility.value,
                "payload": event.json,
            }
            stored = await _row(connection, "write_board", {**arguments, **event_columns, "version": version})
            return Written(version, **stored) if stored else None

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
        rows = await self._database.rows(SQL["read_board"], **arguments)
        return [to_board_value(row) for row in rows if row["key"] is not None] if rows else None


async def _row(connection: "Connection", name: str, arguments: dict[str, Any]) -> Any:
    return await connection.fetchrow(SQL[name].sql, *SQL[name].arguments(arguments))
