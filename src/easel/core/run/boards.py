"""The boards of a run: scope, keys, versions and limits of their values, and the event of a write.

A run has two boards for values that its nodes share. A value of the whiteboard is visible to the whole run. A
value of the blackboard belongs to an edge, the handover from one node to another. Owns the rules for writes.
Does not know the store: the state of the boards is an argument, the next version the result.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from easel.core.principal import ActorKind
from easel.core.run.status import Status, is_terminal
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import OffloadedValue, mentioned_artifacts, offload_large_values
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.errors import BadInput, BoardFull, RunFinished, TooLarge, VersionConflict
from easel.ids import AccountId, ArtifactId, RunId


class Board(StrEnum):
    WHITEBOARD = "whiteboard"
    BLACKBOARD = "blackboard"


GLOBAL = "global"  # stored as the edge id of whiteboard values, which have no edge
# Bytes of a key, edge id or node id. Shorter than a marker, so that none of them is ever offloaded.
MAX_NAME_LENGTH = 200
LAST_VERSION = 2**63 - 1  # the longest version number


# --- keys ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoardKey:
    board: Board
    edge_id: str
    key: str

    @property
    def edge(self) -> str | None:
        """The edge id as clients see it: None on the whiteboard."""
        return None if self.board is Board.WHITEBOARD else self.edge_id


def to_board_key(board: Board, key: str, edge_id: str | None) -> BoardKey:
    return BoardKey(board, to_edge_id(board, edge_id), require_name("key", key))


def to_edge_id(board: Board, edge_id: str | None) -> str:
    """Return the edge id to store, `GLOBAL` on the whiteboard. CC-20, CC-21, CC-27, CC-28"""
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
    """A write request. It has neither author nor run: these are known from the connection. CC-17"""

    board: Board
    key: str
    value: Any
    node_id: str
    edge_id: str | None = None
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class BoardLimits:
    value_bytes: int = 262_144  # as of a tool's result; a model reads values whole
    keys: int = 1_000  # of a run, on both boards together; a list of them is one response
    run_bytes: int = 16_777_216  # of all values of a run: 64 of the largest


DEFAULT_LIMITS = BoardLimits()


@dataclass(frozen=True, slots=True)
class BoardState:
    """The state of a run and its boards that a write of one key depends on, read under the run's lock."""

    status: Status
    version: int  # of the key; 0: the key does not exist
    keys: int  # number of keys on both boards
    other_bytes: int  # of the values of all other keys


@dataclass(frozen=True, slots=True)
class BoardValue:
    """A stored value of a board. `value` is its JSON text."""

    board_key: BoardKey
    value: str
    version: int
    agent_id: str
    node_id: str
    created_at: datetime
    updated_at: datetime
    kind: ActorKind  # of the author


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
    """A checked write, ready to be stored. Only `prepare()` creates one.

    `offloaded` must be stored as artifacts before the write; `refers_to` are all artifacts that the value or
    its event names. The event has the version `LAST_VERSION`, which the store replaces by the version that it
    assigns, so that the event never becomes longer.
    """

    account_id: AccountId
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
    kind: ActorKind

    @property
    def size(self) -> int:
        return len(self.value.encode())

    def next_version(self, state: BoardState) -> int:
        """Return the version to store. Raises if the run has ended, versions differ or a limit is reached."""
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
    request: BoardWriteRequest,
    limits: BoardLimits,
    *,
    account_id: AccountId,
    run_id: RunId,
    agent_id: str,
    kind: ActorKind = ActorKind.AGENT,
) -> BoardWrite:
    """Check a request as far as this needs no state of the run, and seal its event.

    CC-16, CC-18, CC-19, RS-68
    """
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
    provenance = Provenance(agent_id, node_id, run_id, board_key.edge, kind)
    event = seal(f"{board_key.board}.write", data, provenance)
    return BoardWrite(
        account_id=account_id,
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
        kind=kind,
    )
