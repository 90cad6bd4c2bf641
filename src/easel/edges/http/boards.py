"""The boards of a run over HTTP: shapes, and calls of the board stories."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.responses import Response

from easel.core.run.boards import LAST_VERSION, Board, BoardValue, BoardWriteRequest
from easel.edges.http.calls import Call, json_answer
from easel.errors import BadInput

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class _Write(Struct, forbid_unknown_fields=True, kw_only=True):
    """Who writes, and in which run, is not in it: the server knows both. CC-17, P4"""

    key: Name
    value: Annotated[Any, Meta(description="Any JSON.")]
    source_node_id: Annotated[
        Name, Meta(description="The node that writes; it becomes `provenance.node_id`.", examples=["planner"])
    ]
    expected_version: Annotated[
        Annotated[int, Meta(ge=0, le=LAST_VERSION)] | None,
        Meta(description="Write only if the key is at this version; 0: only if it is not there yet."),
    ] = None


class WriteWhiteboard(_Write, forbid_unknown_fields=True, kw_only=True):
    edge_id: Annotated[str | None, Meta(description="Nothing, or `global`: the whiteboard has no edges.")] = (
        None
    )


class WriteBlackboard(_Write, forbid_unknown_fields=True, kw_only=True):
    edge_id: Annotated[
        Name, Meta(description="The handover that the value belongs to.", examples=["planner-writer"])
    ]


class ReadBoard(Struct):
    key: Annotated[str | None, Meta(description="This value alone.")] = None
    edge_id: Annotated[
        str | None, Meta(description="Of the blackboard: this edge alone; one value is read with its edge.")
    ] = None


class Author(Struct, omit_defaults=True):
    agent_id: Annotated[str, Meta(description="Who was signed in, or `main`: the run's own agent.")]
    node_id: str
    run_id: str
    edge_id: str | None = None


class BoardWritten(Struct, omit_defaults=True):
    key: str
    version: Annotated[int, Meta(description="From 1 on, one more with every write.")]
    seq: Annotated[int, Meta(description="The place of the write's event in the run's log.")]
    created_at: datetime
    updated_at: datetime
    provenance: Author
    edge_id: str | None = None


class BoardEntry(Struct, omit_defaults=True):
    key: str
    value: Raw
    version: int
    created_at: datetime
    updated_at: datetime
    provenance: Author
    edge_id: str | None = None


class BoardView(Struct):
    """What a read may answer: without `key` in the query only `entries`, with it the fields of that entry."""

    entries: list[BoardEntry] | UnsetType = UNSET
    key: str | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    version: int | UnsetType = UNSET
    created_at: datetime | UnsetType = UNSET
    updated_at: datetime | UnsetType = UNSET
    provenance: Author | UnsetType = UNSET
    edge_id: str | UnsetType = UNSET


async def write_whiteboard(call: Call) -> Response:
    return await _write(call, Board.WHITEBOARD)


async def write_blackboard(call: Call) -> Response:
    return await _write(call, Board.BLACKBOARD)


async def read_whiteboard(call: Call) -> Response:
    return await _read(call, Board.WHITEBOARD)


async def read_blackboard(call: Call) -> Response:
    return await _read(call, Board.BLACKBOARD)


async def _write(call: Call, board: Board) -> Response:
    asked: WriteWhiteboard | WriteBlackboard = call.asked
    ask = BoardWriteRequest(
        board, asked.key, asked.value, asked.source_node_id, asked.edge_id, asked.expected_version
    )
    run_id = call.path["run_id"]
    try:
        written = await call.host.boards.write(call.principal, run_id, ask)
    except BadInput as problem:  # a guardrail's outcome is for operators too
        told = {"board": board.value, "error": problem.code}
        call.host.audit.record_throttled(call.principal, "board.refused", subject=run_id, details=told)
        raise
    edge_id = asked.edge_id if board is Board.BLACKBOARD else None
    author = Author(call.principal.user_id, asked.source_node_id, run_id, edge_id)
    return json_answer(
        BoardWritten(
            asked.key, written.version, written.seq, written.created_at, written.updated_at, author, edge_id
        ),
    )


async def _read(call: Call, board: Board) -> Response:
    asked: ReadBoard = call.asked
    run_id = call.path["run_id"]
    if asked.key is not None:
        return json_answer(
            _entry(
                run_id,
                await call.host.boards.read(call.principal.user_id, run_id, board, asked.key, asked.edge_id),
            )
        )
    entries = await call.host.boards.read_all(call.principal.user_id, run_id, board, asked.edge_id)
    return json_answer(BoardView([_entry(run_id, entry) for entry in entries]))


def _entry(run_id: str, entry: BoardValue) -> BoardEntry:
    place = entry.board_key
    author = Author(entry.agent_id, entry.node_id, run_id, place.edge)
    return BoardEntry(
        place.key,
        Raw(entry.value.encode()),
        entry.version,
        entry.created_at,
        entry.updated_at,
        author,
        place.edge,
    )
