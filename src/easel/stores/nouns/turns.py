"""The earlier turns of a session. The statements are in `turns.sql` of each dialect."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from easel.core.run.past_turn import PastTurn
from easel.core.run.run import Claim
from easel.core.run.status import Status
from easel.core.session.message import read_content
from easel.core.stream.log import LoggedEvent
from easel.ids import RunId
from easel.stores.nouns.statements import Row, Statements
from easel.stores.rows.runs import to_events


class SqlTurns:
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def list_turns(self, claim: Claim, *, before: RunId, limit: int) -> list[PastTurn]:
        session = {"account_id": claim.account_id, "session_id": claim.session_id}
        rows = await self._sql.rows("list_turns", **session, run_id=before, limit=limit)
        return [_to_past_turn(row) for row in rows]

    async def read_logs(
        self, run_ids: Sequence[RunId], types: Collection[str]
    ) -> dict[RunId, list[LoggedEvent]]:
        rows = await self._sql.rows("read_logs", run_ids=list(run_ids), event_types=sorted(types))
        logs: dict[RunId, list[Sequence[Any]]] = {}
        for run_id, *event in (row.values() for row in rows):
            logs.setdefault(RunId(run_id), []).append(event)
        return {run_id: to_events(events) for run_id, events in logs.items()}


def _to_past_turn(row: Row) -> PastTurn:
    hidden: list[tuple[bool, Any]] = msgspec.json.decode(row["hidden"]) if row["hidden"] else []
    texts = [(bool(follows), read_content(content).text) for follows, content in hidden]
    return PastTurn(
        run_id=RunId(row["run_id"]),
        message=row["input_text"],
        answer=read_content(msgspec.json.decode(row["answer"])).text if row["answer"] else "",
        status=Status(row["status"]),
        error_message=row["error_message"],
        has_log=bool(row["has_log"]),
        updates_before=tuple(text for follows, text in texts if not follows),
        updates_after=tuple(text for follows, text in texts if follows),
    )
