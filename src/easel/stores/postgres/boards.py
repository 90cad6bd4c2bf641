"""Boards in Postgres. The rules are in `core/run/boards.py` and in the statements of `sql/postgres/boards.sql`."""

from typing import TYPE_CHECKING, Any

from easel.core.run.boards import Board, BoardValue, BoardWrite, Written
from easel.core.run.run import Claim
from easel.ids import RunId, UserId
from easel.stores import named_sql
from easel.stores.rows.boards import arguments, found_of, to_board_value

if TYPE_CHECKING:
    from easel.stores.postgres.database import Connection, PostgresDatabase

SQL = named_sql.load("postgres", "boards")


class PostgresBoards:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        given = arguments(write, claim)
        async with self._database.connection() as lent, lent.transaction():
            # A statement of its own: the next one must see what was committed while this one waited.
            await _row(lent, "lock_run", given)
            found = await _row(lent, "find_place", given)
            if found is None:
                return None
            version = write.next_version(found_of(found))
            event = write.event(version)
            told = {"event_type": event.type, "visibility": event.visibility.value, "payload": event.json}
            stored = await _row(lent, "write_board", {**given, **told, "version": version})
            return Written(version, **stored) if stored else None

    async def read(
        self, user_id: UserId, run_id: RunId, board: Board, *, edge_id: str | None, key: str | None
    ) -> list[BoardValue] | None:
        asked = {"user_id": user_id, "run_id": run_id, "board": board.value, "edge_id": edge_id, "key": key}
        rows = await self._database.rows(SQL["read_board"], **asked)
        return [to_board_value(row) for row in rows if row["key"] is not None] if rows else None


async def _row(lent: "Connection", name: str, given: dict[str, Any]) -> Any:
    return await lent.fetchrow(SQL[name].sql, *SQL[name].arguments(given))
