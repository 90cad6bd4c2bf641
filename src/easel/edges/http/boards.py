"""The boards of a run over HTTP: the shapes of requests and responses, and calls of the board service."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from easel.core.run.boards import LAST_VERSION, Board, BoardValue, BoardWriteRequest
from easel.edges.decoding import Params
from easel.edges.http.calls import Call
from easel.edges.http.wire import PageCursor
from easel.edges.paging import DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS, read_list_page
from easel.errors import BadInput

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class _Write(Params, kw_only=True):
    """The body of a write. The server sets the author and the run. CC-17, P4"""

    key: Name
    value: Annotated[Any, Meta(description="Any JSON.")]
    source_node_id: Annotated[
        Name, Meta(description="The node that writes; it becomes `provenance.node_id`.", examples=["planner"])
    ]
    expected_version: Annotated[
        Annotated[int, Meta(ge=0, le=LAST_VERSION)] | None,
        Meta(description="Write only if the key has this version; 0: only if it does not exist."),
    ] = None


class WriteWhiteboard(_Write, kw_only=True):
    edge_id: Annotated[
        str | None, Meta(description="Must be absent or `global`: the whiteboard has no edges.")
    ] = None


class WriteBlackboard(_Write, kw_only=True):
    edge_id: Annotated[
        Name, Meta(description="The handover that the value belongs to.", examples=["planner-writer"])
    ]


class ReadBoard(Params):
    key: Annotated[str | None, Meta(description="Only this value.")] = None
    edge_id: Annotated[
        str | None, Meta(description="Only this edge of the blackboard; must be given with a key.")
    ] = None
    after: PageCursor = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)] = DEFAULT_PAGE_ITEMS


class BoardAuthor(Struct, omit_defaults=True):
    agent_id: Annotated[
        str, Meta(description="The user id of a person, or the name of a service or an agent.")
    ]
    node_id: str
    run_id: str
    kind: Annotated[str, Meta(description="`person`, `agent`, `service` or `node`.")]
    edge_id: str | None = None


class BoardWritten(Struct, omit_defaults=True):
    key: str
    version: Annotated[int, Meta(description="Starts at 1 and grows by one with every write.")]
    seq: Annotated[int, Meta(description="The sequence number of the write's event in the run's log.")]
    created_at: datetime
    updated_at: datetime
    provenance: BoardAuthor
    edge_id: str | None = None


class BoardEntry(Struct, omit_defaults=True):
    key: str
    value: Raw
    version: int
    created_at: datetime
    updated_at: datetime
    provenance: BoardAuthor
    edge_id: str | None = None


class BoardView(Struct):
    """The response to a read: the fields of one entry if the query has `key`, otherwise `entries`."""

    entries: list[BoardEntry] | UnsetType = UNSET
    next: Annotated[str | UnsetType, Meta(description="Missing on the last page of the entries.")] = UNSET
    key: str | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    version: int | UnsetType = UNSET
    created_at: datetime | UnsetType = UNSET
    updated_at: datetime | UnsetType = UNSET
    provenance: BoardAuthor | UnsetType = UNSET
    edge_id: str | UnsetType = UNSET


async def write_whiteboard(call: Call) -> BoardWritten:
    return await _write(call, Board.WHITEBOARD)


async def write_blackboard(call: Call) -> BoardWritten:
    return await _write(call, Board.BLACKBOARD)


async def read_whiteboard(call: Call) -> BoardView | BoardEntry:
    return await _read(call, Board.WHITEBOARD)


async def read_blackboard(call: Call) -> BoardView | BoardEntry:
    return await _read(call, Board.BLACKBOARD)


async def _write(call: Call, board: Board) -> BoardWritten:
    params: WriteWhiteboard | WriteBlackboard = call.params
    request = BoardWriteRequest(
        board, params.key, params.value, params.source_node_id, params.edge_id, params.expected_version
    )
    run_id = call.path["run_id"]
    try:
        written = await call.host.boards.write(call.principal, run_id, request)
    except BadInput as problem:  # record the refusal of a guardrail
        details = {"board": board.value, "error": problem.code}
        call.host.audit.record_throttled(call.principal, "board.refused", subject=run_id, details=details)
        raise
    edge_id = params.edge_id if board is Board.BLACKBOARD else None
    author = BoardAuthor(
        call.principal.actor_id, params.source_node_id, run_id, call.principal.actor_kind, edge_id
    )
    return BoardWritten(
        params.key, written.version, written.seq, written.created_at, written.updated_at, author, edge_id
    )


async def _read(call: Call, board: Board) -> BoardView | BoardEntry:
    params: ReadBoard = call.params
    run_id = call.path["run_id"]
    account_id = call.principal.account_id
    if params.key is not None:
        entry = await call.host.boards.read(account_id, run_id, board, params.key, params.edge_id)
        return _entry(run_id, entry)
    entries = await call.host.boards.read_all(account_id, run_id, board, params.edge_id)
    views, more = await read_list_page(
        entries, lambda entry: _entry(run_id, entry), _position, start=params.after, limit=params.limit
    )
    return BoardView(views, UNSET if more is None else more)


def _position(entry: BoardValue) -> str:
    """Return the position of an entry in its board; names have no tab."""
    return f"{entry.board_key.edge_id}\t{entry.board_key.key}"


def _entry(run_id: str, entry: BoardValue) -> BoardEntry:
    board_key = entry.board_key
    author = BoardAuthor(entry.agent_id, entry.node_id, run_id, entry.kind, board_key.edge)
    return BoardEntry(
        board_key.key,
        Raw(entry.value.encode()),
        entry.version,
        entry.created_at,
        entry.updated_at,
        author,
        board_key.edge,
    )
