"""The boards of a run: what may be written where, at which version, and the event that tells of it.

Owns scope, keys, versions and limits. Knows no store: what a write finds there is an argument, the next version the
result. The whiteboard is one for the whole run; a value of the blackboard belongs to an edge, the handover from one
node to another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from easel.core.run.status import Status, is_terminal
from easel.core.stream.envelope import Envelope, Provenance, seal
from easel.core.stream.json_text import to_json
from easel.core.stream.payload_limit import OffloadedValue, mentioned, offload_large_values
from easel.core.validation import MAX_DEPTH, is_too_deep
from easel.errors import BadInput, BoardFull, RunFinished, TooLarge, VersionConflict
from easel.ids import ArtifactId, RunId, UserId


class Board(StrEnum):
    WHITEBOARD = "whiteboard"
    BLACKBOARD = "blackboard"


GLOBAL = "global"  # the edge of the whiteboard, which has none
MAX_NAME_LENGTH = 200  # bytes of a key, an edge or a node
# Shorter than a marker, and three of them leave room for one: whatever the value is, its event names them in full.
LAST_VERSION = 2**63 - 1


# --- where a value stands -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoardKey:
    board: Board
    edge_id: str
    key: str

    @property
    def edge(self) -> str | None:
        """As it is told: the whiteboard has no edges."""
        return None if self.board is Board.WHITEBOARD else self.edge_id


def place(board: Board, key: str, edge_id: str | None) -> BoardKey:
    return BoardKey(board, edge_of(board, edge_id), checked_name("key", key))


def edge_of(board: Board, edge_id: str | None) -> str:
    """The edge that a value belongs to; on the whiteboard there is only the whole run. CC-20, CC-21, CC-27, CC-28"""
    if board is Board.WHITEBOARD:
        if edge_id not in (None, GLOBAL):
            raise BadInput(
                problem=f"The whiteboard is one for the whole run: leave edge_id out, or say `{GLOBAL}`. Edges have the blackboard."
            )
        return GLOBAL
    if edge_id is None:
        raise BadInput(problem="A blackboard value belongs to an edge: edge_id is missing.")
    if edge_id == GLOBAL:
        raise BadInput(problem=f"`{GLOBAL}` is no edge; what is for the whole run goes on the whiteboard.")
    return checked_name("edge_id", edge_id)


def checked_name(what: str, name: str) -> str:
    if not name or not name.isprintable() or len(to_json(name).encode()) - len('""') > MAX_NAME_LENGTH:
        raise BadInput(problem=f"{what} is printable text of 1 to {MAX_NAME_LENGTH} bytes.")
    return name


# --- what is asked for, and what is found -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoardWriteRequest:
    """A write as its author asks for it. Who that is, and in which run, is not the author's to say. CC-17"""

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
class Found:
    """What a write finds under the run's lock: the key's version (0: it is not there), and what else is on the run's boards."""

    status: Status
    version: int
    keys: int
    other_bytes: int


@dataclass(frozen=True, slots=True)
class BoardValue:
    """A value as it stands; `value` is JSON."""

    place: BoardKey
    value: str
    version: int
    agent_id: str
    node_id: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Written:
    """What came of a write; `seq` is the place of its event in the run's log."""

    version: int
    seq: int
    created_at: datetime
    updated_at: datetime


# --- a write, ready to be stored ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardWrite:
    """Only `prepare()` makes one: its value and its events are light, and it says who writes.

    `moved` is what was too heavy and has to be kept as artifacts before the write is stored; `refers_to` are all
    artifacts that the value or its event speaks of.
    """

    user_id: UserId
    run_id: RunId
    place: BoardKey
    value: str
    agent_id: str
    node_id: str
    expected_version: int | None
    limits: BoardLimits
    events: tuple[Envelope, ...]
    offloaded: tuple[OffloadedValue, ...]
    refers_to: frozenset[ArtifactId]

    @property
    def size(self) -> int:
        return len(self.value.encode())

    def event(self, version: int) -> Envelope:
        """The event for a version of so many digits; the store fills in which, for only it knows."""
        return self.events[min(len(str(version)), len(self.events)) - 1]

    def next_version(self, found: Found) -> int:
        """From 1 on. Refuses before anything is changed."""
        if is_terminal(found.status):
            raise RunFinished(run_id=self.run_id, status=found.status.value)
        if self.expected_version not in (None, found.version):
            what = f"{self.place.key} on the {self.place.board}"
            raise VersionConflict(what=what, current=found.version, expected=self.expected_version)
        if found.version == 0 and found.keys >= self.limits.keys:
            raise BoardFull(limit=self.limits.keys, what="keys")
        if found.other_bytes + self.size > self.limits.run_bytes:
            raise BoardFull(limit=self.limits.run_bytes, what="bytes")
        return found.version + 1


def prepare(
    ask: BoardWriteRequest, limits: BoardLimits, *, user_id: UserId, run_id: RunId, agent_id: str
) -> BoardWrite:
    """Checks all that can be checked before the run is looked at. CC-16, CC-18, CC-19"""
    at = place(ask.board, ask.key, ask.edge_id)
    node_id = checked_name("source_node_id", ask.node_id)
    if is_too_deep(ask.value):
        raise BadInput(problem=f"value is nested deeper than {MAX_DEPTH} levels.")
    if len(to_json(ask.value).encode()) > limits.value_bytes:
        raise TooLarge(what="value", limit=limits.value_bytes)
    light, offloaded = offload_large_values(ask.value)
    text = to_json(light)
    edge = {} if at.edge is None else {"edge_id": at.edge}
    provenance = Provenance(agent_id, node_id, run_id, at.edge)

    def sealed(version: int) -> Envelope:
        said = {"key": at.key, "value": ask.value, "version": version, **edge, "source_node_id": node_id}
        return seal(f"{at.board}.write", said, provenance)

    events = by_digits(sealed)
    return BoardWrite(
        user_id=user_id,
        run_id=run_id,
        place=at,
        value=text,
        agent_id=agent_id,
        node_id=node_id,
        expected_version=ask.expected_version,
        limits=limits,
        events=events,
        offloaded=(*offloaded, *dict.fromkeys(one for event in events for one in event.offloaded)),
        refers_to=mentioned(text, offloaded).union(*(event.refers_to for event in events)),
    )


_MAX_DIGITS = len(str(LAST_VERSION))


def by_digits(sealed: Callable[[int], Envelope]) -> tuple[Envelope, ...]:
    """The event with a version of one digit, of two, and so on; a single one where that makes no difference.

    It makes a difference for what just fits into an event: the version is known under the run's lock only, and by then all that
    has to be moved out of the event must have been kept.
    """
    longest = sealed(LAST_VERSION)
    if not longest.offloaded or longest.offloaded == sealed(1).offloaded:
        return (longest,)
    return tuple(sealed(10**digits) for digits in range(_MAX_DIGITS))
