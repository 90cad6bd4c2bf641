"""The earlier turns of a session in Postgres. The statements are in `sql/postgres/turns.sql`."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from easel.core.run.past_turn import PastTurn
from easel.core.run.run import Claim
from easel.core.stream.log import LoggedEvent
from easel.ids import RunId
from easel.stores import named_sql
from easel.stores.rows.turns import to_logs, to_past_turn

if TYPE_CHECKING:
    from easel.stores.postgres.database import PostgresDatabase

SQL = named_sql.load("postgres", "turns")


class PostgresTurns:
    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    async def list_turns(self, claim: Claim, *, before: RunId, limit: int) -> list[PastTurn]:
        rows = await self._database.rows(
            SQL["list_turns"],
            user_id=claim.user_id,
            session_id=claim.session_id,
            run_id=before,
            limit=limit,
        )
        return [to_past_turn(row) for row in rows]

    async def read_logs(
        self, run_ids: Sequence[RunId], types: Collection[str]
    ) -> dict[RunId, list[LoggedEvent]]:
        rows = await self._database.rows(SQL["read_logs"], run_ids=list(run_ids), event_types=sorted(types))
        return to_logs(rows)
