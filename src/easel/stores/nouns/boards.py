"""Boards: what both databases have in common. The rules are in `core/run/boards.py` and in `boards.sql`.

A write is several statements in one transaction; a subclass says how its database locks and stores.
"""

from abc import ABC, abstractmethod
from typing import Any

from easel.core.principal import ActorKind
from easel.core.run.boards import Board, BoardKey, BoardState, BoardValue, BoardWrite, Written
from easel.core.run.run import Claim
from easel.core.run.status import Status
from easel.ids import AccountId, RunId
from easel.stores.nouns.statements import Row, Statements, Steps
from easel.stores.rows.runs import event_columns


class SqlBoards(ABC):
    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    async def write(self, write: BoardWrite, claim: Claim | None = None) -> Written | None:
        return await self._sql.transaction(self._write(write, claim))

    @abstractmethod
    def _store(self, arguments: dict[str, Any]) -> Steps[Written | None]:
        """Store a value and its event, unless the run has ended or the claim is lost."""

    async def read(
        self, account_id: AccountId, run_id: RunId, board: Board, *, edge_id: str | None, key: str | None
    ) -> list[BoardValue] | None:
        place = {"board": board.value, "edge_id": edge_id, "key": key}
        rows = await self._sql.rows("read_board", account_id=account_id, run_id=run_id, **place)
        return [_to_value(row) for row in rows if row["key"] is not None] if rows else None

    def _write(self, write: BoardWrite, claim: Claim | None) -> Steps[Written | None]:
        arguments = {
            "run_id": write.run_id,
            "account_id": write.account_id,
            "board": write.board_key.board.value,
            "edge_id": write.board_key.edge_id,
            "key": write.board_key.key,
            "value": write.value,
            "size": write.size,
            "agent_id": write.agent_id,
            "node_id": write.node_id,
            "kind": write.kind.value,
            "artifact_ids": sorted(write.refers_to),
            "worker_id": claim.worker_id if claim else None,
            "attempt": claim.attempt if claim else None,
        }
        states = yield "find_board_state", arguments
        if not states:
            return None
        [state] = states
        version = write.next_version(
            BoardState(Status(state["status"]), state["version"], state["keys"], state["other_bytes"])
        )
        return (yield from self._store({**arguments, **event_columns(write.event), "version": version}))


def _to_value(row: Row) -> BoardValue:
    return BoardValue(
        BoardKey(Board(row["board"]), row["edge_id"], row["key"]),
        row["value"],
        row["version"],
        row["agent_id"],
        row["node_id"],
        row["created_at"],
        row["updated_at"],
        ActorKind(row["kind"]),
    )
