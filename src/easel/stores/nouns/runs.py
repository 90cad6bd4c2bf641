"""Reads of runs, their queue and their logs that both databases share. The statements are per dialect."""

from collections.abc import AsyncGenerator, Sequence

from easel.core.run.batch import QueueDepth
from easel.core.run.run import Claim, Run
from easel.core.run.status import Status, is_terminal
from easel.core.stream.log import LAST_CURSOR, Bounds, LoggedEvent
from easel.ids import AccountId, RunId, SessionId, WorkerId
from easel.stores.nouns.turns import SqlTurns
from easel.stores.rows.runs import list_statement, to_events, to_run

QUEUE_RETRY_SECONDS = 5  # after which an account with too many queued runs may try again


class SqlRuns(SqlTurns):
    async def get(self, account_id: AccountId, run_id: RunId) -> Run | None:
        row = await self._sql.row("get_run", account_id=account_id, run_id=run_id)
        return to_run(row) if row else None

    async def list_runs(
        self,
        account_id: AccountId,
        *,
        session_id: SessionId | None,
        statuses: Sequence[Status],
        before: int | None,
        limit: int,
    ) -> list[Run]:
        rows = await self._sql.rows(
            list_statement(session_id, statuses),
            account_id=account_id,
            session_id=session_id,
            statuses=[status.value for status in statuses],
            before=LAST_CURSOR if before is None else before,
            limit=limit,
        )
        return [to_run(row) for row in rows]

    async def requested_cancels(self, worker_id: WorkerId) -> set[RunId]:
        return {
            RunId(row["run_id"]) for row in await self._sql.rows("requested_cancels", worker_id=worker_id)
        }

    async def release_claim(self, claim: Claim) -> bool:
        fence = {"run_id": claim.run_id, "worker_id": claim.worker_id, "attempt": claim.attempt}
        return await self._sql.row("release_claim", **fence) is not None

    async def bounds(self, account_id: AccountId, run_id: RunId) -> Bounds | None:
        row = await self._sql.row("log_bounds", account_id=account_id, run_id=run_id)
        return Bounds(row["oldest_seq"], row["last_seq"], is_terminal(Status(row["status"]))) if row else None

    async def heads(self, run_ids: Sequence[RunId]) -> dict[RunId, int]:
        rows = await self._sql.rows("log_heads", run_ids=list(run_ids))
        return {RunId(row["run_id"]): row["last_seq"] for row in rows}

    async def events_after(self, run_id: RunId, cursor: int, limit: int) -> list[LoggedEvent]:
        rows = await self._sql.rows("events_after", run_id=run_id, cursor=cursor, limit=limit)
        return to_events(row.values() for row in rows)

    async def _slotless_accounts(self) -> AsyncGenerator[str]:
        """Yield the accounts of which a run waits for a slot."""
        after = ""
        while row := await self._sql.row("next_slotless_account", after_account=after):
            if row["account_id"] is None:
                return
            yield (after := row["account_id"])

    async def queue_depth(self) -> QueueDepth:
        return QueueDepth(**dict((await self._sql.rows("queue_depth"))[0]))

    async def probe(self) -> None:
        await self._sql.rows("probe")
