"""The boards of a run: scope, keys, versions and limits of their values, and the event of a write.

Owns what may be written where. Does not know the store: the state of the board is an argument, the next
version the result. The whiteboard is shared by the whole run; a value of the blackboard belongs to an edge,
the handover from one node to another.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from easel.core.run.status import Status, is_terminal
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import OffloadedValue, mentioned_artifacts, offload_large_values
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.errors import BadInput, BoardFull, RunFinished, TooLarge, VersionConflict
from easel.ids import ArtifactId, RunId, UserId


class Board(StrEnum):
    WHITEBOARD = "whiteboard"
    BLACKBOARD = "blackboard"


GLOBAL = "global"  # stored as the edge of the whiteboard, which has none
# Bytes of a key, an edge or a node. Shorter than a marker, so that an event always names all three in full.
MAX_NAME_LENGTH = 200
LAST_VERSION = 2**63 - 1


# --- keys ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoardKey:
    board: Board
    edge_id: str
    key: str

    @property
    def edge(self) -> str | None:
        """The edge as clients see it: None on the whiteboard."""
        return None if self.board is Board.WHITEBOARD else self.edge_id


def to_board_key(board: Board, key: str, edge_id: str | None) -> BoardKey:
    return BoardKey(board, to_edge_id(board, edge_id), require_name("key", key))


def to_edge_id(board: Board, edge_id: str | None) -> str:
    """Return the edge to store; GLOBAL on the whiteboard. CC-20, CC-21, CC-27, CC-28"""
    if board is Board.WHITEBOARD:
        if edge_id not in (None, GLOBAL):
            raise BadInput(problem=f"edge_id must be left out or `{GLOBAL}`: only the blackboard has edges.")
        return GLOBAL
    if edge_id is None:
        raise BadInput(problem="edge_id is missing: a blackboard value must belong to an edge.")
    if edge_id == GLOBAL:
        raise BadInput(problem=f"edge_id must not be `{GLOBAL}`: use the whiteboard for the whole run.")
    return require_name("edge_id", edge_id)


def require_name(member: str, name: str) -> str:
    """Return the name. Raises `BadInput` unless it is printable and short enough."""
    if not name or not name.isprintable() or len(to_json(name).encode()) - len('""') > MAX_NAME_LENGTH:
        raise BadInput(problem=f"{member} must be printable text of 1 to {MAX_NAME_LENGTH} bytes.")
    return name


# --- requests and stored values -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoardWriteRequest:
    """A write as its author sends it.

    Author and run come from the connection, never from the request. CC-17
    """

    board: Board
    key: str
    value: Any
    node_id: str
    edge_id: str | None = None
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class BoardLimits:
    value_bytes: int
    keys: int  # of a run, on both boards
    run_bytes: int  # of all values of a run


@dataclass(frozen=True, slots=True)
class BoardState:
    """The state of a run's boards under the run's lock, for one key. Version 0: the key does not exist."""

    status: Status
    version: int
    keys: int
    other_bytes: int


@dataclass(frozen=True, slots=True)
class BoardValue:
    """A stored value; `value` is JSON."""

    board_key: BoardKey
    value: str
    version: int
    agent_id: str
    node_id: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write; `seq` is the position of its event in the run's log."""

    version: int
    seq: int
    created_at: datetime
    updated_at: datetime


# --- a write, ready to be stored ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardWrite:
    """A checked write. Only `prepare()` creates one, so it has an author and fits the payload limit.

    `offloaded` must be stored as artifacts before the write; `refers_to` are all artifacts that the value or
    its event names. The event has the longest possible version: the store replaces it by the one that it
    assigns.
    """

    user_id: UserId
    run_id: RunId
    board_key: BoardKey
    value: str
    agent_id: str
    node_id: str
    expected_version: int | None
    limits: BoardLimits
    event: Envelope
    offloaded: tuple[OffloadedValue, ...]
    refers_to: frozenset[ArtifactId]

    @property
    def size(self) -> int:
        return len(self.value.encode())

    def next_version(self, state: BoardState) -> int:
        """Return the version to store. Raises if the run has ended, or version or limits do not allow it."""
        if is_terminal(state.status):
            raise RunFinished(run_id=self.run_id, status=state.status.value)
        if self.expected_version not in (None, state.version):
            what = f"{self.board_key.key} on the {self.board_key.board}"
            raise VersionConflict(what=what, current=state.version, expected=self.expected_version)
        if state.version == 0 and state.keys >= self.limits.keys:
            raise BoardFull(limit=self.limits.keys, what="keys")
        if state.other_bytes + self.size > self.limits.run_bytes:
            raise BoardFull(limit=self.limits.run_bytes, what="bytes")
        return state.version + 1


def prepare(
    request: BoardWriteRequest, limits: BoardLimits, *, user_id: UserId, run_id: RunId, agent_id: str
) -> BoardWrite:
    """Check everything that does not depend on the run's state, and seal the event. CC-16, CC-18, CC-19"""
    board_key = to_board_key(request.board, request.key, request.edge_id)
    node_id = require_name("source_node_id", request.node_id)
    if is_too_deep(request.value):
        raise BadInput(problem=f"value must not be nested deeper than {MAX_DEPTH} levels.")
    if len(to_json(request.value).encode()) > limits.value_bytes:
        raise TooLarge(what="value", limit=limits.value_bytes)
    value, offloaded = offload_large_values(request.value)
    text = to_json(value)
    edge = {} if board_key.edge is None else {"edge_id": board_key.edge}
    data = {
        "key": board_key.key,
        "value": request.value,
        "version": LAST_VERSION,
        **edge,
        "source_node_id": node_id,
    }
    event = seal(f"{board_key.board}.write", data, Provenance(agent_id, node_id, run_id, board_key.edge))
    return BoardWrite(
        user_id=user_id,
        run_id=run_id,
        board_key=board_key,
        value=text,
        agent_id=agent_id,
        node_id=node_id,
        expected_version=request.expected_version,
        limits=limits,
        event=event,
        offloaded=(*offloaded, *event.offloaded),
        refers_to=mentioned_artifacts(text, offloaded) | event.refers_to,
    )
