"""Boards in both stores: conversion of a write to statement arguments, and of rows to core values."""

from typing import Any

from easel.core.principal import ActorKind
from easel.core.run.boards import Board, BoardKey, BoardState, BoardValue, BoardWrite
from easel.core.run.run import Claim
from easel.core.run.status import Status
from easel.stores.rows.runs import Row, Time


def board_write_arguments(write: BoardWrite, claim: Claim | None) -> dict[str, Any]:
    """Return the arguments of a write except version and event, which are set under the run's lock."""
    return {
        "run_id": write.run_id,
        "user_id": write.user_id,
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


def to_board_state(row: Row) -> BoardState:
    return BoardState(Status(row["status"]), row["version"], row["keys"], row["other_bytes"])


def to_board_value(row: Row, time: Time = None) -> BoardValue:
    created_at, updated_at = row["created_at"], row["updated_at"]
    if time is not None:
        created_at, updated_at = time(created_at), time(updated_at)
    place = BoardKey(Board(row["board"]), row["edge_id"], row["key"])
    kind = None if row["kind"] is None else ActorKind(row["kind"])
    author = (row["agent_id"], row["node_id"])
    return BoardValue(place, row["value"], row["version"], *author, created_at, updated_at, kind)
