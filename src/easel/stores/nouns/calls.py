"""Calls between instances. The rules are in the statements of `calls.sql`.

SQLite serves one process, to which every target is connected, so such calls do not occur there.
"""

from collections.abc import Sequence
from dataclasses import asdict

from easel.core.call import NewCall, TakenCall
from easel.ids import AccountId, CallId
from easel.stores.nouns.statements import Row, Statements


class SqlCalls:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def place_call(self, new: NewCall) -> bool:
        return bool(await self._sql.rows("place_call", **asdict(new)))

    async def take_calls(self, targets: Sequence[str]) -> list[TakenCall]:
        return [TakenCall(**row) for row in await self._sql.rows("take_calls", targets=list(targets))]

    async def save_answer(self, call_id: CallId, target: str, answer: str) -> bool:
        return bool(await self._sql.rows("answer_call", call_id=call_id, target=target, answer=answer))

    async def cancel_call(self, account_id: AccountId, call_id: CallId) -> str | None:
        if await self._sql.row("delete_call", account_id=account_id, call_id=call_id):
            return None
        row = await self._sql.row("cancel_call", account_id=account_id, call_id=call_id)
        return row["target"] if row else None

    async def renew_calls(self, call_ids: Sequence[CallId], seconds: float) -> set[CallId]:
        return set(_call_ids(await self._sql.rows("renew_calls", call_ids=list(call_ids), seconds=seconds)))

    async def take_cancelled(self, targets: Sequence[str], *, include_expired: bool) -> list[CallId]:
        return _call_ids(
            await self._sql.rows("take_cancelled_calls", targets=list(targets), unheard=include_expired)
        )

    async def collect_answers(self, call_ids: Sequence[CallId]) -> dict[CallId, str | None]:
        rows = await self._sql.rows("collect_answers", call_ids=list(call_ids))
        return {CallId(row["call_id"]): row["answer"] for row in rows}

    async def sweep(self, older_than_seconds: float) -> None:
        await self._sql.rows("sweep_calls", seconds=older_than_seconds)


def _call_ids(rows: Sequence[Row]) -> list[CallId]:
    return [CallId(row["call_id"]) for row in rows]
