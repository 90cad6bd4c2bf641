"""People who left an account. The rules are in the statements of `departures.sql`."""

from easel.core.people import Departure
from easel.ids import AccountId, RunId, UserId
from easel.stores.nouns.statements import Statements


class SqlDepartures:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def list_departures(self, limit: int) -> list[Departure]:
        rows = await self._sql.rows("list_departures", limit=limit)
        return [
            Departure(AccountId(row["account_id"]), UserId(row["user_id"]), row["left_at"], row["seconds"])
            for row in rows
        ]

    async def list_runs(self, departure: Departure, limit: int) -> list[RunId]:
        rows = await self._sql.rows("list_runs_to_cancel", **_ids(departure), limit=limit)
        return [row["run_id"] for row in rows]

    async def list_questions(self, departure: Departure, limit: int) -> list[str]:
        rows = await self._sql.rows("list_questions_to_end", **_ids(departure), limit=limit)
        return sorted(row["event_id"] for row in rows)

    async def finish(self, departure: Departure) -> None:
        await self._sql.rows("finish_departure", **_ids(departure))


def _ids(departure: Departure) -> dict[str, object]:
    return {
        "account_id": departure.account_id,
        "user_id": departure.user_id,
        "left_at": departure.left_at,
    }
