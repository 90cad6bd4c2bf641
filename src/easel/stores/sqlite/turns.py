"""The earlier turns of a session in SQLite. The statements are in `sql/sqlite/turns.sql`."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from easel.core.run.past_turn import PastTurn
from easel.core.run.run import Claim
from easel.core.stream.log import LoggedEvent
from easel.ids import RunId
from easel.stores import named_sql
from easel.stores.rows.turns import to_logs, to_past_turn
from easel.stores.sqlite.times import to_datetime

if TYPE_CHECKING:
    from easel.stores.sqlite.database import SqliteDatabase

SQL = named_sql.load("sqlite", "turns")


class SqliteTurns:
    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    async def list_turns(self, claim: Claim, *, before: RunId, limit: int) -> list[PastTurn]:
        rows = await self._read_all(
            "list_turns", user_id=claim.user_id, session_id=claim.session_id, run_id=before, limit=limit
        )
        return [to_past_turn(row) for row in rows]

    async def read_logs(
        self, run_ids: Sequence[RunId], types: Collection[str]
    ) -> dict[RunId, list[LoggedEvent]]:
        rows = await self._read_all("read_logs", run_ids=_json(run_ids), event_types=_json(sorted(types)))
        return to_logs(rows, to_datetime)

    async def _read_all(self, name: str, **arguments: Any) -> list[Any]:
        return await self._database.read(
            lambda connection: connection.execute(SQL[name].sql, arguments).fetchall()
        )


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(list(values)).decode()
