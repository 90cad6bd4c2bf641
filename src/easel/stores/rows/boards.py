"""Boards as every store has them: the columns of a write, and rows as the values of the core."""

from typing import Any

from easel.core.run.boards import Board, BoardKey, BoardValue, BoardWrite, Found
from easel.core.run.run import Claim
from easel.core.run.status import Status
from easel.stores.rows.runs import Row, Time


def arguments(write: BoardWrite, claim: Claim | None) -> dict[str, Any]:
    """All that is known of a write before the run is locked; its version and its event follow from what is found then."""
    return {
        "run_id": write.run_id,
        "user_id": write.user_id,
        "board": write.place.board.value,
        "edge_id": write.place.edge_id,
        "key": write.place.key,
        "value": write.value,
        "size": write.size,
        "agent_id": write.agent_id,
        "node_id": write.node_id,
        "artifact_ids": sorted(write.refers_to),
        "worker_id": claim.worker_id if claim else None,
        "attempt": claim.attempt if claim else None,
    }


def found_of(row: Row) -> Found:
    return Found(Status(row["status"]), row["version"], row["keys"], row["other_bytes"])


def to_board_value(row: Row, time: Time = None) -> BoardValue:
    created_at, updated_at = row["created_at"], row["updated_at"]
    if time is not None:
        created_at, updated_at = time(created_at), time(updated_at)
    place = BoardKey(Board(row["board"]), row["edge_id"], row["key"])
    return BoardValue(
        place, row["value"], row["version"], row["agent_id"], row["node_id"], created_at, updated_at
    )
